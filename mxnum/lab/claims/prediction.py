"""The check of the claim that the error of tensors predicts the loss of training: M8."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from mxnum import formats
from mxnum.analysis import block_error
from mxnum.lab.claims import decoders
from mxnum.lab.claims.evidence import Evidence, ours
from mxnum.lab.claims.judged import correlates, rho, unanimous
from mxnum.lab.claims.recipes import gaps
from mxnum.lab.claims.registry import Context, check

#: The operands of the matrix products that are quantized, as fields of an experiment's precision.
OPERANDS = ("weights", "activations", "weights_backward", "activations_backward", "gradients")


def operand_error(operand: dict[str, Any]) -> float | None:
    """Normalized R-MSE of an operand of normal numbers; None for one that is not in an MX format."""
    if operand["format"] not in formats.names("e8m0"):
        return None
    options = {
        "scale_rule": operand["scale_rule"],
        "rounding": operand["rounding"],
        "block_size": operand["block_size"],
    }
    return math.sqrt(float(block_error(operand["format"], **options).mse))


def recipe_error(precision: dict[str, Any]) -> float | None:
    """Root of the mean over the operands of their squared errors; None unless all are in MX formats."""
    errors = [operand_error(precision[name]) for name in OPERANDS]
    known = [e for e in errors if e is not None]
    return math.sqrt(sum(e * e for e in known) / len(known)) if len(known) == len(errors) else None


@check("M8", needs=("recipes.json",), command="mxnum lab run recipes --results docs/lab/results")
def error_predicts_loss(context: Context) -> Evidence:
    """Rank correlation of the R-MSE of a recipe's operands with its gap in loss to FP32, over recipes."""
    studies = [name for name in ("recipes", "recipes-4bit") if context.has(f"{name}.json")]
    points: dict[str, tuple[float, float]] = {}
    in_e2m1 = set()
    for study in studies:
        table = context.json(f"{study}.json")
        for name, arm in table["arms"].items():
            precision, short = arm["experiment"]["precision"], name.removeprefix("recipe ")
            of_recipe, found = recipe_error(precision), gaps(table, name, "recipe FP32")
            if of_recipe is not None and found and short not in points:
                points[short] = of_recipe, float(np.mean(found))
                if all(precision[operand]["format"] == "mxfp4_e2m1" for operand in OPERANDS):
                    in_e2m1.add(short)
    of_models = decoders.error_and_gap(context)
    statements = (
        correlates(
            "on a residual MLP the R-MSE of a recipe's operands correlates with its gap in loss", points, _percent
        ),
        *ours(
            correlates(
                "so it does within the recipes in E2M1, where formats do not differ",
                {name: point for name, point in points.items() if name in in_e2m1},
                _percent,
            )
        ),
        *of_models,
    )
    note = (
        "R-MSE of normal numbers, root mean square over the operands; the gap is the mean over seeds of the logarithm "
        "of the losses' ratio over the last looks. Between formats the number of bits orders both."
    )
    within = unanimous(s for s in of_models if "in 4 bits" in s.what)
    answer, number = _answer(rho(points), decoders.ranked(context), within)
    return Evidence(statements=statements, note=note, configuration={"studies": studies}, answer=answer, number=number)


def _answer(
    of_mlp: float | None, of_models: list[tuple[float | None, float | None]], within: bool | None
) -> tuple[str, str]:
    """Return what the coefficients say, over all recipes and within 4 bits, and those of the last models."""
    if of_mlp is None or not of_models or None in [value for pair in of_models for value in pair]:
        return "", ""
    every, four = (" and ".join(f"{pair[side]:.2f}" for pair in of_models) for side in (0, 1))
    words = {True: "it does, too", False: "it does not", None: "that is not shown"}
    answer = (
        f"Over all recipes, of 4 to 8 bits, R-MSE ranks the gap (rho {of_mlp:.2f} on an MLP, {every} in language "
        f"models). Among the language models' 4-bit recipes {words[within]} (rho {four})."
    )
    return answer, f"rho {of_models[-1][0]:.2f}; within 4 bits {of_models[-1][1]:.2f}"


def _percent(gap: float) -> str:
    return f"{math.expm1(gap):+.1%}"
