"""Tests of the check of claim I7 on made-up results, and of the command that repeats a result."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest

from mxnum.lab.claims import (
    Context,
)
from mxnum.lab.claims.rows import (
    i07,
)
from mxnum.lab.studies import interventions
from mxnum.lab.studies.study import FIRST_SEED
from tests.lab.claims.made_up import followed, mlp

pytest.importorskip("scipy", reason="the extra 'experiments' is not installed")


def test_i7(tmp_path):
    outcomes = {"unperturbed": 300, "perturbed 1": 320, "perturbed 2": 290, "LN in FP32": None, "FP32": 310}
    made = {k: {"diverged_after": v, "watched": 1500, "last_loss": 1.0} for k, v in outcomes.items()}
    seeds = [{"seed": s, "diverged": 900, "start": 600, "outcomes": made} for s in range(6)]
    table = {"study": "small", "base": "E2M1", "plan": {"watch": 1500}, "seeds": seeds}
    for count, holds in ((6, None), (9, None), (10, True)):  # fewer than ten seeds decide nothing
        table["seeds"] = [seeds[0] | {"seed": s} for s in range(count)]
        (tmp_path / "interventions.json").write_text(json.dumps(table))
        found = i07.CLAIM.run(Context(tmp_path))
        assert [s.holds for s in found.statements] == [holds, None]
        assert (f"{count} seeds of the small MLP were tried (10 are needed)" in found.answer) is (holds is None)


def test_the_command_of_i7_makes_the_stored_result():
    root = Path(__file__).parents[4]
    command = i07.CLAIM.command
    assert command in (root / "docs/lab/results/README.md").read_text()
    words = shlex.split(command.removeprefix("mxnum lab interventions"))
    chosen = dict(zip((word.removeprefix("--") for word in words[::2]), words[1::2], strict=True))
    plan = interventions.Plan(**{name: int(chosen[name]) for name in ("lead", "watch", "perturbed") if name in chosen})
    stored = json.loads((root / "docs/lab/results/interventions.json").read_text())
    assert (chosen["study"], chosen["base"]) == (stored["study"], stored["base"])
    assert vars(plan) == stored["plan"]
    seeds = range(FIRST_SEED, FIRST_SEED + int(chosen["seeds"]))
    runs = json.loads((root / "docs/lab/results/small.json").read_text())["arms"]["E2M1"]["runs"]
    diverged = [run["seed"] for run in runs if run["seed"] in seeds and run["diverged"] is not None]
    assert [seed["seed"] for seed in stored["seeds"]] == diverged


E4M3 = "paper scale, E4M3"


CALM, AWAY, BACK = None, (500, None), (500, 600)


def test_actions_on_one_jump_are_told_and_decide_nothing(tmp_path):
    after = {"unperturbed": 204, "perturbed 1": 210, "perturbed 2": None, "FP32": None, "weights bfloat16": 190}
    seed = {"seed": 1, "diverged": 904, "start": 700, "outcomes": {k: {"diverged_after": v} for k, v in after.items()}}
    (tmp_path / "paper-scale").mkdir(exist_ok=True)
    table = {"base": "paper scale, E4M3", "plan": {"watch": 500}, "seeds": [seed]}
    (tmp_path / "paper-scale" / "interventions.json").write_text(json.dumps(table))
    found = i07.at_the_size_of_the_paper(mlp(tmp_path, "paper-scale", {E4M3: followed([AWAY])}))
    assert found.holds is None
    assert found.what.startswith("interventions avert or delay the rise of the loss in E4M3, at the paper's size")
    assert found.numbers == (
        "1 seed; runs whose loss rose within 500 steps after each intervention: unperturbed 1 of 1 (after 204); "
        "perturbed 1 of 2 (after 210); FP32 0 of 1; weights bfloat16 1 of 1 (after 190)"
    )


def test_without_a_jump_there_is_nothing_to_avert(tmp_path):
    jumped = i07.at_the_size_of_the_paper(mlp(tmp_path, "paper-scale", {E4M3: followed([BACK])}))
    assert jumped.numbers == "not run"
    calm = i07.at_the_size_of_the_paper(mlp(tmp_path, "paper-scale", {E4M3: followed([CALM])}))
    assert "no rise to avert: none of 1 run had" in calm.numbers
