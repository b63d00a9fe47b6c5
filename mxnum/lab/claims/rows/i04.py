"""I4: quantized layer-norm weights multiply the gradient by a biased factor."""

from __future__ import annotations

import numpy as np

from mxnum import fake_quantize
from mxnum.lab.claims.claim import Claim, Context
from mxnum.lab.claims.evidence import Evidence, Statement, answered

CLAIM = Claim(
    "I4",
    "Quantized layer-norm weights multiply the gradient by a biased factor",
    "Quantized layer-norm weights multiply the gradient by (I + zeta), where zeta is the relative error of the "
    "weights. In a clamped block, zeta has the same sign for every weight. In other blocks, rounding errors cancel.",
    "The gradient through a layer norm with quantized weights is compared with (I + zeta) times the exact gradient, "
    "for "
    "weights clustered in the clamped range and elsewhere.",
)


@CLAIM.check
def _check(context: Context) -> Evidence:
    seed, width, blocks = 20260101, 32, 64
    rng = np.random.default_rng(seed)
    statements, same_sign, leftover = [], {}, {}
    for where, centre in (("clamped", 0.95), ("not clamped", 0.60)):
        gamma = (centre + 0.01 * rng.standard_normal(width * blocks)).astype(np.float32)
        upstream = rng.standard_normal((256, gamma.size))
        quantized = fake_quantize(gamma, "mxfp8_e4m3").astype(np.float64)
        exact = gamma.astype(np.float64)
        zeta = quantized / exact - 1
        identity = np.allclose(upstream * quantized, (1 + zeta) * (upstream * exact), rtol=1e-12, atol=0)
        statements.append(
            Statement(f"if weights are {where}, the gradient is (I + zeta) times the exact gradient", identity)
        )
        by_block = zeta.reshape(blocks, width)
        same_sign[where] = float(np.mean(np.all(by_block < 0, axis=1) | np.all(by_block > 0, axis=1)))
        leftover[where] = float(abs(zeta.mean()) / np.abs(zeta).mean())
    (one, other), (left, cancels) = same_sign.values(), leftover.values()
    statements += [
        Statement(
            "if weights are clamped, zeta has one sign across each block", one == 1.0, f"{one:.1%} of the blocks"
        ),
        Statement(
            "if weights are not clamped, zeta has positive and negative values in each block",
            other == 0.0,
            f"zeta has one sign in {other:.1%} of the blocks",
        ),
        Statement(
            "rounding errors cancel in the mean, clamping errors do not",
            left > 0.99 and cancels < 0.5,
            f"|mean zeta| / mean |zeta| is {left:.3f} for clamped blocks, {cancels:.3f} for blocks that are not "
            "clamped",
        ),
    ]
    evidence = Evidence(
        statements=statements,
        note="Gradients with respect to the normalized input of a layer norm are compared, for one output gradient.",
        configuration={"seed": seed, "weights": width * blocks, "deviation": 0.01, "centres": [0.95, 0.6]},
    )
    answer = (
        "Weights with a relative error zeta multiply the gradient by I + zeta. In every clamped block, zeta has "
        "the same sign for every weight. In other blocks, rounding errors partly cancel: |mean zeta| is "
        f"{cancels:.2f} of mean |zeta|."
    )
    return answered(evidence, answer, f"|mean zeta| / mean |zeta|: {left:.2f}")
