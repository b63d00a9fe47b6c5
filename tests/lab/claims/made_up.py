"""Make up results: runs of the MLP, and arms of language models."""

from __future__ import annotations

import json
import math

import numpy as np

from mxnum.lab.claims import Context
from mxnum.lab.claims.rows import m10


def runs(first, zeta=None):
    """Return runs of at most 1000 steps that end 20 steps after they diverge, as in old studies."""
    made = []
    for seed, at in enumerate(first):
        steps = 1000 if at is None else at + 20
        values = zeta or [0.1 * (1 + seed / 100), 0.2, 1.9, 2.0 + seed / 100]
        made.append({"seed": seed, "diverged": at, "steps": steps, "last_loss": 1.0, "curve": []})
        made[-1] |= {"measured_at": [100, 200, 300, 390], "measured": {"zeta": values}}
    return made


def followed(spans, steps=1000):
    """Return runs of `steps` steps.

    `spans` lists the excursion (start, end) of each run, or None for a run without an excursion.
    """
    made = runs([None] * len(spans))
    for run, span in zip(made, spans, strict=True):
        excursions = [] if span is None else [{"start": span[0], "end": span[1], "base": 0.1, "peak": 9.0, "area": 1.0}]
        run |= {"steps": steps, "excursions": excursions, "final_loss": 0.1}
    return made


FORMATS = {"E4M3": "mxfp8_e4m3", "E2M1": "mxfp4_e2m1", "LN E2M1": "mxfp6_e2m3"}


def mlp(tmp_path, name, arms, width=64, **more):
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


def mlp_recipes(tmp_path, name, losses):
    """Store a study of recipes and return a context for the checks of claims.

    `losses` maps the number of a recipe to its runs, or to the final loss of its first run.
    """
    experiment = {"width": 32, "layers": 4, "batch": 64, "rate": 0.1, "steps": 10}
    experiment |= {"optimizer": "adam", "activation": "gelu"}
    arms = {
        f"recipe {n}": {"experiment": experiment, "runs": loss if isinstance(loss, list) else ends(loss)}
        for n, loss in losses.items()
    }
    (tmp_path / f"{name}.json").write_text(json.dumps({"study": name, "arms": arms}))
    return Context(tmp_path)


def ends(loss, spread=0.002, seeds=8):
    """Return runs whose final losses are `loss` * 1.3**seed with some noise."""
    rng = np.random.default_rng(int(loss * 1000))
    curves = [[9.0] * 32 + [loss * 1.3**seed * (1 + spread * rng.standard_normal())] * 8 for seed in range(seeds)]
    return [{"seed": seed, "curve": curve} for seed, curve in enumerate(curves)]


def arm(gap, error=None, spread=1e-3):
    """Return an arm of language models whose final losses are `gap` above those of `arm(0)`.

    The gap differs slightly from seed to seed.
    """
    measured = {} if error is None else {"error": [error, error]}
    evaluations = [2 + s / 10 + (gap and gap + spread * (s - 3.5) / 8) for s in range(8)]
    return {"runs": [{"seed": s, "evaluation": e, "measured": measured} for s, e in enumerate(evaluations)]}


def ending(*losses):
    """Return an arm of language models whose runs end at the given losses.

    The entropy, which is the lowest possible loss, is 1. A model that predicts all symbols as
    equally likely has loss 5.
    """
    found = [{"seed": s, "evaluation": loss, "entropy": [1, 1]} for s, loss in enumerate(losses)]
    return {"experiment": {"vocabulary": math.exp(5)}, "runs": found}


def table(arms, control="float32"):
    return {"control": control, "controls": {}, "arms": arms}


def store(context, name, arms):
    """Store a study of language models."""
    path = context.results / "language" / f"{name}.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(table(arms)))


def lm_recipes(**changes):
    """Return arms in which stochastic rounding of gradients helps only under the rule `even`."""
    arms = {"float32": arm(0), "bfloat16": arm(0.001), "E4M3": arm(0.01), "E2M3": arm(0.02), "E3M2": arm(0.04)}
    arms |= {"E4M3 forward only": arm(0.001), "E4M3 weights alone, bf16 activations": arm(0.009)}
    for rule, (nearest, drawn) in {"": (0.1, 0.1), " even": (0.1, 0.02), " rceil": (0.1, 0.2)}.items():
        arms |= {f"E2M1{rule}": arm(nearest, 0.2), f"E2M1{rule}, SR gradients": arm(drawn, 0.2)}
    for name in (*m10.NAMED, *m10.FURTHER):
        arms.setdefault(name, arm(0.03))
    return arms | changes
