"""M3: how many elements overflow."""

from __future__ import annotations

from mxnum.analysis import block_error
from mxnum.lab.claims import tensors
from mxnum.lab.claims.claim import BY_FORMULA, Claim, Context
from mxnum.lab.claims.evidence import Comparison, Evidence, Statement, Whose
from mxnum.lab.claims.samples import CONFIGURATION, FORMATS, by_block, kernels_agree

CLAIM = Claim(
    "M3",
    "How many elements overflow",
    "On the paper's gradients 0.9 % of the elements overflow in E2M1 under 'even', and 3.69 % in E3M0. The paper does "
    "not treat N(0, 1) numbers. For such numbers in blocks of 32, the percentages under floor / even are: E4M3 0.8574 "
    "/ 0.5482, E3M2 0.8574 / 0.3052, E2M3 0.3724 / 0.1585, E2M1 2.3434 / 0.6221, E3M0 10.958 / 4.158. Under ceil and "
    "rceil, no element overflows.",
    BY_FORMULA,
    "Only the paper's own gradients can show whether the numbers 0.9 % and 3.69 % are right.",
)
#: For each element format: the claimed percentages under floor and even, and half a unit of their
#: last digit, which is the tolerance of the comparison.
FIGURES = {
    "E4M3": (0.8574, 0.5482, 5e-5), "E3M2": (0.8574, 0.3052, 5e-5), "E2M3": (0.3724, 0.1585, 5e-5),
    "E2M1": (2.3434, 0.6221, 5e-5), "E3M0": (10.958, 4.158, 5e-4),
}  # fmt: skip


@CLAIM.check
def _check(context: Context) -> Evidence:
    comparisons, samples = [], []
    for fmt, (floor, even, digit) in FIGURES.items():
        context.tell(fmt)
        for rule, want in (("floor", floor), ("even", even), ("ceil", 0.0), ("rceil", 0.0)):
            exact = float(block_error(FORMATS[fmt], scale_rule=rule).overflow)
            within = digit if want else 0
            comparisons.append(
                Comparison(f"{fmt} {rule}, % of elements that overflow", want, 100 * exact, within, Whose.KEPT)
            )
            samples.append((exact, by_block(FORMATS[fmt], rule).beyond_max_rate))
    e2m1, e3m0 = (100 * tensors.found("gradients", FORMATS[f], "even").beyond_max_rate for f in ("E2M1", "E3M0"))
    on_gradients = Statement(
        "on the paper's gradients under 'even', 0.9 % of the elements overflow in E2M1 and 3.69 % in E3M0",
        None,
        f"{e2m1:.2f} % and {e3m0:.2f} % on synthetic lognormal gradients with a spread of our choice",
    )
    kernels = kernels_agree(samples)
    answer = (
        f"For N(0, 1) numbers, the formula and the kernels agree in all {len(samples)} cases. Undecided: the paper's "
        f""
        "percentages 0.9 and 3.69 on its own gradients, which are not available."
    )
    answer *= all(c.agrees for c in comparisons) and kernels.holds is True
    number = f"ours {e2m1:.2f} and {e3m0:.2f} %"
    return Evidence(comparisons, [kernels, on_gradients], "", CONFIGURATION, answer, number)
