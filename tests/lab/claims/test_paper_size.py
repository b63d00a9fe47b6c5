"""What is said of few long runs, on made-up results."""

from __future__ import annotations

import json

import pytest

from mxnum.lab.claims import paper_size
from mxnum.lab.claims.registry import Context
from tests.lab.claims.test_training import context, followed

pytest.importorskip("scipy", reason="the extra 'experiments' is not installed")
FP32, E4M3, CODE = "paper scale, FP32", "paper scale, E4M3", "paper scale, released code"
CALM, AWAY, BACK = None, (500, None), (500, 600)


def test_actions_on_one_jump_are_told_and_decide_nothing(tmp_path):
    after = {"unperturbed": 204, "perturbed 1": 210, "perturbed 2": None, "FP32": None, "weights bfloat16": 190}
    seed = {"seed": 1, "diverged": 904, "start": 700, "outcomes": {k: {"diverged_after": v} for k, v in after.items()}}
    (tmp_path / "paper-scale").mkdir(exist_ok=True)
    table = {"base": "paper scale, E4M3", "plan": {"watch": 500}, "seeds": [seed]}
    (tmp_path / "paper-scale" / "interventions.json").write_text(json.dumps(table))
    found = paper_size.actions(context(tmp_path, "paper-scale", {E4M3: followed([AWAY])}))
    assert found.holds is None
    assert found.what.startswith("the same in E4M3 at the paper's size")
    assert found.numbers == (
        "1 seed; how many rose within 500 steps: unperturbed 1 of 1 (after 204); perturbed 1 of 2 (after 210); "
        "FP32 0 of 1; weights bfloat16 1 of 1 (after 190)"
    )


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
def test_an_arm_is_decided_from_two_pairs_on(tmp_path, spans, of_fp32, holds):
    found = paper_size.divergence(context(tmp_path, "paper-scale", {FP32: followed(of_fp32), E4M3: followed(spans)}))
    assert [s.holds for s in found] == [holds]
    assert found[0].what.startswith("E4M3 diverges")


def test_a_control_that_ended_before_the_excursion_decides_nothing(tmp_path):
    arms = {FP32: followed([CALM, CALM], steps=500), E4M3: followed([AWAY, AWAY])}
    arms[E4M3][0]["steps"] = 900
    (found,) = paper_size.divergence(context(tmp_path, "paper-scale", arms))
    assert found.holds is None
    assert "2 of 2 runs with an excursion in 900 to 1,000 steps" in found.numbers


def test_a_calm_run_that_is_under_way_decides_nothing(tmp_path):
    arms = {FP32: followed([CALM, CALM]), E4M3: followed([CALM, CALM])}
    arms[E4M3][1]["steps"] = 400
    (found,) = paper_size.divergence(context(tmp_path, "paper-scale", arms))
    assert found.holds is None


def test_what_was_run_is_told(tmp_path):
    arms = {E4M3: followed([CALM]), CODE: followed([BACK])}
    made = context(tmp_path, "paper-scale", arms)
    text = "\n".join(map(str, paper_size.divergence(made)))
    assert "0 of 1 run with an excursion in 1,000 steps" in text
    assert "FP32 was not run" in text
    assert "1 of 1 run" in paper_size.released_code(made).numbers
    assert "nothing to avert" not in paper_size.actions(made).numbers
    calm = context(tmp_path, "paper-scale", {E4M3: followed([CALM])})
    assert "nothing to avert: none of 1 run had" in paper_size.actions(calm).numbers
    assert paper_size.released_code(calm).numbers == "not run"


@pytest.mark.parametrize(
    ("e4m3", "fp32", "holds"),
    [
        ([[CALM, CALM], [AWAY, BACK]], [[CALM, CALM], [CALM, CALM]], True),
        ([[AWAY, BACK], [AWAY, AWAY]], [[CALM, CALM], [AWAY, AWAY]], True),
        ([[CALM, CALM], [AWAY, AWAY]], [[CALM, CALM], [AWAY, AWAY]], False),
        ([[CALM, CALM], [AWAY, AWAY]], [[AWAY, AWAY], [AWAY, AWAY]], False),
        ([[CALM, AWAY], [AWAY, AWAY]], [[CALM, CALM], [CALM, CALM]], None),
        ([[CALM, CALM], [CALM, CALM]], [[CALM, CALM], [CALM, CALM]], None),
        ([[CALM], [AWAY]], [[CALM], [CALM]], None),
    ],
)
def test_rates_are_compared_where_something_rises_first(tmp_path, e4m3, fp32, holds):
    arms = {f"E4M3, rate {rate}": followed(spans) for rate, spans in zip((0.1, 0.2), e4m3, strict=True)}
    arms |= {f"FP32, rate {rate}": followed(spans) for rate, spans in zip((0.1, 0.2), fp32, strict=True)}
    (found,) = paper_size.rates(context(tmp_path, "paper-rates", arms))
    assert found.holds is holds
    assert found.what.startswith("E4M3 has a lower critical rate")
    assert "0.1: " in found.numbers
    (alone,) = paper_size.rates(context(tmp_path, "paper-rates", {"E4M3, rate 0.1": followed([AWAY, AWAY])}))
    assert (alone.holds, alone.numbers.rpartition("; ")[2]) == (None, "FP32: not run")


def test_zeta_is_told_early_and_late_without_the_start(tmp_path):
    # Looks near a jump and after it are not among them: the last ten were ten steps in a row.
    made = followed([CALM, (1100, None)])
    for run in made:
        run["measured_at"] = [*range(0, 1100, 50), 1051]
        run["measured"]["zeta"] = [100.0, *[0.2] * 10, 3.0, *[0.4] * 9, None, 9.0]
    made[1]["measured_at"].append(1100)
    made[1]["measured"]["zeta"].append(9.0)
    (found,) = paper_size.growth(context(tmp_path, "paper-scale", {FP32: followed([CALM]), E4M3: made}))
    assert found.what.startswith("E4M3: zeta grows")
    assert found.numbers == (
        "before any excursion, one look in 50 steps: on average 0.20 over the first ten and 0.66 over the last ten; "
        "3.00 at most; 2 runs"
    )


def test_without_results_nothing_is_said(tmp_path):
    nothing = Context(tmp_path)
    of_one = (paper_size.released_code, paper_size.actions, paper_size.variants)
    found = [*paper_size.divergence(nothing), *paper_size.growth(nothing), *paper_size.rates(nothing)]
    found += [f(nothing) for f in of_one]
    assert [(s.holds, s.numbers) for s in found] == [(None, "not run")] * 6
