"""The correlation of error and loss, on tables made for the purpose."""

from __future__ import annotations

import json
import math

import pytest

from mxnum.lab.claims import Verdict, prediction, reproduce


def operand(fmt, rule="floor", rounding="rne"):
    return {"format": fmt, "scale_rule": rule, "rounding": rounding, "block_size": None}


def arm(fmt, rule, losses):
    precision = {name: operand(fmt, rule) for name in prediction.OPERANDS}
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
    arms = {"recipe FP32": arm(None, "floor", [1.0, 2.0]), "recipe bf16": arm("bfloat16", "floor", [1.0, 2.0])}
    for (fmt, rule), gap in zip(RECIPES, gaps, strict=True):
        arms[f"recipe {fmt} {rule}"] = arm(fmt, rule, [1 + gap, 2 * (1 + gap)])
    (tmp_path / "recipes.json").write_text(json.dumps({"arms": arms}))
    return reproduce(["M8"], results=tmp_path)["M8"]


def test_errors_that_predict(tmp_path):
    entry = decide(tmp_path, [0.01, 0.03, 0.2, 0.25, 0.5])
    assert entry.verdict == Verdict.UNDECIDED  # it cannot speak for language models
    first = entry.evidence.statements[0]
    assert first.holds
    assert "coefficient 1.00 over 5 recipes" in first.numbers
    assert "mxfp4_e3m0 floor 0.222, +50.0%" in first.numbers


def test_errors_that_do_not(tmp_path):
    entry = decide(tmp_path, [0.5, 0.25, 0.2, 0.03, 0.01])
    assert entry.verdict == Verdict.NOT_REPRODUCED
    assert "coefficient -1.00" in entry.evidence.statements[0].numbers
    assert decide(tmp_path, [0.1] * 5).evidence.statements[0].holds is None


def test_recipes_of_two_studies_count_once_each(tmp_path):
    four_bits = {"recipe FP32": arm(None, "floor", [1.0]), "recipe mxfp4_e2m1 floor": arm("mxfp4_e2m1", "floor", [9.0])}
    four_bits |= {f"recipe ceil {i}": arm("mxfp4_e2m1", "ceil", [1.3 + i / 10]) for i in range(2)}
    mixed = arm("mxfp4_e2m1", "ceil", [1.6])
    mixed["experiment"]["precision"]["gradients"] = operand("mxfp4_e3m0", "ceil", "sr")
    (tmp_path / "recipes-4bit.json").write_text(json.dumps({"arms": four_bits | {"recipe E2M1, E3M0": mixed}}))
    whole, inside, _ = decide(tmp_path, [0.01, 0.03, 0.2, 0.25, 0.5]).evidence.statements
    assert "over 8 recipes" in whole.numbers
    assert "mxfp4_e2m1 floor 0.115, +25.0%" in whole.numbers
    assert "over 4 recipes" in inside.numbers  # E3M0 in the gradients is another format


def test_the_answer_tells_4_bits_apart():
    """The coefficient over all recipes hides that within 4 bits there is none."""
    answer, number = prediction._answer(0.98, [(0.5, -0.04), (0.45, 0.0)], None)
    assert "rho 0.98 on an MLP, 0.50 and 0.45 in language models" in answer
    assert "4-bit recipes that is not shown (rho -0.04 and 0.00)" in answer
    assert number == "rho 0.45; within 4 bits 0.00"
    assert "it does, too" in prediction._answer(0.98, [(0.5, 0.9)], True)[0]
    assert "it does not" in prediction._answer(0.98, [(0.5, -0.9)], False)[0]
    assert prediction._answer(0.98, [], None) == ("", "")
    assert prediction._answer(0.98, [(0.5, None)], None) == ("", "")


def test_without_results_it_is_not_run(tmp_path):
    assert "run recipes" in reproduce(["M8"], results=tmp_path)["M8"].remark


def test_recipe_error_is_that_of_normal_numbers():
    assert prediction.operand_error(operand("mxfp4_e2m1", "even")) == pytest.approx(math.sqrt(0.0125088), rel=1e-5)
    assert prediction.operand_error(operand("bfloat16")) is None
    mixed = {name: operand("mxfp4_e2m1", "even") for name in prediction.OPERANDS} | {"gradients": operand(None)}
    assert prediction.recipe_error(mixed) is None
