"""Tests that the check of claim M1 gives the right verdict on made-up losses."""

from __future__ import annotations

import pytest

from mxnum.lab.claims.rows import (
    m01,
)
from tests.lab.claims.made_up import arm, ends, lm_recipes, mlp_recipes, store

pytest.importorskip("scipy", reason="the extra 'experiments' is not installed")


@pytest.mark.parametrize(
    ("factor", "spread", "holds"), [(0.9, 0.002, True), (1.1, 0.002, False), (1.0, 0.002, None), (0.95, 0.3, None)]
)
def test_m1_is_decided_seed_by_seed(tmp_path, factor, spread, holds):
    made = {"E2M1 even": ends(0.1), "E2M1 even, SR gradients": ends(0.1 * factor, spread)}
    found = m01.CLAIM.run(mlp_recipes(tmp_path, "recipes", made))
    assert [s.holds for s in found.statements] == [holds, None]
    assert not found.answer, "there is no answer without results of language models"


def test_m1_answers_which_rules_gain(tmp_path, context):
    nearest = {"E2M1": 0.1, "E2M1 even": 0.3, "E2M1 rceil": 0.3}
    stochastic = {"E2M1, SR gradients": 0.4, "E2M1 even, SR gradients": 0.1, "E2M1 rceil, SR gradients": 0.3}
    store(
        context,
        "recipes",
        {name: arm(gap, spread=1e-4) for name, gap in (nearest | stochastic | {"float32": 0}).items()},
    )
    made = {"E2M1 even": ends(0.1), "E2M1 even, SR gradients": ends(0.1)}
    found = m01.CLAIM.run(mlp_recipes(tmp_path, "recipes", made))
    assert "raises the loss under floor (+0.30)" in found.answer
    assert "lowers the loss under even (-0.20)" in found.answer
    assert "has an undecided effect under rceil (+0.00)" in found.answer
    assert "Undecided: the MLP, and the rounding of weights" in found.answer
    assert found.number == "floor +0.30 nats"


def test_stochastic_gradients(context):
    (nothing,) = m01.of_language_models(context)
    assert (nothing.holds, nothing.numbers) == (None, "not run")
    store(context, "recipes", lm_recipes())
    assert [s.holds for s in m01.of_language_models(context)] == [None, True, False]
    assert "p 0.023 after Holm" in m01.of_language_models(context)[1].numbers, "eight seeds, three tests"
