"""The rules of B2, B4 and B6 on made-up results."""

from __future__ import annotations

import json

import pytest

from mxnum.lab.claims import rates
from mxnum.lab.claims.evidence import Verdict
from mxnum.lab.claims.registry import Context
from mxnum.lab.studies import studies
from tests.lab.claims.test_training import context, followed, runs

pytest.importorskip("scipy", reason="the extra 'experiments' is not installed")
NEVER, ALWAYS = [None] * 12, [400 + 10 * i for i in range(12)]


def test_b2(tmp_path):
    def row(deviation, common, ratios, predicted, mean=0):
        return {"mean": mean, "deviation": deviation, "common": common, "ratios": ratios, "predicted": predicted}

    rows = [
        row(0, False, [2.0, 1.99, 2.01, 2.0], 2.0, mean=-0.5),
        row(1, True, [0.9, 0.9, 0.91, 0.89], 0.5),  # another
        row(1, True, [0.3, 0.5, 0.7, 0.5], 0.5),  # known too badly
        row(1, False, [0.9, 0.9, 0.91, 0.89], 0.5),
        row(1, False, [0.3, 0.5, 0.7, 0.9], 0.5),
        row(1, False, [0.4, 0.41, 0.4, 0.39], 0.5),
    ]
    experiment = {"width": 1, "layers": 1, "batch": 1, "steps": 1}
    (tmp_path / "sgd-limits.json").write_text(json.dumps({"rows": rows, "experiment": experiment, "seeds": [1]}))
    found = rates.noise_and_stability(Context(tmp_path))
    assert all(c.agrees for c in found.comparisons)
    assert [s.holds for s in found.statements] == [True, False, None, True, None, False]
    assert "On the MLP a bias acts as derived. Not as derived: noise common to all elements and" in found.answer
    for kept, told in (
        (rows[:1] + rows[3:4], "On the MLP a bias and noise drawn for each element act as derived."),
        (rows[2:3], "Undecided:"),
    ):
        (tmp_path / "sgd-limits.json").write_text(json.dumps({"rows": kept, "experiment": experiment, "seeds": [1]}))
        assert told in rates.noise_and_stability(Context(tmp_path)).answer


def test_the_simulated_quadratic_is_not_its_formula():
    assert rates._on_a_quadratic(0, 0.5, 0.9).agrees
    below, above = (rates._on_a_quadratic(0.2, 0.5, x) for x in (0.9, 1.1))
    assert below.found < 1 < above.found
    wrong = rates._on_a_quadratic(0, 0.5, 1.0)
    assert abs(wrong.found - 1) < wrong.tolerance
    assert abs(wrong.found - rates._on_a_quadratic(0, 0.5, 0.9).claimed) > wrong.tolerance


def test_b4(tmp_path):
    names = list(studies.get("factorial").arms)
    arms = {n: runs(NEVER if row[0] > 0 else ALWAYS) for n, row in zip(names, studies.fraction(), strict=True)}
    found = rates.differences(context(tmp_path, "factorial", arms))
    assert [s.holds for s in found.statements] == [False, True, None]  # as shipped: none; the switch; larger: not run
    assert found.statements[1].numbers.count("the code's way") == 1
    assert f"Of 6 differences 1 change when the loss rises in E2M1 (later: {studies.DIFFERENCES[0]}; " in found.answer
    assert "As shipped 0 of 12 runs rise, by the text 12 of 12. Undecided: E4M3 at the paper's size." in found.answer
    assert studies.DIFFERENCES[0] in found.statements[1].numbers
    assert all(name in found.note for name in studies.DIFFERENCES[1:])
    assert found.note.startswith(
        f"The code's way the rise comes later with: {studies.DIFFERENCES[0]}; sooner with: none."
    )
    turned = {n: runs(ALWAYS if row[0] > 0 else NEVER) for n, row in zip(names, studies.fraction(), strict=True)}
    note = rates.differences(context(tmp_path, "factorial", turned)).note
    assert f"later with: none; sooner with: {studies.DIFFERENCES[0]}." in note
    found = rates.differences(context(tmp_path, "factorial", dict.fromkeys(names, runs(NEVER))))
    assert [s.holds for s in found.statements] == [False, None, None]
    assert found.verdict == Verdict.NOT_REPRODUCED
    again = context(tmp_path, "runaway-switches", {rates.SHIPPED: followed([(100, 300), None])})
    assert "on fresh seeds to 1,000 steps: 1 of 2, 1 back with an excursion" in rates.differences(again).note


def test_b6(tmp_path):
    arms = {f"FP32, rate {r:g}": runs(ALWAYS if r > 0.03 else NEVER) for r in studies.RATES}
    arms |= {f"E2M1, rate {r:g}": runs(ALWAYS if r > 0.015 else NEVER) for r in studies.RATES}
    arms |= {f"E4M3, rate {r:g}": runs(ALWAYS if r > 0.03 else NEVER) for r in studies.RATES}
    where = context(tmp_path, "critical-rate", arms)
    found = rates.critical_rates(where)
    assert [s.holds for s in found.statements] == [True, None, None]  # the last: width 512
    assert found.answer == "In the toy, at 5%, runs jump sooner than in FP32 in E2M1. Undecided: the paper's size."
    assert found.number == "E2M1: p 0.00098 after Holm"
    lost, back = [(100 + i, None) for i in range(12)], [(100 + i, 300) for i in range(12)]
    arms = {"FP32, rate 0.1": followed(back), "E2M1, rate 0.1": followed(lost), "E4M3, rate 0.1": followed(lost)}
    for width, holds in ((32, True), (64, None)):  # the one test that was named
        context(tmp_path, "runaway-32", arms, horizon=500, width=width)
        found = {s.what: s for s in rates.critical_rates(where).statements}
        assert found[f"width {width}: E2M1 runs away sooner than FP32"].holds is holds
        assert found[f"width {width}: E4M3 runs away sooner than FP32"].holds is None
    arms["E2M1, rate 0.1"] = followed(lost[:4] + back[4:])  # p .125
    context(tmp_path, "runaway-32", arms, horizon=500, width=32)
    found = {s.what: s.holds for s in rates.critical_rates(where).statements}
    assert found["width 32: E2M1 runs away sooner than FP32"] is None
