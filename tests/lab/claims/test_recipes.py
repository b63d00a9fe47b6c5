"""The rules of M1 and M10 on made-up losses."""

from __future__ import annotations

import json

import numpy as np
import pytest

from mxnum.lab.claims import recipes
from mxnum.lab.claims.registry import Context

pytest.importorskip("scipy", reason="the extra 'experiments' is not installed")


def runs(loss, spread=0.002, seeds=8):
    rng = np.random.default_rng(int(loss * 1000))
    curves = [[9.0] * 32 + [loss * 1.3**seed * (1 + spread * rng.standard_normal())] * 8 for seed in range(seeds)]
    return [{"seed": seed, "curve": curve} for seed, curve in enumerate(curves)]


def context(tmp_path, name, losses):
    experiment = {
        "width": 32,
        "layers": 4,
        "batch": 64,
        "rate": 0.1,
        "steps": 10,
        "optimizer": "adam",
        "activation": "gelu",
    }
    arms = {
        f"recipe {n}": {"experiment": experiment, "runs": r if isinstance(r, list) else runs(r)}
        for n, r in losses.items()
    }
    (tmp_path / f"{name}.json").write_text(json.dumps({"study": name, "arms": arms}))
    return Context(tmp_path)


def test_losses_are_averaged_over_the_last_looks():
    table = {"arms": {"a": {"runs": [{"seed": 3, "curve": [5.0] * 32 + [1.0, 4.0] * 4}, {"seed": 4, "curve": [None]}]}}}
    assert recipes.final_logs(table, "a") == {3: pytest.approx(np.log(2))}


@pytest.mark.parametrize(
    ("factor", "spread", "holds"), [(0.9, 0.002, True), (1.1, 0.002, False), (1.0, 0.002, None), (0.95, 0.3, None)]
)
def test_m1_is_decided_seed_by_seed(tmp_path, factor, spread, holds):
    made = {"E2M1 even": runs(0.1), "E2M1 even, SR gradients": runs(0.1 * factor, spread)}
    found = recipes.stochastic_gradients(context(tmp_path, "recipes", made))
    assert [s.holds for s in found.statements] == [holds, None]
    assert not found.answer, "the answer is about language models"


def test_m10(tmp_path):
    losses = {"FP32": 1.0, "bf16": 1.01, "E4M3": 1.015, "E3M2": 1.5, "E2M1 floor": 1.6, "E2M1 even": 1.4}
    losses |= {"E2M1 even, SR gradients": 1.1, "E2M1 ceil, SR gradients": 1.5, "E3M0 ceil, SR gradients": 1.01}
    where = context(tmp_path, "recipes", losses)
    found = {s.what: s.holds for s in recipes.recipes(where).statements}
    assert list(found.values()) == [True, False, True, False, None, None]
    losses = {"FP32": 1.0, "E2M1 floor": 1.6, "E2M1 ceil": 1.05, "E2M1 ceil, E3M0 ceil SR gradients": 1.7}
    context(tmp_path, "recipes-4bit", losses)
    assert [s.holds for s in recipes.recipes(where).statements][5:] == [True, False, None]


def language_models(tmp_path, **gaps):
    """A stored study of language models whose arms end above float32 by these gaps, a little apart by seed."""
    (tmp_path / "language").mkdir()
    ends = {name: [gap + 1e-4 * seed for seed in range(8)] for name, gap in gaps.items()} | {"float32": [0.0] * 8}
    arms = {
        name: {"runs": [{"seed": seed, "evaluation": 2 + gap, "measured": {}} for seed, gap in enumerate(found)]}
        for name, found in ends.items()
    }
    table = {"control": "float32", "controls": {}, "arms": arms}
    (tmp_path / "language" / "recipes.json").write_text(json.dumps(table))


def test_m1_answers_which_rules_gain(tmp_path):
    nearest = {"E2M1": 0.1, "E2M1 even": 0.3, "E2M1 rceil": 0.3}
    stochastic = {"E2M1, SR gradients": 0.4, "E2M1 even, SR gradients": 0.1, "E2M1 rceil, SR gradients": 0.3}
    language_models(tmp_path, **nearest, **stochastic)
    made = {"E2M1 even": runs(0.1), "E2M1 even, SR gradients": runs(0.1)}
    found = recipes.stochastic_gradients(context(tmp_path, "recipes", made))
    assert "raise it under floor (+0.30)" in found.answer
    assert "lower the loss under even (-0.20)" in found.answer
    assert "are undecided under rceil (+0.00)" in found.answer
    assert "Undecided: the MLP, and rounding of weights" in found.answer
    assert found.number == "floor +0.30 nats"


def test_m10_answers_which_recipes_end_near_bfloat16(tmp_path):
    names = [*recipes.decoders._NAMED, *recipes.decoders._FURTHER, "E4M3", "E2M3", "E3M2", "E2M1", "bfloat16"]
    language_models(tmp_path, **dict.fromkeys(names, 0.01) | {"E4M3": 0.1, "E2M1": 0.3})
    losses = {"FP32": 1.0, "E2M1 floor": 1.6, "E2M1 even, SR gradients": 1.1, "E2M1 ceil, SR gradients": 1.5}
    found = recipes.recipes(context(tmp_path, "recipes", losses))
    assert "E2M1 even (+0.000)" in found.answer.split(";")[0]
    assert "not in E4M3 floor (+0.090). On an MLP 1 of 2 4-bit recipes" in found.answer
    assert found.number == "E4M3 +0.090 nats"
