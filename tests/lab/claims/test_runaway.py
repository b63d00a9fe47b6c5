"""The rules of rows I6a, I6b and I6c on made-up results; what the stored ones say is in the ledger."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from mxnum.lab import storage
from mxnum.lab.claims import runaway, stored
from mxnum.lab.claims.evidence import Verdict, Whose
from tests.lab.claims.test_training import context, followed

pytest.importorskip("scipy", reason="the extra 'experiments' is not installed")

RESULTS = Path(__file__).parents[3] / "docs" / "lab" / "results"
N = 12
CALM, LOST, BACK = [None] * N, [(100 + i, None) for i in range(N)], [(100 + i, 200) for i in range(N)]
RATES = ("rate 0.034", "rate 0.048")


def quick(tmp_path, e2m1, fp32):
    return context(tmp_path, "quick", {"FP32": followed(fp32), "E2M1": followed(e2m1)}, horizon=500)


def test_e2m1_is_judged_by_the_start_of_its_runaways(tmp_path):
    found = runaway.in_four_bits(quick(tmp_path, LOST, BACK)).of(Whose.OURS)
    assert [s.holds for s in found.statements] == [True]
    assert found.verdict == Verdict.CONFIRMED
    assert found.answer == (
        "4 bits run away sooner than FP32: with everything in E2M1 12 of 12 runs are lost, in FP32 0 of 12, at rate "
        "0.034."
    )
    assert found.number == "p = 0.00049"
    same = runaway.in_four_bits(quick(tmp_path, LOST[:6] + BACK[6:], BACK[:6] + LOST[6:]))
    assert [s.holds for s in same.statements] == [None]
    assert same.answer.startswith("No difference between 4 bits and FP32 is shown: ")
    reverse = runaway.in_four_bits(quick(tmp_path, BACK, LOST))
    assert [s.holds for s in reverse.statements] == [False]
    assert reverse.answer.startswith("4 bits run away later than FP32: ")


def test_each_part_of_the_recipe_has_a_test(tmp_path):
    arms = {"FP32": BACK, "E2M1": LOST, "LN E2M1": [(50 + i, 90) for i in range(N)], "E2M1, LN FP32": CALM}
    table = {f"{arm}, {rate}": followed(spans) for arm, spans in arms.items() for rate in RATES}
    here = context(tmp_path, "parts", table, horizon=500)
    found = runaway.of_parts(here.json("parts.json"))
    assert [s.what for s in found] == list(runaway.PARTS)
    assert [s.holds for s in found] == [True] * 4
    operands = {f"{name} alone": followed(BACK) for name in ("weights", "activations", "gradients")}
    delay = {"FP32": followed(BACK), "products": followed(CALM)} | operands
    context(tmp_path, "delay", delay, horizon=500)
    found = runaway.parts_of_the_recipe(here)
    assert [s.holds for s in found.statements] == [True] * 5 + [None]
    assert found.answer == (
        "At .034 and .048, of 24 runs each, 24 are lost with everything in 4 bits, 0 with products alone, 0 with layer "
        "norm alone, 0 in FP32. At .024 4-bit products delay the jump."
    )
    assert found.note.startswith("At rate 0.024 the jump comes later than in FP32 with: products (exact test")
    context(tmp_path, "delay", delay | {"weights alone": followed(CALM)}, horizon=500)
    assert runaway.parts_of_the_recipe(here).statements[-1].holds is True
    table |= {f"LN E2M1, {rate}": followed(LOST) for rate in RATES}
    again = runaway.of_parts(context(tmp_path, "parts", table, horizon=500).json("parts.json"))
    assert [s.holds for s in again] == [True, None, None, True]


def test_no_runaway_is_a_no_only_where_enough_runs_were_watched(tmp_path):
    for runs, is_no in ((24, True), (12, True), (11, False), (6, False)):  # upper limits 14, 24, 26 and 39 %
        arms = {"FP32": followed(CALM[:runs]), "LN E2M1": followed([*CALM, *CALM][:runs])}
        table = context(tmp_path, "recovery", arms, horizon=500).json("recovery.json")
        assert runaway.none_away(table, "LN E2M1")[0] is is_no
    lost = context(tmp_path, "recovery", {"FP32": followed(CALM), "E2M1": followed(LOST[:1] + CALM[1:])}, horizon=500)
    assert not runaway.none_away(lost.json("recovery.json"), "E2M1")[0]


def paper(tmp_path, e4m3, fp32, steps=1000):
    arms = {"paper scale, FP32": followed(fp32), "paper scale, E4M3": followed(e4m3, steps)}
    return context(tmp_path, "paper-scale", arms)


def test_the_event_at_the_size_of_the_paper_needs_a_calm_control(tmp_path):
    found = runaway.at_the_size_of_the_paper(paper(tmp_path, [(500, None), None], [None, (100, 200)]))
    assert found.statements[0].holds is True
    assert found.number == "1 of 2 against 1 of 2"
    none = runaway.at_the_size_of_the_paper(paper(tmp_path, [(500, None), None], [(400, None), None]))
    assert none.statements[0].holds is None
    calm = runaway.at_the_size_of_the_paper(paper(tmp_path, [None, None], [None, None]))
    assert calm.statements[0].holds is False


def test_a_jump_after_the_planned_steps_does_not_count(tmp_path):
    found = runaway.at_the_size_of_the_paper(paper(tmp_path, [(1000, None), (999, None)], [None, None], steps=1200))
    assert found.number == "1 of 2 against 0 of 2"


@pytest.mark.parametrize(("shift", "holds"), [(-250, True), (0, False), (None, None)])
def test_the_hazard_of_e4m3_is_decided_by_its_limits(shift, holds):
    rng = np.random.default_rng(1)
    arms = {}
    for rate in (0.1, 0.2, 0.3):
        times = rng.integers(300, 900, 24)
        for kind, by in (("FP32", 0), ("E4M3", shift)):
            first = [None] * 24 if by is None else [int(t) + by for t in times + rng.integers(-40, 40, 24)]
            spans = [None if t is None else (t, t + 5) for t in first]
            arms[f"{kind}, rate {rate}"] = {"experiment": {"rate": rate, "steps": 1000}, "runs": followed(spans)}
    assert runaway.hazard_of_e4m3({"arms": arms}).holds is holds


def test_the_counts_that_ship_are_those_of_the_stored_studies():
    command = "python -m mxnum.lab.claims.stored docs/lab/results"
    assert storage.read_json(stored.PATH) == stored.counted(RESULTS), f"out of date: run {command}"
