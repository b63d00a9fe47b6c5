"""B9: "four over six", a scale rule that chooses the better of two scales for each block."""

from __future__ import annotations

from typing import Any

import numpy as np

from mxnum import quantize, shared_scale
from mxnum.analysis import block_error
from mxnum.lab.claims.claim import Claim, Context
from mxnum.lab.claims.evidence import Comparison, Evidence, Statement, answered
from mxnum.lab.claims.samples import (
    BLOCKS_OF_16,
    OF_NVFP4,
    SIGMA,
    TENSOR_SCALE,
    kernels_agree,
    mean,
    normal_blocks,
    values,
)  # fmt: skip

CLAIM = Claim(
    "B9",
    "Four over six",
    "Four over six tries two scales, which map a block's largest number to 6 or to 4, and takes the better one. "
    "The mean squared error of N(0, 1) in NVFP4 falls from 0.00904 to 0.00756, and in 45 % of blocks the largest "
    "number becomes 4 (arXiv 2512.02010).",
    "The error with one scale comes from a formula. The other numbers come from a sample of N(0, 1) numbers.",
)


@CLAIM.check
def _check(context: Context) -> Evidence:
    x = normal_blocks(BLOCKS_OF_16, 16)
    wide = x.astype(np.float64)
    given: dict[str, Any] = {"tensor_scale": TENSOR_SCALE}
    exact = float(block_error("nvfp4", **given).mse)
    plain = ((values(x, **given) - wide) ** 2).mean(axis=1)
    chosen = {}
    for name in ("squared", "absolute"):
        context.tell(name)
        q = quantize(x, "nvfp4", scale_rule=f"four_over_six_{name}", **given)
        gained = ((q.dequantize("float64") - wide) ** 2).mean(axis=1) - plain
        takes_four = (np.asarray(q.scales) != shared_scale(x, "nvfp4", **given)).ravel().astype(float)
        chosen[name] = mean(gained), mean(takes_four)
    (gained, bar), (share, share_bar) = chosen["squared"]
    (absolute, _), (absolute_share, _) = chosen["absolute"]
    comparisons = [
        Comparison("mean squared error, one scale", 0.00904, exact, 5e-6),
        Comparison("mean squared error, two scales chosen by squared error", 0.00756, exact + gained, 5e-6 + bar),
        Comparison("% of blocks whose largest number becomes 4", 45, 100 * share, 0.5 + 100 * share_bar),
    ]
    better = Statement(
        "choosing by the squared error gives a smaller mean squared error than choosing by the absolute error",
        gained < absolute,
        f"choosing by absolute error gives a mean squared error of {exact + absolute:.5f}; the largest number becomes "
        f"4 in {100 * absolute_share:.1f}% of blocks",
    )
    note = (
        "One sample shows how much four over six lowers the error, for both ways of choosing a scale. The error bar "
        f"is {SIGMA} standard errors."
    )
    answer = (
        f"Taking the better of two scales lowers the mean squared error of NVFP4 from {exact:.5f} to "
        f"{exact + gained:.5f}; in {100 * share:.0f} % of blocks the largest number becomes 4."
    )
    statements = [kernels_agree([(exact, plain)]), better]
    evidence = Evidence(comparisons, statements, note, OF_NVFP4 | {"rounding": "rne"})
    return answered(evidence, answer, f"{exact + gained:.5f}")
