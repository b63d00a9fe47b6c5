"""The rules of the checks on made-up results; what the stored ones say is in the ledger."""

from __future__ import annotations

import json
import shlex
from dataclasses import replace
from pathlib import Path

import pytest

from mxnum.lab.claims import training
from mxnum.lab.claims.evidence import Statement, Verdict
from mxnum.lab.claims.registry import Context, checks
from mxnum.lab.studies import interventions, studies

pytest.importorskip("scipy", reason="the extra 'experiments' is not installed")


def runs(first, zeta=None):
    """Runs of 1000 steps with the given first rises, at which they ended, as older studies stored them."""
    made = []
    for seed, at in enumerate(first):
        steps = 1000 if at is None else at + 20
        values = zeta or [0.1 * (1 + seed / 100), 0.2, 1.9, 2.0 + seed / 100]
        made.append({"seed": seed, "diverged": at, "steps": steps, "last_loss": 1.0, "curve": []})
        made[-1] |= {"measured_at": [100, 200, 300, 390], "measured": {"zeta": values}}
    return made


def followed(spans, steps=1000):
    """Runs that went on: of each its excursion as (start, end), or None."""
    made = runs([None] * len(spans))
    for run, span in zip(made, spans, strict=True):
        excursions = [] if span is None else [{"start": span[0], "end": span[1], "base": 0.1, "peak": 9.0, "area": 1.0}]
        run |= {"steps": steps, "excursions": excursions, "final_loss": 0.1}
    return made


FORMATS = {"E4M3": "mxfp8_e4m3", "E2M1": "mxfp4_e2m1", "LN E2M1": "mxfp6_e2m3"}


def context(tmp_path, name, arms, width=64, **more):
    experiment = {"width": width, "layers": 4, "batch": 256, "rate": 0.1, "steps": 1000}
    experiment |= {"optimizer": "adam", "activation": "gelu", "precision": {}}
    arms = {
        arm: {
            "experiment": experiment | ({"rate": float(arm.rpartition(" ")[2])} if ", rate" in arm else {}),
            "runs": r,
        }
        for arm, r in arms.items()
    }
    for arm, made in arms.items():
        made["experiment"] = made["experiment"] | {
            "precision": {"weights": {"format": FORMATS.get(arm.partition(",")[0])}}
        }
    (tmp_path / f"{name}.json").write_text(json.dumps({"study": name, "control": "FP32", "arms": arms} | more))
    return Context(tmp_path)


N = 12
TOY = "In the toy zeta, the relative error of the gradient, "
NEVER, ALWAYS = [None] * N, [400 + 10 * i for i in range(N)]


def test_i5(tmp_path):
    found = training.zeta_grows(context(tmp_path, "confirm", {"E2M1": runs(ALWAYS)}))
    assert [s.holds for s in found.statements] == [True, True, None]
    assert found.answer == TOY + "grows in E2M1 (factor 12.95). Undecided: growth at the paper's size."
    flat = context(tmp_path, "confirm", {"E2M1": runs(ALWAYS, [0.1, 0.1, 0.1, 0.1])})
    assert [s.holds for s in training.zeta_grows(flat).statements] == [None, False, None]
    shrinking = context(tmp_path, "confirm", {"E2M1": runs(ALWAYS, [1.0, 1.0, 0.9, 0.9])})
    assert [s.holds for s in training.zeta_grows(shrinking).statements] == [False, False, None]
    both = context(tmp_path, "confirm", {"E2M1": runs(ALWAYS, [1.0, 1.0, 0.9, 1.3]), "E4M3": runs(ALWAYS, [1.0] * 4)})
    told = training.zeta_grows(both)
    assert "grows in E2M1 (factor 1.10), shows no clear change in E4M3 (factor 1.00)" in told.answer
    assert told.number == "E4M3: factor 1.00, p 1", "the format that the paper speaks of"
    too_short = context(tmp_path, "confirm", {"E2M1": runs([150] * 8)})
    assert [s.holds for s in training.zeta_grows(too_short).statements] == [None]
    assert not training.zeta_grows(too_short).answer


def test_the_answer_of_i5_tells_what_is_undecided():
    order = Statement("E2M1: before the loss rises zeta is of order 2", None)
    answer, _ = training._of_growth({"E2M1": (False, 0.9, 0.001)}, [order])
    assert answer == TOY + "shrinks in E2M1 (factor 0.90). Undecided: whether it is of order 2 before a rise."
    answer, _ = training._of_growth({"E2M1": (True, 2.0, 0.001)}, [replace(order, holds=True)])
    assert answer == TOY + "grows in E2M1 (factor 2.00)."


def test_i8(tmp_path):
    arms = {f"{a}{s}, {k}": runs(NEVER) for a in ("gelu", "swiglu") for s in ("", ", no LN") for k in ("FP32", "E2M1")}
    arms |= {"gelu, E2M1": runs(ALWAYS), "swiglu, E2M1": runs([50 + i for i in range(N)])}
    arms |= {"gelu, no LN, FP32": runs(ALWAYS)}
    found = training.ablations(context(tmp_path, "ablations", arms))
    assert [s.holds for s in found.statements] == [True, True, True, None, None, None]
    assert "these are not excursions" in found.statements[3].numbers
    assert not found.answer, "some of it is decided"
    alike = training.ablations(context(tmp_path, "ablations", dict.fromkeys(arms, runs(NEVER))))
    assert "jumps in 0 of 12 runs with gelu (FP32 0) and in 0 of 12 runs with swiglu (FP32 0)." in alike.answer


def test_b3_in_a_real_run(tmp_path):
    pytest.importorskip("threadpoolctl", reason="the extra 'experiments' is not installed")
    found = training.dead_zone_in_a_run(Context(tmp_path))
    assert found.verdict == Verdict.REPRODUCED, [str(s) for s in found.statements]


def test_the_command_of_i7_makes_the_stored_result():
    root = Path(__file__).parents[3]
    command = checks()["I7"].command
    assert command in (root / "docs/lab/results/README.md").read_text()
    words = shlex.split(command.removeprefix("mxnum lab interventions"))
    chosen = dict(zip((word.removeprefix("--") for word in words[::2]), words[1::2], strict=True))
    plan = interventions.Plan(**{name: int(chosen[name]) for name in ("lead", "watch", "perturbed") if name in chosen})
    stored = json.loads((root / "docs/lab/results/interventions.json").read_text())
    assert (chosen["study"], chosen["base"]) == (stored["study"], stored["base"])
    assert vars(plan) == stored["plan"]
    seeds = range(studies.FIRST_SEED, studies.FIRST_SEED + int(chosen["seeds"]))
    runs = json.loads((root / "docs/lab/results/small.json").read_text())["arms"]["E2M1"]["runs"]
    diverged = [run["seed"] for run in runs if run["seed"] in seeds and run["diverged"] is not None]
    assert [seed["seed"] for seed in stored["seeds"]] == diverged


def test_i7(tmp_path):
    outcomes = {"unperturbed": 300, "perturbed 1": 320, "perturbed 2": 290, "LN in FP32": None, "FP32": 310}
    made = {k: {"diverged_after": v, "watched": 1500, "last_loss": 1.0} for k, v in outcomes.items()}
    seeds = [{"seed": s, "diverged": 900, "start": 600, "outcomes": made} for s in range(6)]
    table = {"study": "small", "base": "E2M1", "plan": {"watch": 1500}, "seeds": seeds}
    for count, holds in ((6, None), (9, None), (10, True)):  # fewer than ten decide nothing
        table["seeds"] = [seeds[0] | {"seed": s} for s in range(count)]
        (tmp_path / "interventions.json").write_text(json.dumps(table))
        found = training.actions(Context(tmp_path))
        assert [s.holds for s in found.statements] == [holds, None]
        assert (f"{count} seeds were tried (10 are needed)" in found.answer) is (holds is None)
