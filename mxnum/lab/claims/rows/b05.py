"""B5: unbiased stochastic rounding to MXFP4."""

from __future__ import annotations

from typing import Any

import numpy as np

from mxnum import fake_quantize, shared_scale
from mxnum.analysis import block_error
from mxnum.lab.claims.claim import BY_FORMULA, Claim, Context
from mxnum.lab.claims.evidence import Comparison, Evidence, Whose, answered
from mxnum.lab.claims.samples import CONFIGURATION, SEED, kernels_agree, normal_blocks
from mxnum.memory.dtypes import Array

CLAIM = Claim(
    "B5",
    "Unbiased stochastic rounding to MXFP4",
    "MXFP4 under floor with stochastic rounding is biased by clamping. A factor removes the bias: after the scale "
    "is chosen for x, x is multiplied by 3/4 before rounding and by 4/3 afterwards. For N(0, 1) in blocks of 32, "
    "the gain is 0.98958 and the variance 0.02351 without the factor. With the factor, the gain is 1.00000 and the "
    "variance 0.02818. If x is multiplied by 3/4 before the scale is chosen, the gain is 0.98205.",
    BY_FORMULA,
    whose=Whose.OURS,
)


@CLAIM.check
def _check(context: Context) -> Evidence:
    x, fmt = normal_blocks(), "mxfp4_e2m1"
    smaller, given = x * np.float32(0.75), {"scales": shared_scale(x, fmt)}
    # For each variant: the numbers to quantize, the options, the factor for the result, the
    # arguments of the formula, the claimed gain and the claimed variance.
    variants: dict[str, tuple[Array, dict[str, Any], float, dict[str, Any], float, float | None]] = {
        "plain": (x, {}, 1.0, {}, 0.98958, 0.02351),
        "scale from x, then 3/4": (smaller, given, 4 / 3, {"prescale": "3/4"}, 1.0, 0.02818),
        "3/4 before the scale": (smaller, {}, 4 / 3, {"sigma": 0.75}, 0.98205, None),
    }
    comparisons, samples, wide = [], [], x.astype(np.float64)
    for i, (name, (values, options, back, arguments, gain, variance)) in enumerate(variants.items()):
        context.tell(name)
        exact = block_error(fmt, rounding="sr", **arguments)
        first, second = (
            back * fake_quantize(values, fmt, rounding="sr", seed=SEED, stream=2 * i + j, **options).astype(np.float64)
            for j in (0, 1)
        )
        comparisons.append(Comparison(f"{name}: gain", gain, float(exact.gain), 5e-6))
        # The gain E[Q x] / E[x x] equals 1 + E[(Q - x) x], because E[x x] = 1; the second form has
        # less noise.
        samples.append((float(exact.gain), 1 + ((first - wide) * wide).mean(axis=1)))
        if variance is not None:
            comparisons.append(Comparison(f"{name}: variance", variance, float(exact.noise), 5e-6))
            samples.append(
                (float(exact.noise), ((first - second) ** 2).mean(axis=1) / 2)
            )  # the variance of Q is half of the mean squared difference of two independent roundings
    configuration = CONFIGURATION | {"rounding": "sr", "scale rule": "floor"}
    note = "The factor and its derivation are from arXiv 2502.20586; the numbers are this project's."
    gain, variance, mended, raised, _ = (c.found for c in comparisons)
    answer = (
        f"MXFP4 under floor with stochastic rounding has a gain of {gain:.4f}. A factor of 3/4, applied after the "
        f"scale is chosen, changes the gain to {mended:.4f} and raises the variance from {variance:.4f} to "
        f"{raised:.4f}."
    )
    evidence = Evidence(comparisons, [kernels_agree(samples)], note, configuration)
    return answered(evidence, answer, f"gain {gain:.5f}")
