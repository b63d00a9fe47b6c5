"""The rules of the checks on made-up results; what the stored ones say is in the ledger."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest

from mxnum.claims import training
from mxnum.claims.evidence import Verdict
from mxnum.claims.registry import Context, checks
from mxnum.experiments import interventions, studies

pytest.importorskip("scipy", reason="the extra 'experiments' is not installed")


def runs(first, zeta=None, loss=1.0):
    """Runs of 1000 steps with the given first divergences."""
    made = []
    for seed, at in enumerate(first):
        steps = 1000 if at is None else at + 20
        values = zeta or [0.1, 0.2, 1.0, 2.0]
        made.append({"seed": seed, "diverged": at, "steps": steps, "last_loss": loss, "curve": []})
        made[-1] |= {"measured_at": [100, 200, 300, 390], "measured": {"zeta": values}}
    return made


def context(tmp_path, name, arms):
    experiment = {"width": 64, "layers": 4, "batch": 256, "rate": 0.1, "steps": 1000}
    experiment |= {"optimizer": "adam", "activation": "gelu"}
    arms = {arm: {"experiment": experiment, "runs": made} for arm, made in arms.items()}
    (tmp_path / f"{name}.json").write_text(json.dumps({"study": name, "control": "FP32", "arms": arms}))
    return Context(tmp_path)


NEVER, ALWAYS = [None] * 8, [400 + 10 * i for i in range(8)]


def test_what_chance_could_do_is_not_decided(tmp_path):
    few, many = [400, 410, *[None] * 6], [400, 410, 420, 430, *[None] * 4]
    tables = {"FP32": runs(few), "E4M3": runs(NEVER), "E2M1": runs(many), "LN E2M1": runs([100] * 8)}
    made = context(tmp_path, "confirm", tables)
    assert [s.holds for s in training.runaway(made).statements] == [False, None, True, None]


def test_i5(tmp_path):
    growing = context(tmp_path, "confirm", {"E2M1": runs(ALWAYS)})
    found = training.zeta_grows(growing)
    assert [s.holds for s in found.statements] == [True, True, None]
    flat = context(tmp_path, "confirm", {"E2M1": runs(ALWAYS, [0.1, 0.1, 0.1, 0.1])})
    assert [s.holds for s in training.zeta_grows(flat).statements] == [False, False, None]
    too_short = context(tmp_path, "confirm", {"E2M1": runs([150] * 8)})
    assert [s.holds for s in training.zeta_grows(too_short).statements] == [None]


def test_i6(tmp_path):
    arms = {"FP32": runs(NEVER), "E4M3": runs(NEVER), "E2M1": runs(ALWAYS), "LN E2M1": runs(ALWAYS)}
    context(tmp_path, "small", {"FP32": runs(NEVER), "E4M3": runs(ALWAYS)})
    found = training.runaway(context(tmp_path, "confirm", arms))
    assert [s.holds for s in found.statements] == [False, True, True, True, None]
    assert found.verdict == Verdict.DIFFERS
    # FP32 diverging sooner is not the claim.
    arms = {"FP32": runs(ALWAYS), "E4M3": runs(NEVER)}
    assert not training.runaway(context(tmp_path, "confirm", arms)).statements[0].holds


def test_i8(tmp_path):
    arms = {f"{a}{s}, {k}": runs(NEVER) for a in ("gelu", "swiglu") for s in ("", ", no LN") for k in ("FP32", "E2M1")}
    arms |= {"gelu, E2M1": runs(ALWAYS), "swiglu, E2M1": runs([50 + i for i in range(8)])}
    found = training.ablations(context(tmp_path, "ablations", arms))
    assert [s.holds for s in found.statements] == [True, True, True, False, False, None]


def test_m10(tmp_path):
    losses = {"FP32": 1, "bf16": 1.01, "E4M3": 1.02, "E2M3": 1.02, "E3M2": 1.5, "E2M1 floor": 1.6, "E2M1 even": 1.4}
    losses |= {"E2M1 floor, SR gradients": 1.5, "E2M1 even, SR gradients": 1.2, "E2M1 ceil, SR gradients": 1.5}
    made = context(tmp_path, "recipes", {f"recipe {n}": runs(NEVER, loss=v) for n, v in losses.items()})
    assert [s.holds for s in training.recipes(made).statements] == [True, True, False, True, False, None]


@pytest.mark.parametrize(
    ("factors", "holds"), [((0.9, 0.91), True), ((1.1, 1.11), False), ((0.9, 1.1), None), ((0.99, 1.0), None)]
)
def test_m1_is_decided_seed_by_seed(tmp_path, factors, holds):
    nearest, other = runs(NEVER), runs(NEVER)
    for index, (a, b) in enumerate(zip(nearest, other, strict=True)):
        a["last_loss"] = 0.1 * 1.3**index
        b["last_loss"] = a["last_loss"] * factors[(index % 4) > 0 if holds is None else index % 2]
    other[0]["last_loss"] = None
    arms = {"recipe E2M1 even": nearest, "recipe E2M1 even, SR gradients": other}
    found = training.stochastic_gradients(context(tmp_path, "recipes", arms)).statements
    assert [s.holds for s in found] == [holds, None]


def test_b2(tmp_path):
    rows = [
        {"mean": -0.5, "deviation": 0, "common": False, "ratios": [2.0, 1.99], "predicted": 2.0},
        {"mean": 0, "deviation": 1, "common": True, "ratios": [0.9, 0.9], "predicted": 0.5},
        {"mean": 0, "deviation": 1, "common": False, "ratios": [0.9, 0.9], "predicted": 0.5},
    ]
    experiment = {"width": 1, "layers": 1, "batch": 1, "steps": 1}
    (tmp_path / "sgd-limits.json").write_text(json.dumps({"rows": rows, "experiment": experiment, "seeds": [1]}))
    found = training.noise_and_stability(Context(tmp_path))
    assert [c.agrees for c in found.comparisons] == [True] * 4 + [True, False]
    assert [s.holds for s in found.statements] == [True]


def test_b3_in_a_real_run(tmp_path):
    pytest.importorskip("threadpoolctl", reason="the extra 'experiments' is not installed")
    found = training.dead_zone_in_a_run(Context(tmp_path))
    assert found.verdict == Verdict.REPRODUCED, [str(s) for s in found.statements]


def test_b4(tmp_path):
    names = list(studies.get("factorial").arms)
    arms = {n: runs(NEVER if row[0] > 0 else ALWAYS) for n, row in zip(names, studies.fraction(), strict=True)}
    found = training.differences(context(tmp_path, "factorial", arms))
    assert found.verdict == Verdict.REPRODUCED
    assert found.statements[0].numbers.count("the code's way") == 1
    assert studies.DIFFERENCES[0] in found.statements[0].numbers
    assert all(name in found.note for name in studies.DIFFERENCES[1:])
    found = training.differences(context(tmp_path, "factorial", dict.fromkeys(names, runs(NEVER))))
    assert found.verdict == Verdict.UNDECIDED


def test_b6(tmp_path):
    arms = {f"FP32, rate {r:g}": runs(ALWAYS if r > 0.03 else NEVER) for r in studies.RATES}
    arms |= {f"E2M1, rate {r:g}": runs(ALWAYS if r > 0.015 else NEVER) for r in studies.RATES}
    arms |= {f"E4M3, rate {r:g}": runs(ALWAYS if r > 0.03 else NEVER) for r in studies.RATES}
    found = training.critical_rates(context(tmp_path, "critical-rate", arms))
    assert [s.holds for s in found.statements] == [True, False]


def test_the_command_of_i7_makes_the_stored_result():
    root = Path(__file__).parents[2]
    command = checks()["I7"].command
    assert command in (root / "docs/results/README.md").read_text()
    words = shlex.split(command.removeprefix("mxnum experiments interventions"))
    chosen = dict(zip((word.removeprefix("--") for word in words[::2]), words[1::2], strict=True))
    plan = interventions.Plan(**{name: int(chosen[name]) for name in ("lead", "watch", "perturbed") if name in chosen})
    stored = json.loads((root / "docs/results/interventions.json").read_text())
    assert (chosen["study"], chosen["base"]) == (stored["study"], stored["base"])
    assert vars(plan) == stored["plan"]
    seeds = range(studies.FIRST_SEED, studies.FIRST_SEED + int(chosen["seeds"]))
    runs = json.loads((root / "docs/results/small.json").read_text())["arms"]["E2M1"]["runs"]
    diverged = [run["seed"] for run in runs if run["seed"] in seeds and run["diverged"] is not None]
    assert [seed["seed"] for seed in stored["seeds"]] == diverged


def test_i7(tmp_path):
    outcomes = {"unperturbed": 300, "perturbed 1": 320, "perturbed 2": 290, "LN in FP32": None, "FP32": 310}
    made = {k: {"diverged_after": v, "watched": 1500, "last_loss": 1.0} for k, v in outcomes.items()}
    seeds = [{"seed": s, "diverged": 900, "start": 600, "outcomes": made} for s in range(6)]
    table = {"study": "small", "base": "E2M1", "plan": {"watch": 1500}, "seeds": seeds}
    (tmp_path / "interventions.json").write_text(json.dumps(table))
    found = training.actions(Context(tmp_path))
    assert [s.holds for s in found.statements] == [True, None]
