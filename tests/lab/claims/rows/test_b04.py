"""Tests that the check of claim B4 gives the right verdict on made-up results."""

from __future__ import annotations

import pytest

from mxnum.lab.claims import (
    Verdict,
)
from mxnum.lab.claims.rows import (
    b04,
)
from mxnum.lab.studies import studies
from tests.lab.claims.made_up import followed, mlp, runs

pytest.importorskip("scipy", reason="the extra 'experiments' is not installed")


NEVER, ALWAYS = [None] * 12, [400 + 10 * i for i in range(12)]


def test_b4(tmp_path):
    names = list(studies.get("factorial").arms)
    arms = {n: runs(NEVER if row[0] > 0 else ALWAYS) for n, row in zip(names, studies.fraction(), strict=True)}
    found = b04.CLAIM.run(mlp(tmp_path, "factorial", arms))
    # The first statement is that the loss rises more often or sooner with the settings of the
    # released code than with the settings in the paper's text. The second statement is that some of
    # the six differences between the settings change the step at which the loss rises. The third
    # statement is that the released code diverges at the paper's model size.
    assert [s.holds for s in found.statements] == [False, True, None]
    assert found.statements[1].numbers.count("runs with the code's setting") == 1
    change = f"In E2M1, 1 of 6 differences change when the loss rises (later: {studies.DIFFERENCES[0]}; "
    assert change in found.answer
    shown = "rises in 0 of 12 runs with the code's settings and 12 of 12 with the text's. Undecided: E4M3, paper size."
    assert shown in found.answer
    assert studies.DIFFERENCES[0] in found.statements[1].numbers
    assert all(name in found.note for name in studies.DIFFERENCES[1:])
    assert found.note.startswith(
        f"Settings of the released code that delay the rise of the loss: {studies.DIFFERENCES[0]}. "
        "Settings of the released code that hasten the rise: none."
    )
    turned = {n: runs(ALWAYS if row[0] > 0 else NEVER) for n, row in zip(names, studies.fraction(), strict=True)}
    note = b04.CLAIM.run(mlp(tmp_path, "factorial", turned)).note
    assert f"loss: none. Settings of the released code that hasten the rise: {studies.DIFFERENCES[0]}." in note
    found = b04.CLAIM.run(mlp(tmp_path, "factorial", dict.fromkeys(names, runs(NEVER))))
    assert [s.holds for s in found.statements] == [False, None, None]
    assert found.verdict == Verdict.NOT_REPRODUCED
    again = mlp(tmp_path, "runaway-switches", {b04.SHIPPED: followed([(100, 300), None])})
    assert "on fresh seeds, for 1,000 steps: 1 of 2, 1 back with an excursion" in b04.CLAIM.run(again).note


FP32, CODE = "paper scale, FP32", "paper scale, released code"
CALM, AWAY, BACK = None, (500, None), (500, 600)


@pytest.mark.parametrize(
    ("spans", "of_fp32", "holds"),
    [
        ([CALM, CALM], [CALM, CALM], False),
        ([CALM, CALM], [AWAY, CALM], False),
        ([AWAY, AWAY], [CALM, CALM], True),
        ([AWAY, AWAY], [CALM, BACK], None),
        ([AWAY, BACK], [CALM, CALM], None),
        ([CALM], [CALM], None),
        ([CALM, CALM], [CALM], None),
    ],
)
def test_two_pairs_of_runs_decide_an_arm(tmp_path, spans, of_fp32, holds):
    found = b04.released_code(mlp(tmp_path, "paper-scale", {FP32: followed(of_fp32), CODE: followed(spans)}))
    assert found.holds is holds
    assert found.what.startswith("the released code diverges")


def test_a_control_that_ended_before_the_excursion_decides_nothing(tmp_path):
    arms = {FP32: followed([CALM, CALM], steps=500), CODE: followed([AWAY, AWAY])}
    arms[CODE][0]["steps"] = 900
    found = b04.released_code(mlp(tmp_path, "paper-scale", arms))
    assert found.holds is None
    assert "2 of 2 runs with an excursion in 900 to 1,000 steps" in found.numbers


def test_a_calm_run_that_is_under_way_decides_nothing(tmp_path):
    arms = {FP32: followed([CALM, CALM]), CODE: followed([CALM, CALM])}
    arms[CODE][1]["steps"] = 400
    found = b04.released_code(mlp(tmp_path, "paper-scale", arms))
    assert found.holds is None


def test_numbers_say_which_arms_were_run(tmp_path):
    made = mlp(tmp_path, "paper-scale", {CODE: followed([BACK])})
    assert b04.released_code(made).numbers.startswith("1 of 1 run with an excursion in 1,000 steps")
    assert b04.released_code(made).numbers.endswith("FP32 was not run")
    assert b04.released_code(mlp(tmp_path, "paper-scale", {FP32: followed([CALM])})).numbers == "not run"
