"""M8: the rounding error of tensors predicts the training loss."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from mxnum import formats
from mxnum.analysis import block_error
from mxnum.lab.claims import language_models, mlp_runs
from mxnum.lab.claims.claim import BY_TRAINING, Claim, Context
from mxnum.lab.claims.evidence import LEVEL, Evidence, Statement, ours, unanimous
from mxnum.lab.studies.statistics import rank_correlation

CLAIM = Claim(
    "M8",
    "R-MSE predicts the loss",
    "The normalized R-MSE of quantized tensors correlates with the gap in training loss.",
    BY_TRAINING,
    "The final losses of runs in many formats would decide the claim. Runs of language models would show how strong "
    "the correlation is.",
    needs=("recipes.json",),
    takes=language_models.RECIPE_FILES,
    command=mlp_runs.command("recipes"),
)
#: The fields of a recipe that say how to quantize the operands of matrix products.
OPERANDS = ("weights", "activations", "weights_backward", "activations_backward", "gradients")
Points = dict[str, tuple[float, float]]


@CLAIM.check
def _check(context: Context) -> Evidence:
    studies = [name for name in ("recipes", "recipes-4bit") if context.has(f"{name}.json")]
    points: Points = {}
    in_e2m1: Points = {}
    for study in studies:
        table = context.json(f"{study}.json")
        for name, arm in table["arms"].items():
            precision, short = arm["experiment"]["precision"], name.removeprefix("recipe ")
            error, found = recipe_error(precision), mlp_runs.gaps(table, name, "recipe FP32")
            if error is not None and found and short not in points:
                points[short] = error, float(np.mean(found))
                if all(precision[operand]["format"] == "mxfp4_e2m1" for operand in OPERANDS):
                    in_e2m1[short] = points[short]
    what = "on a residual MLP the R-MSE of a recipe's operands correlates with the recipe's gap in loss"
    within = "on a residual MLP, if only recipes in E2M1 are compared, R-MSE correlates with the gap"
    of_models, ranked = of_language_models(context)
    statements = [
        correlates(what, points, _percent),
        *ours(correlates(within, in_e2m1, _percent)),
        *(of_models or [Statement("R-MSE correlates with the gap in language models", None, "not run")]),
    ]
    note = (
        "On the MLP, R-MSE is the root mean square of the operands' errors on N(0, 1) numbers. The gap is the "
        "logarithm of the ratio of final losses, averaged over seeds. Formats with more bits have a smaller R-MSE "
        "and a smaller gap."
    )
    in_4_bits = unanimous(s for s in of_models if "in 4 bits" in s.what)
    return Evidence((), statements, note, {"studies": studies}, *_answer(rho(points), ranked, in_4_bits))


def _percent(gap: float) -> str:
    return f"{math.expm1(gap):+.1%}"


def rho(points: Points) -> float | None:
    """Return Spearman's coefficient of points; None if there are too few points."""
    found = rank_correlation((name, *pair) for name, pair in points.items())
    return None if found is None else found.rho


def correlates(what: str, points: Points, text_of: Callable[[float], str] = "{:+.3f}".format) -> Statement:
    """Judge, by rank correlation, if a recipe's gap rises with the recipe's error.

    Each point is the pair (error, gap) of a recipe.
    """
    found = rank_correlation((name, *pair) for name, pair in points.items())
    if found is None:
        return Statement(what, None, "too few recipes")
    listed = "; ".join(f"{name} {error:.3f}, {text_of(gap)}" for name, (error, gap) in points.items())
    numbers = f"Spearman's coefficient {found.rho:.2f} over {found.points} recipes, two-sided p {found.p:.2g}: {listed}"
    return Statement(what, found.rho > 0 if found.p < LEVEL else None, numbers)


def recipe_error(precision: dict[str, Any]) -> float | None:
    """Return the root mean square of the operands' errors on N(0, 1) numbers.

    Return None unless all operands are in MX formats.
    """
    operands = [precision[name] for name in OPERANDS]
    if any(each["format"] not in formats.names("e8m0") for each in operands):
        return None
    how = ("scale_rule", "rounding", "block_size")
    errors = [float(block_error(each["format"], **{name: each[name] for name in how}).mse) for each in operands]
    return math.sqrt(sum(errors) / len(errors))


def _answer(
    of_mlp: float | None, of_models: list[tuple[float | None, float | None]], within: bool | None
) -> tuple[str, str]:
    """Return the texts `answer` and `number` of the evidence.

    The answer states the coefficients over all recipes and over the 4-bit recipes. Both texts are
    empty if a coefficient is missing.
    """
    if of_mlp is None or not of_models or None in [value for pair in of_models for value in pair]:
        return "", ""
    every, four = (" and ".join(f"{pair[side]:.2f}" for pair in of_models) for side in (0, 1))
    words = {
        True: "R-MSE correlates with the gap too",
        False: "the correlation is negative",
        None: "no correlation is shown",
    }
    answer = (
        f"Over all recipes, of 4 to 8 bits, R-MSE correlates with the gap (rho {of_mlp:.2f} on an MLP, {every} in "
        f"language models). Among the language models' 4-bit recipes {words[within]} (rho {four})."
    )
    return answer, f"rho {of_models[-1][0]:.2f}; in 4 bits {of_models[-1][1]:.2f}"


def of_language_models(context: Context) -> tuple[list[Statement], list[tuple[float | None, float | None]]]:
    """Judge if the operands' error correlates with the gap, in each study of recipes.

    Return the statements, and the correlations over all recipes and over the recipes in 4 bits.
    """
    made: list[Statement] = []
    ranked = []
    for model, table in language_models.of_recipes(context):
        points = _points(table)
        in_e2m1 = {arm: point for arm, point in points.items() if arm.startswith("E2M1") and "E3M0" not in arm}
        in_4_bits = {arm: points[arm] for arm in points if arm.startswith(("E2M1", "E3M0", "INT4", "NVFP4"))}
        made += [
            correlates(f"{model}: the measured error of a recipe's operands correlates with the gap", points),
            *ours(
                correlates(
                    f"{model}: if only recipes in E2M1 are compared, the error correlates with the gap", in_e2m1
                ),
                correlates(
                    f"{model}: if only recipes in 4 bits are compared, the error correlates with the gap", in_4_bits
                ),
            ),
        ]
        ranked.append((rho(points), rho(in_4_bits)))
    return made, ranked


def _points(table: dict[str, Any]) -> Points:
    """Return the operands' error and the gap of each recipe whose error was measured."""
    points = {}
    for arm, found in table["arms"].items():
        errors = [np.mean(run["measured"]["error"]) for run in found["runs"] if run["measured"].get("error")]
        if errors and arm != language_models.PLAIN:
            points[arm] = float(np.mean(errors)), language_models.mean_gap(table, arm)
    return points
