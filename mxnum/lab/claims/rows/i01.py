"""I1: blocks with scales of the floor rule are clamped."""

from __future__ import annotations

from typing import Any

import numpy as np

from mxnum import formats, plots, quantize
from mxnum.analysis import measure
from mxnum.lab.claims.claim import Claim, Context
from mxnum.lab.claims.evidence import Comparison, Evidence, Statement, answered
from mxnum.lab.claims.samples import PARTS, mantissas

CLAIM = Claim(
    "I1",
    "Floor-scaled blocks clamp",
    "Under the floor rule, a block is clamped if the mantissa of its largest number is above max/2^emax. Here max "
    "is the element format's largest value, and emax is the exponent of max. In E4M3, the layer-norm weights 0.897, "
    "0.896, 0.884, 0.885 and 0.904 are 459.3, 458.8, 452.6, 453.1 and 462.8 after scaling, and all become 448.",
    "The kernels quantize the five weights. They also quantize single numbers whose mantissas form a fine grid.",
)


@CLAIM.check
def _check(context: Context) -> Evidence:
    weights = np.array([0.897, 0.896, 0.884, 0.885, 0.904], np.float32)
    q = quantize(weights, "mxfp8_e4m3")
    scale, read = 2.0 ** (int(q.scales[0]) - 127), q.dequantize("float64")
    claimed = (459.3, 458.8, 452.6, 453.1, 462.8)
    comparisons = [
        Comparison(f"{weight:g} after scaling", want, weight / scale, 0.05)
        for weight, want in zip(weights.tolist(), claimed, strict=True)
    ]
    comparisons += [
        Comparison(f"{weight:g} as an element", 448, float(value / scale), 0)
        for weight, value in zip(weights.tolist(), read, strict=True)
    ]
    statements, f = [], mantissas()
    for name in formats.names("e8m0")[:6]:
        element = formats.get(name).element
        threshold = element.max / 2.0**element.emax
        beyond = measure(f, name, block_size=1, per="block").beyond_max > 0
        what = f"{name}: a block overflows exactly if the mantissa of its largest number is above {threshold:g}"
        statements.append(Statement(what, np.array_equal(beyond, f > threshold)))
    clamped = measure(weights, "mxfp8_e4m3").clamped
    note = (
        "All five scaled weights lie below 464, so rounding alone gives 448. A weight is clamped in the strict "
        f"sense if it would round to a value above 448 in a format with larger exponents. {clamped} of the five "
        "weights are clamped in this sense. A weight between 0.90625 and 1 would be clamped in this sense."
    )
    by_rounding = "too" if clamped == 0 else f"for {weights.size - clamped} of them"
    answer = (
        f"All {weights.size} weights become 448; rounding without clamping would give 448 {by_rounding}. In "
        f"{len(statements)} formats a block overflows exactly if the mantissa of its largest number is above "
        "max/2^emax."
    )
    return answered(Evidence(comparisons, statements, note, {"mantissas": PARTS, "format": "OCP formats"}), answer)


@CLAIM.figure()
def _draw(ax: Any, context: Context) -> str:
    plots.sawtooth("mxfp8_e4m3", binades=1, ax=ax)
    ax.set_title("")
    return (
        "The error of an E4M3 block whose elements all have the same value, under each scale rule. If the mantissa is "
        "above "
        "1.75, the elements overflow under the floor rule, and every value becomes 1.75."
    )
