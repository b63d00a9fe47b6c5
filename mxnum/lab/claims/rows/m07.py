"""M7: blocks of 16 along rows, along columns, and in tiles."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from mxnum.lab.claims import language_models
from mxnum.lab.claims.claim import Claim, Context
from mxnum.lab.claims.evidence import Evidence, Statement
from mxnum.lab.claims.tensors import configuration, error, tensors

CLAIM = Claim(
    "M7",
    "Block organisation",
    "Blocks have the shape 1x16 (rows), 16x1 (columns) or 4x4 (tiles). Columns lower the error of activations whose "
    "size depends on the token, but not the error of weights or gradients; tiles are a compromise.",
    "R-MSE is measured for each shape of blocks on synthetic weights, gradients, and activations whose size "
    "depends on the token.",
    "Activations of a large language model would decide the claim.",
    takes=("language/organisation.json",),
)
ORGANISATIONS = {"row": (1, 16), "column": (16, 1), "tile": (4, 4)}
FORMAT, RULE = "mxfp4_e2m1", "even"


@CLAIM.check
def _check(context: Context) -> Evidence:
    statements, found = [], {}
    for tensor in tensors():
        context.tell(tensor)
        errors = {name: error(tensor, FORMAT, RULE, block=block) for name, block in ORGANISATIONS.items()}
        found[tensor] = row, column, tile = tuple(errors.values())
        if tensor == "activations":
            what = (
                "activations: blocks within a token (rows here) have a smaller error than blocks across tokens "
                "(columns here)"
            )
            statements.append(Statement(what, row < 0.95 * column, _listed(errors)))
            statements.append(
                Statement(
                    "activations: the error of tiles lies between the errors of rows and columns", row < tile < column
                )
            )
        else:
            what = f"{tensor}: the block shape changes the error by less than 1 %"
            statements.append(Statement(what, max(errors.values()) / min(errors.values()) - 1 < 0.01, _listed(errors)))
    words = "the paper says that activations for a given token are stored in a column"
    statements.append(Statement("the paper's columns lie within a token, as rows do here", True, words))
    of_models = list(of_language_models(context))
    note = "Explanation: a block should lie along the direction in which magnitudes vary least."
    row, column, _ = found["activations"]
    inside = [s.holds for s in of_models if s.what.startswith("activations")]
    of_ours = (
        f"; blocks within a token are best in {sum(map(bool, inside))} of {len(inside)} small language models"
        if inside
        else ""
    )
    answer = (
        f"On synthetic activations, blocks within a token have {100 * abs(1 - row / column):.0f} % "
        f"{'less' if row < column else 'more'} error than blocks across tokens{of_ours}. Undecided: large models."
    )
    number, how = f"R-MSE {row:.3f} against {column:.3f}", configuration(format=FORMAT, scale_rule=RULE)
    return Evidence((), [*statements, *of_models], note, how, answer, number)


def _listed(errors: dict[str, float]) -> str:
    return "R-MSE " + ", ".join(f"{name} {value:.4f}" for name, value in errors.items())


def of_language_models(context: Context) -> Iterator[Statement]:
    """Judge how the shape of the blocks changes the error of tensors of trained models."""
    table = language_models.study(context, "organisation") or {"arms": {}}
    for arm, found in table["arms"].items():
        kept = [run["organisations"] for run in found["runs"]]
        for kind in ("activations", "gradients", "weights"):
            mean = {each: float(np.mean([run[kind][each] for run in kept])) for each in kept[0][kind]}
            least = min(mean.values())
            if kind == "activations":
                what, holds = "blocks within a token are best", mean["row"] == least
            else:
                what, holds = "the block shape changes the error by less than 1 %", max(mean.values()) < 1.01 * least
            yield Statement(f"{kind} of a small language model ({arm}): {what}", holds, _listed(mean))
