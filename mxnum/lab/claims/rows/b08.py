"""B8: how the block size affects the error under E4M3 scales."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np

from mxnum.analysis import block_error
from mxnum.lab.claims.claim import Claim, Context
from mxnum.lab.claims.evidence import Evidence, Statement, answered
from mxnum.lab.claims.samples import BLOCKS_OF_16, LARGEST, OF_NVFP4, kernels_agree, normal_blocks, values

CLAIM = Claim(
    "B8",
    "Block sizes under E4M3 scales",
    "One paper claims that smaller blocks with E4M3 scales can raise the error of narrow tensors (tensors with a small "
    "standard deviation), and that UE5M3 scales prevent this (arXiv 2601.19026). Another paper claims that underflow "
    "and a naive choice of scale cause the larger error (arXiv 2605.08565).",
    "`mxnum.analysis` computes the exact mean squared error for blocks of 8 to 128 numbers and seventeen standard "
    "deviations. Two random samples must match this error.",
)
#: Block sizes, and the standard deviations of the tensors as exponents of two.
SIZES, WIDTHS = (8, 16, 32, 64, 128), tuple(range(-16, 1))
FORMATS = {"E4M3": "e2m1:scale=e4m3", "UE5M3": "e2m1:scale=ue5m3", "E4M3 and a tensor scale": "nvfp4"}


def relative_errors(fmt: str, sigma: float) -> list[float]:
    """Return the exact mean squared error divided by sigma**2, for each block size."""
    given = {"tensor_scale": float(np.float32(LARGEST * sigma / 2688))} if fmt == "nvfp4" else {}
    return [float(block_error(fmt, sigma=sigma, block_size=k, **given).mse) / sigma**2 for k in SIZES]  # type: ignore[arg-type]


@CLAIM.check
def _check(context: Context) -> Evidence:
    found: dict[str, dict[int, list[float]]] = {}
    for name, fmt in FORMATS.items():
        context.tell(name)
        found[name] = {e: relative_errors(fmt, 2.0**e) for e in WIDTHS}
    # The standard deviations, as exponents of two, at which a smaller block has a larger error.
    e4m3, ue5m3, with_tensor_scale = (
        [e for e in WIDTHS if any(a > b for a, b in pairwise(errors[e]))] for errors in found.values()
    )
    # A block's scale is subnormal if the block's largest number is below 6 * 2**-6. A subnormal
    # scale is most likely in blocks of 8.
    usual = [e for e in WIDTHS if math.erf(6 * 2.0**-6 / 2.0**e / math.sqrt(2)) ** 8 < 1e-3]
    small = 2.0**-8
    wide = normal_blocks(BLOCKS_OF_16, 16)[: BLOCKS_OF_16 // 4].astype(np.float64) * small
    x = wide.astype(np.float32).reshape(-1, 128)
    samples = []
    for k in (8, 128):
        q = values(x, f"e2m1:block={k},scale=e4m3")
        exact = relative_errors("e2m1:scale=e4m3", small)[SIZES.index(k)]
        samples.append((exact, ((q - x) ** 2).mean(axis=1) / small**2))
    worst, least = found["E4M3"][-8][0], found["E4M3"][-8][-1]
    most, scaled = max(e4m3, default=0), found["E4M3 and a tensor scale"][-8]
    statements = [
        kernels_agree(samples),
        Statement(
            "with E4M3 scales and no tensor scale, smaller blocks have larger errors on some narrow tensors",
            bool(e4m3),
            f"for sigma = 2^{most} and below; at 2^-8 the error is {worst:.3f} sigma^2 for blocks of 8, {least:.4f} "
            f"for 128",
        ),
        Statement(
            "smaller blocks never have larger errors if fewer than one block in 1000 has a subnormal scale, so "
            "underflow of the scale is the cause",
            not set(e4m3) & set(usual),
            f"sigma = 2^{min(usual)} and above",
        ),
        Statement(
            "with a tensor scale, smaller blocks never have larger errors",
            not with_tensor_scale,
            f"at every sigma the error is {scaled[0]:.5f} sigma^2 for blocks of 8, {scaled[1]:.5f} for 16, "
            f"{scaled[4]:.5f} for 128",
        ),
        Statement(
            "the largest sigma at which smaller blocks have larger errors is 2^8 times smaller with UE5M3 scales than "
            "with E4M3 scales",
            bool(ue5m3) and max(ue5m3) == most - 8,
            f"sigma = 2^{max(ue5m3)} and below",
        ),
    ]
    note = (
        "Both papers are right: smaller blocks can have larger errors, underflow of the scale is the cause, and a "
        "tensor scale prevents the underflow. With UE5M3 scales, smaller blocks have larger errors only on extremely "
        "narrow tensors, which hardly occur."
    )
    answer = (
        f"With E4M3 scales and no tensor scale, smaller blocks have larger errors at sigma 2^{most} and below, "
        "because the scale underflows. A tensor scale removes the effect. With UE5M3 scales, the effect begins at a "
        "sigma that is 2^8 times smaller."
    )
    evidence = Evidence((), statements, note, OF_NVFP4 | {"sizes": list(SIZES), "rounding": "rne"})
    return answered(evidence, answer, f"{worst:.3f} against {least:.3f} sigma^2")
