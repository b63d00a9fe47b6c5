"""Tests that the check of claim M10 returns the right verdict for invented losses."""

from __future__ import annotations

import pytest

from mxnum.lab.claims import language_models
from mxnum.lab.claims.rows import m10
from tests.lab.claims.made_up import arm, lm_recipes, mlp_recipes, store

pytest.importorskip("scipy", reason="the extra 'experiments' is not installed")


def test_m10(tmp_path):
    losses = {"FP32": 1.0, "bf16": 1.01, "E4M3": 1.015, "E3M2": 1.5, "E2M1 floor": 1.6, "E2M1 even": 1.4}
    losses |= {"E2M1 even, SR gradients": 1.1, "E2M1 ceil, SR gradients": 1.5, "E3M0 ceil, SR gradients": 1.01}
    where = mlp_recipes(tmp_path, "recipes", losses)
    found = {s.what: s.holds for s in m10.CLAIM.run(where).statements}
    assert list(found.values()) == [True, False, True, False, None, None]
    losses = {"FP32": 1.0, "E2M1 floor": 1.6, "E2M1 ceil": 1.05, "E2M1 ceil, E3M0 ceil SR gradients": 1.7}
    mlp_recipes(tmp_path, "recipes-4bit", losses)
    assert [s.holds for s in m10.CLAIM.run(where).statements][5:] == [True, False, None]


def test_m10_answers_which_recipes_end_near_bfloat16(tmp_path, context):
    names = [*m10.NAMED, *m10.FURTHER, "E4M3", "E2M3", "E3M2", "E2M1", "bfloat16"]
    gaps = dict.fromkeys(names, 0.01) | {"E4M3": 0.1, "E2M1": 0.3, "float32": 0}
    store(context, "recipes", {name: arm(gap, spread=1e-4) for name, gap in gaps.items()})
    losses = {"FP32": 1.0, "E2M1 floor": 1.6, "E2M1 even, SR gradients": 1.1, "E2M1 ceil, SR gradients": 1.5}
    found = m10.CLAIM.run(mlp_recipes(tmp_path, "recipes", losses))
    assert "E2M1 even (+0.000)" in found.answer.split(", not with")[0]
    assert "not with E4M3 floor (+0.090). On MLPs, 1 of 2 recipes" in found.answer
    assert found.number == "E4M3 +0.090 nats"


def test_language_models(context):
    (nothing,) = m10.of_language_models(context)
    assert (nothing.holds, nothing.numbers) == (None, "not run")
    store(context, "recipes", lm_recipes())
    made = m10.of_language_models(context)
    found = {s.what.split(", ", 1)[1].split(":")[0]: s.holds for s in made}
    assert [found[name] for name in ("E4M3", "E2M3", "E3M2")] == [True, True, False]
    assert found["E2M1 even, SR gradients"]
    assert not found["E2M1 rceil, SR gradients"]
    store(context, "recipes-converged", lm_recipes())
    both = m10.of_language_models(context)
    models = language_models.RECIPES.values()
    assert [sum(s.what.startswith(model) for s in both) for model in models] == [len(made)] * 2
