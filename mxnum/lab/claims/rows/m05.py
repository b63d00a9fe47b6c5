"""M5: asymmetric scaling, with an offset for each block."""

from __future__ import annotations

from mxnum.lab.claims.claim import Claim, Context
from mxnum.lab.claims.evidence import Evidence, Statement
from mxnum.lab.claims.tensors import configuration, error, tensors

CLAIM = Claim(
    "M5",
    "Asymmetric scaling",
    "A float16 offset for each block lowers the error of INT4 by a factor of up to 1.36, and the error of E2M1 "
    "only a little.",
    "R-MSE is measured with and without an offset on synthetic weights, activations and gradients.",
    "The paper's own tensors would show whether the factor reaches 1.36.",
)


@CLAIM.check
def _check(context: Context) -> Evidence:
    statements, factors = [], {}
    for tensor in tensors():
        context.tell(tensor)
        of_int4, of_e2m1 = (
            error(tensor, fmt, rule) / error(tensor, fmt, rule, offset="float16")
            for fmt, rule in (("mxint4", "ceil"), ("mxfp4_e2m1", "even"))
        )
        factors[tensor] = of_int4
        numbers = f"the error is divided by {of_int4:.3f} for INT4 and by {of_e2m1:.3f} for E2M1"
        statements.append(Statement(f"{tensor}: an offset lowers the error of INT4 (rule ceil)", of_int4 > 1, numbers))
        statements.append(
            Statement(
                f"{tensor}: an offset lowers the error of E2M1 (rule even) by a smaller factor than that of INT4",
                of_e2m1 < of_int4,
            )
        )
    largest = max(factors.values())
    numbers = f"at most {largest:.3f} on the synthetic tensors"
    statements.append(Statement("the factor reaches 1.36 on the paper's tensors", None, numbers))
    note = (
        "An offset moves zero off the grid, so it raises the error of tensors with many small values. An offset costs "
        "half a "
        "bit per element."
    )
    helped, hurt = (" and ".join(t for t, factor in factors.items() if (factor > 1) is so) for so in (True, False))
    answer = (
        f"An offset lowers INT4's error on {helped or 'no tensor'}, by a factor of at most {largest:.2f}"
        + f", and raises it on {hurt}" * bool(hurt)
        + ". Undecided: whether the factor reaches 1.36 on the paper's own tensors."
    )
    return Evidence((), statements, note, configuration(offset="float16"), answer, f"factor {largest:.2f}")
