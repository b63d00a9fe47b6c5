"""M6: smaller blocks."""

from __future__ import annotations

from mxnum.lab.claims.claim import Claim, Context
from mxnum.lab.claims.evidence import Evidence, Statement, unanimous
from mxnum.lab.claims.tensors import configuration, error, tensors

CLAIM = Claim(
    "M6",
    "Smaller blocks",
    "Blocks of 16 instead of 32 elements lower the error of INT4 with the scale rule 'ceil' about 6.5 times as much "
    "as the error of E2M1 with 'even'.",
    "R-MSE is measured with both block sizes on synthetic weights, activations and gradients.",
    "The paper's own tensors would decide the factor of 6.5.",
)


@CLAIM.check
def _check(context: Context) -> Evidence:
    statements, ratios = [], []
    for tensor in tensors():
        context.tell(tensor)
        of_int4, of_e2m1 = (
            error(tensor, fmt, rule) - error(tensor, fmt, rule, block=(1, 16))
            for fmt, rule in (("mxint4", "ceil"), ("mxfp4_e2m1", "even"))
        )
        ratios.append(of_int4 / of_e2m1)
        what = (
            f"{tensor}: smaller blocks lower the error of INT4 with 'ceil' more than twice as much as the error of "
            "E2M1 with 'even'"
        )
        numbers = f"R-MSE falls by {of_int4:.4f} in INT4 and by {of_e2m1:.4f} in E2M1, a ratio of {ratios[-1]:.1f}"
        statements.append(Statement(what, of_e2m1 > 0 and ratios[-1] > 2, numbers))
    spread = f"{min(ratios):.1f} to {max(ratios):.1f} times"
    answer = (
        f"With blocks of 16 instead of 32, the error of INT4 falls {spread} as much as the error of E2M1 on synthetic "
        "tensors. The paper's factor of 6.47 is undecided, because the paper's tensors are not available."
    )
    answer *= unanimous(statements) is True
    statements.append(
        Statement(
            "on the paper's first weight tensor, the R-MSE of INT4 falls 6.47 times as much as the R-MSE of E2M1",
            None,
            f"{spread} on synthetic tensors",
        )
    )
    note = (
        "The fall of an error is the normalized R-MSE with blocks of 32 minus the normalized R-MSE with blocks of 16. "
        "The paper's factor is the fall in INT4 divided by the fall in E2M1."
    )
    return Evidence((), statements, note, configuration(blocks=[(1, 32), (1, 16)]), answer, spread)
