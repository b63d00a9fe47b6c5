"""The check of the claim that the error of tensors predicts the loss of training: M8."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from mxnum import formats
from mxnum.analysis import block_error
from mxnum.claims.evidence import Evidence, Statement
from mxnum.claims.registry import Context, check
from mxnum.dtypes import Array

#: The operands of the matrix products that are quantized, as fields of an experiment's precision.
OPERANDS = ("weights", "activations", "weights_backward", "activations_backward", "gradients")
#: Permutations of the test, and the level at which a correlation counts.
PERMUTATIONS, LEVEL, SEED = 20_000, 0.05, 20260101


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


def ranks(values: Array) -> Array:
    """Ranks from 1; equal values share the mean of theirs."""
    order = np.sort(values)
    return (np.searchsorted(order, values, "left") + np.searchsorted(order, values, "right") + 1) / 2


def rank_correlation(x: Array, y: Array) -> tuple[float, float]:
    """Spearman's coefficient, and the share of random orders that give as much: a one-sided p."""
    a, b = (r - r.mean() for r in (ranks(x), ranks(y)))
    size = math.sqrt(float((a * a).sum() * (b * b).sum()))
    rho = float((a * b).sum()) / size if size else math.nan
    rng = np.random.default_rng(SEED)
    shuffled = rng.permuted(np.tile(b, (PERMUTATIONS, 1)), axis=1) @ a / size if size else np.zeros(PERMUTATIONS)
    return rho, float((1 + np.count_nonzero(shuffled >= rho - 1e-12)) / (1 + PERMUTATIONS))


@check("M8", needs=("recipes.json",), command="mxnum experiments run recipes --results docs/results")
def error_predicts_loss(context: Context) -> Evidence:
    """Rank correlation of the R-MSE of a recipe's operands with its gap in loss to FP32, over recipes."""
    arms = context.json("recipes.json")["arms"]
    reference = {r["seed"]: r["last_loss"] for r in arms["recipe FP32"]["runs"]}
    error, gap, names = [], [], []
    for name, arm in arms.items():
        of_recipe = recipe_error(arm["experiment"]["precision"])
        gaps = [r["last_loss"] / reference[r["seed"]] - 1 for r in arm["runs"] if r["last_loss"] is not None]
        if of_recipe is not None and gaps:
            names.append(name.removeprefix("recipe "))
            error.append(of_recipe)
            gap.append(float(np.median(gaps)))
    listed = "; ".join(f"{n} {e:.3f}, {g:+.1%}" for n, e, g in zip(names, error, gap, strict=True))
    if len(names) < 4:
        what = Statement("the R-MSE of a recipe's operands correlates with its gap in loss", None, "too few recipes")
        return Evidence(statements=(what,))
    rho, p = rank_correlation(np.array(error), np.array(gap))
    statements = (
        Statement(
            "on a residual MLP the R-MSE of a recipe's operands correlates with its gap in loss",
            rho > 0 and p < LEVEL,
            f"Spearman's coefficient {rho:.2f} over {len(names)} recipes, p {p:.2g}: {listed}",
        ),
        Statement("the same for language models", None),
    )
    note = "R-MSE of normal numbers, root mean square over the operands; the gap is the median over seeds."
    configuration = {"study": "recipes", "permutations": PERMUTATIONS, "seed": SEED}
    return Evidence(statements=statements, note=note, configuration=configuration)
