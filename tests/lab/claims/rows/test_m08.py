"""Tests of claim M8, the correlation of error and loss, on made-up tables."""

from __future__ import annotations

import json
import math

import pytest

from mxnum.lab.claims import (
    Verdict,
    reproduce,
)
from mxnum.lab.claims.rows import (
    m08,
)
from tests.lab.claims.made_up import arm, store


def operand(fmt, rule="floor", rounding="rne"):
    return {"format": fmt, "scale_rule": rule, "rounding": rounding, "block_size": None}


def recipe(fmt, rule, losses):
    precision = {name: operand(fmt, rule) for name in m08.OPERANDS}
    runs = [{"seed": seed, "curve": [loss] * 40} for seed, loss in enumerate(losses)]
    return {"experiment": {"precision": precision}, "runs": runs}


RECIPES = [
    ("mxfp8_e4m3", "floor"),
    ("mxfp6_e3m2", "even"),
    ("mxfp4_e2m1", "even"),
    ("mxfp4_e2m1", "floor"),
    ("mxfp4_e3m0", "floor"),
]


def decide(tmp_path, gaps):
    arms = {"recipe FP32": recipe(None, "floor", [1.0, 2.0]), "recipe bf16": recipe("bfloat16", "floor", [1.0, 2.0])}
    for (fmt, rule), gap in zip(RECIPES, gaps, strict=True):
        arms[f"recipe {fmt} {rule}"] = recipe(fmt, rule, [1 + gap, 2 * (1 + gap)])
    (tmp_path / "recipes.json").write_text(json.dumps({"arms": arms}))
    return reproduce(["M8"], results=tmp_path)["M8"]


def test_errors_that_rank_losses_hold(tmp_path):
    entry = decide(tmp_path, [0.01, 0.03, 0.2, 0.25, 0.5])
    assert entry.verdict == Verdict.UNDECIDED  # an MLP alone cannot decide the claim for language models
    first = entry.evidence.statements[0]
    assert first.holds
    assert "coefficient 1.00 over 5 recipes" in first.numbers
    assert "mxfp4_e3m0 floor 0.222, +50.0%" in first.numbers


def test_errors_that_do_not_rank_losses_fail(tmp_path):
    entry = decide(tmp_path, [0.5, 0.25, 0.2, 0.03, 0.01])
    assert entry.verdict == Verdict.NOT_REPRODUCED
    assert "coefficient -1.00" in entry.evidence.statements[0].numbers
    assert decide(tmp_path, [0.1] * 5).evidence.statements[0].holds is None


def test_recipes_of_two_studies_count_once_each(tmp_path):
    four_bits = {
        "recipe FP32": recipe(None, "floor", [1.0]),
        "recipe mxfp4_e2m1 floor": recipe("mxfp4_e2m1", "floor", [9.0]),
    }
    four_bits |= {f"recipe ceil {i}": recipe("mxfp4_e2m1", "ceil", [1.3 + i / 10]) for i in range(2)}
    mixed = recipe("mxfp4_e2m1", "ceil", [1.6])
    mixed["experiment"]["precision"]["gradients"] = operand("mxfp4_e3m0", "ceil", "sr")
    (tmp_path / "recipes-4bit.json").write_text(json.dumps({"arms": four_bits | {"recipe E2M1, E3M0": mixed}}))
    whole, inside, _ = decide(tmp_path, [0.01, 0.03, 0.2, 0.25, 0.5]).evidence.statements
    assert "over 8 recipes" in whole.numbers
    assert "mxfp4_e2m1 floor 0.115, +25.0%" in whole.numbers
    assert "over 4 recipes" in inside.numbers  # the recipe with E3M0 gradients is left out


def test_the_answer_tells_4_bits_apart():
    """Check that the answer reports separately whether 4-bit recipes show a correlation."""
    answer, number = m08._answer(0.98, [(0.5, -0.04), (0.45, 0.0)], None)
    assert "rho 0.98 on an MLP, 0.50 and 0.45 in language models" in answer
    assert "4-bit recipes no correlation is shown (rho -0.04 and 0.00)" in answer
    assert number == "rho 0.45; in 4 bits 0.00"
    assert "R-MSE correlates with the gap too" in m08._answer(0.98, [(0.5, 0.9)], True)[0]
    assert "the correlation is negative" in m08._answer(0.98, [(0.5, -0.9)], False)[0]
    assert m08._answer(0.98, [], None) == ("", "")
    assert m08._answer(0.98, [(0.5, None)], None) == ("", "")


def test_without_results_it_is_not_run(tmp_path):
    assert "run recipes" in reproduce(["M8"], results=tmp_path)["M8"].remark


def test_recipe_error_is_that_of_normal_numbers():
    even = {name: operand("mxfp4_e2m1", "even") for name in m08.OPERANDS}
    assert m08.recipe_error(even) == pytest.approx(math.sqrt(0.0125088), rel=1e-5)
    assert m08.recipe_error(even | {"gradients": operand(None)}) is None


def test_error_and_gap(context):
    rising = {f"recipe {k}": arm(0.01 * k, 0.05 * k) for k in range(1, 7)}
    alike = {f"E2M1 {k}": arm(0.01 * k, 0.2) for k in range(5)}
    assert m08.of_language_models(context) == ([], [])
    store(context, "recipes", {"float32": arm(0), **alike, **rising})
    (over_all, in_e2m1, in_4_bits), ((of_all, within),) = m08.of_language_models(context)
    assert over_all.holds
    assert in_e2m1.holds is in_4_bits.holds is None, "the errors of E2M1's recipes are equal"
    assert of_all > 0.5
    assert within is None


def test_within_4_bits_counts_every_4_bit_format(context):
    bits = {name: arm(0.01 * k, -0.1 * k) for k, name in enumerate(("E2M1", "E3M0", "INT4", "NVFP4", "E2M1 even"))}
    store(context, "recipes", {"float32": arm(0), "E4M3": arm(0.001, -1), **bits})
    statements, ranked = m08.of_language_models(context)
    assert statements[2].holds is False
    assert ranked[0][1] == pytest.approx(-1)
