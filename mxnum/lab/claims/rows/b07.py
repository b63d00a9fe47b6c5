"""B7: stochastic rounding to NVFP4 is biased."""

from __future__ import annotations

from typing import Any

import numpy as np

from mxnum import shared_scale
from mxnum.analysis import block_error
from mxnum.lab.claims.claim import BY_FORMULA, Claim, Context
from mxnum.lab.claims.evidence import Comparison, Evidence, Statement, Whose, unanimous
from mxnum.lab.claims.samples import (
    BLOCKS_OF_16,
    LARGEST,
    OF_NVFP4,
    SEED,
    TENSOR_SCALE,
    kernels_agree,
    normal_blocks,
    values,
)  # fmt: skip

CLAIM = Claim(
    "B7",
    "Stochastic NVFP4 is biased",
    "Stochastic rounding to NVFP4 is biased: if the E4M3 scale is rounded down, the block's largest number "
    "saturates. For N(0, 1) the gain is 0.99657 and the mean squared error 0.0188. With a head-room of 17/16 before "
    "the scale is chosen, the gain is 1.00003 and the mean squared error 0.0236.",
    BY_FORMULA,
    whose=Whose.OURS,
)


@CLAIM.check
def _check(context: Context) -> Evidence:
    x = normal_blocks(BLOCKS_OF_16, 16)
    wide = x.astype(np.float64)
    given: dict[str, Any] = {"tensor_scale": TENSOR_SCALE}
    variants: dict[str, tuple[dict[str, Any], float, float]] = {
        "plain": ({}, 0.99657, 0.0188),
        "head-room 17/16": ({"headroom": "17/16"}, 1.00003, 0.0236),
    }
    comparisons, samples, found = [], [], []
    for i, (name, (arguments, gain, mse)) in enumerate(variants.items()):
        context.tell(name)
        exact = block_error("nvfp4", rounding="sr", **given, **arguments)
        scales = shared_scale(x * np.float32(17 / 16) if arguments else x, "nvfp4", **given)
        error = values(x, rounding="sr", seed=SEED, stream=i, scales=scales, **given) - wide
        comparisons += [
            Comparison(f"{name}: gain", gain, float(exact.gain), 5e-6),
            Comparison(f"{name}: mean squared error", mse, float(exact.mse), 5e-5),
        ]
        samples += [(float(exact.gain), 1 + (error * wide).mean(axis=1)), (float(exact.mse), (error**2).mean(axis=1))]
        found.append(exact)
    plain, ample = found
    up = block_error("nvfp4", rounding="sr", scale_rule="rceil", **given)
    gains = [float(block_error("nvfp4", rounding="sr", tensor_scale=a / 2688).gain) for a in np.linspace(3.5, 6, 26)]
    statements = [
        kernels_agree(samples),
        Statement(
            "the bias comes from numbers that saturate; with head-room, only numbers beyond the range of the tensor "
            "scale saturate",
            plain.gain < 0.999 and 1 - ample.gain < 1e-5,
            f"without head-room, {100 * plain.overflow:.2f}% of the numbers overflow and the gain is {plain.gain:.6f}; "
            f"with head-room, {100 * ample.overflow:.1g}% overflow and the gain is {ample.gain:.7f}",
        ),
        Statement(
            "rounding the scale up (rceil) also removes the bias, with a smaller error than with head-room",
            1 - up.gain < 1e-5 and up.mse < ample.mse,
            f"gain {up.gain:.7f}, mean squared error {up.mse:.5f}",
        ),
        Statement(
            "some tensor of N(0, 1) numbers has the claimed gain",
            min(gains) <= 0.99657 <= max(gains),
            f"the gain is {min(gains):.5f} to {max(gains):.5f} for a largest magnitude of 3.5 to 6",
        ),
    ]
    note = (
        "The claimed numbers come from a sample that was drawn for this ledger. The numbers found are exact for a "
        f"tensor whose largest magnitude is {LARGEST}. A gain above 1 is impossible, because saturation lowers the "
        "gain and stochastic rounding without saturation is unbiased."
    )
    answer = (
        "NVFP4 with stochastic rounding is biased by saturation, and head-room or rceil removes the bias. The "
        "claimed numbers came from a sample and differ from the exact numbers by up to "
        f"{max(abs(c.found - c.claimed) for c in comparisons):.5f}."
    )
    answer *= unanimous(statements) is True
    return Evidence(
        comparisons, statements, note, OF_NVFP4 | {"rounding": "sr"}, answer, f"gain {float(plain.gain):.5f}"
    )
