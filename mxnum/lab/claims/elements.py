"""Checks of the claims about single formats and blocks: I1 to I4, M9."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np

from mxnum import fake_quantize, formats, quantize
from mxnum.analysis import measure, overflow_region
from mxnum.lab.claims.evidence import Comparison, Evidence, Statement
from mxnum.lab.claims.judged import answered
from mxnum.lab.claims.registry import Context, check
from mxnum.lab.theory.gaps import relative_gaps
from mxnum.memory.dtypes import Array

_OCP = formats.names("e8m0")[:6]
#: Mantissas tried: the middle of each of so many equal parts of [1, 2).
_PARTS = 1 << 16


def mantissas() -> Array:
    """The middles of `_PARTS` equal parts of [1, 2), exact in float32."""
    return (1 + (2 * np.arange(_PARTS) + 1) / (2 * _PARTS)).astype(np.float32)


@check("I1")
def floor_scaled_blocks_clamp(context: Context) -> Evidence:
    """The five weights of the paper, and every mantissa as a block's largest value."""
    weights = np.array([0.897, 0.896, 0.884, 0.885, 0.904], np.float32)
    q = quantize(weights, "mxfp8_e4m3")
    scaled = weights.astype(np.float64) / 2.0 ** (int(q.scales[0]) - 127)
    claimed = (459.3, 458.8, 452.6, 453.1, 462.8)
    comparisons = [
        Comparison(f"{weight:g} after scaling", want, float(got), 0.05)
        for weight, want, got in zip(weights.tolist(), claimed, scaled, strict=True)
    ]
    comparisons += [
        Comparison(f"{weight:g} as an element", 448, float(value * 2.0 ** (127 - int(q.scales[0]))), 0)
        for weight, value in zip(weights.tolist(), q.dequantize("float64"), strict=True)
    ]
    statements = []
    for name in _OCP:
        element = formats.get(name).element
        f, threshold = mantissas(), element.max / 2.0**element.emax
        beyond = measure(f, name, block_size=1, per="block").beyond_max > 0
        right = np.array_equal(beyond, f > threshold)
        statements.append(Statement(f"{name}: blocks overflow exactly above the mantissa {threshold:g}", bool(right)))
    clamped = measure(weights, "mxfp8_e4m3").clamped
    note = (
        f"All five lie below 464, where rounding alone gives 448: {clamped} of them is clamped in the sense that an "
        "unbounded exponent would round higher. Weights in (0.90625, 1) are."
    )
    found = Evidence(tuple(comparisons), tuple(statements), note, {"mantissas": _PARTS, "format": "OCP formats"})
    by_rounding = "too" if clamped == 0 else f"for {weights.size - clamped} of them"
    answer = (
        f"All {weights.size} weights become 448, though rounding alone would give 448 {by_rounding}. In "
        f"{len(statements)} formats a block overflows exactly above the mantissa max/2^emax."
    )
    return answered(found, answer)


#: Shares of overflowing blocks in percent, uniform and log-uniform, and the largest relative clamp error in percent,
#: each with half a unit of the last digit claimed.
_OVERFLOW = {
    "mxfp8_e4m3": ((25, 0.5), (19.26, 0.005), (12.5, 0.05)),
    "mxfp8_e5m2": ((25, 0.5), (19.26, 0.005), (12.5, 0.05)),
    "mxfp6_e3m2": ((25, 0.5), (19.26, 0.005), (12.5, 0.05)),
    "mxfp6_e2m3": ((12.5, 0.05), (9.31, 0.005), (6.25, 0.005)),
    "mxfp4_e2m1": ((50, 0.5), (41.50, 0.005), (25, 0.5)),
    "mxint8": ((1.56, 0.005), (1.13, 0.005), (0.78, 0.005)),
}


@check("I2")
def overflowing_blocks(context: Context) -> Evidence:
    """Shares and worst errors over a grid of mantissas, whose parts have the measure of either distribution."""
    f = mantissas()
    log_measure = np.diff(np.log2(1 + np.arange(_PARTS + 1) / _PARTS))
    comparisons, as_derived = [], []
    for name, claimed in _OVERFLOW.items():
        got = measure(f, name, block_size=1, per="block")
        beyond = got.beyond_max > 0
        error = float((got.max_error / f)[beyond].max())
        found = (float(beyond.mean()), float(log_measure[beyond].sum()), error)
        titles = "overflow %, uniform", "overflow %, log-uniform", "largest relative clamp error %"
        for title, (want, tolerance), value in zip(titles, claimed, found, strict=True):
            comparisons.append(Comparison(f"{name}: {title}", want, 100 * value, tolerance))
        region = overflow_region(name)
        share = float(region.upper - region.lower)
        as_derived.append(found[0] == share and 0 <= float(region.worst_error) - error < 1 / _PARTS)
    derived = Statement(
        "uniform shares are those of the derived clamp region, and errors reach its worst one within the grid's step",
        all(as_derived),
        f"{sum(as_derived)} of {len(as_derived)} formats",
    )
    evidence = Evidence(tuple(comparisons), (derived,), configuration={"mantissas": _PARTS, "scale rule": "floor"})
    shares = {c.what: c.found for c in comparisons}
    answer = (
        f"All figures are met: of evenly spread mantissas {shares['mxfp8_e4m3: overflow %, uniform']:.0f} % overflow "
        f"in E4M3 and {shares['mxfp4_e2m1: overflow %, uniform']:.0f} % in E2M1."
    )
    return answered(evidence, answer)


@check("I3")
def gaps_of_e4m3(context: Context) -> Evidence:
    """All positive values in order, and the relative distance to the next."""
    values = sorted(v for v in formats.ELEMENTS["e4m3"].values() if v > 0 and math.isfinite(v))
    gaps = [100 * (b - a) / a for a, b in pairwise(values)]
    comparisons = [Comparison("positive codes", 126, len(values), 0)]
    claimed = (100, 50, 33.3, 25, 20, 16.7, 14.3)
    comparisons += [
        Comparison(f"gap {i} over the subnormals, %", want, got, 0.05)
        for i, (want, got) in enumerate(zip(claimed, gaps, strict=False), 1)
    ]
    binade = [gap for value, gap in zip(values, gaps, strict=False) if 1 <= value < 2]
    comparisons += [
        Comparison("first gap of a binade, %", 12.5, binade[0], 0.05),
        Comparison("last gap of a binade, %", 6.7, binade[-1], 0.05),
    ]
    falls = all(a > b for a, b in pairwise(binade))
    derived = [100 * float(gap) for gap in relative_gaps("e4m3")]
    statements = (
        Statement("the gap falls inside a binade", falls),
        Statement("all gaps are the derived ones", np.allclose(gaps, derived, rtol=1e-12, atol=0)),
    )
    answer = (
        f"E4M3 has {len(values)} positive codes, and inside a binade the relative gap falls from {binade[0]:.1f} to "
        f"{binade[-1]:.1f} %."
    )
    return answered(Evidence(tuple(comparisons), statements), answer)


@check("I4")
def multiplicative_bias(context: Context) -> Evidence:
    """The gradient through y = gamma * xhat with quantized weights, for clusters that clamp and that do not."""
    seed, width, blocks = 20260101, 32, 64
    rng = np.random.default_rng(seed)
    statements, same_sign, leftover = [], {}, {}
    for where, centre in (("clamped", 0.95), ("not clamped", 0.60)):
        gamma = (centre + 0.01 * rng.standard_normal(width * blocks)).astype(np.float32)
        upstream = rng.standard_normal((256, gamma.size))
        quantized = fake_quantize(gamma, "mxfp8_e4m3").astype(np.float64)
        exact = gamma.astype(np.float64)
        zeta = quantized / exact - 1
        gradient, changed = upstream * exact, upstream * quantized
        identity = np.allclose(changed, (1 + zeta) * gradient, rtol=1e-12, atol=0)
        statements.append(Statement(f"{where}: the changed gradient is (I + zeta) times the exact one", bool(identity)))
        by_block = zeta.reshape(blocks, width)
        same_sign[where] = float(np.mean(np.all(by_block < 0, axis=1) | np.all(by_block > 0, axis=1)))
        leftover[where] = float(abs(zeta.mean()) / np.abs(zeta).mean())
    statements += [
        Statement(
            "clamped: zeta has one sign across each block",
            same_sign["clamped"] == 1.0,
            f"{same_sign['clamped']:.1%} of the blocks",
        ),
        Statement(
            "not clamped: it has not",
            same_sign["not clamped"] == 0.0,
            f"{same_sign['not clamped']:.1%} of the blocks have one sign",
        ),
        Statement(
            "not clamped: rounding errors cancel in the mean, clamping errors do not",
            leftover["clamped"] > 0.99 and leftover["not clamped"] < 0.5,
            f"|mean zeta| / mean |zeta| is {leftover['clamped']:.3f} clamped, {leftover['not clamped']:.3f} not",
        ),
    ]
    evidence = Evidence(
        statements=tuple(statements),
        note="The gradient that reaches the normalized input of a layer norm, on the same upstream gradient.",
        configuration={"seed": seed, "weights": width * blocks, "deviation": 0.01, "centres": [0.95, 0.6]},
    )
    answer = (
        "The gradient becomes I + zeta times itself; clamping gives zeta one sign in every block, while rounding "
        f"errors cancel down to {leftover['not clamped']:.2f} of their mean size."
    )
    return answered(evidence, answer, f"mean of zeta / its size: {leftover['clamped']:.2f}")


@check("M9")
def bits_of_an_element(context: Context) -> Evidence:
    """The formula, the description of the format, and the bytes that a packed array takes."""
    fmt = formats.get("mxfp4_e2m1")
    comparisons = [
        Comparison("bits per element of MXFP4", 4.25, fmt.bits_per_element, 0),
        Comparison("times less than bfloat16", 3.76, 16 / fmt.bits_per_element, 0.005),
    ]
    x = np.ones((64, 1024), np.float32)
    for name in formats.names("e8m0"):
        for block in (16, 32):
            q = quantize(x, name, block_size=block)
            bits = formats.get(name).element.bits + 8 / block
            comparisons.append(
                Comparison(f"{name} in blocks of {block}: packed bits", bits, 8 * q.packed_nbytes / x.size, 0)
            )
    answer = (
        f"An element of MXFP4 costs {fmt.bits_per_element:g} bits, {16 / fmt.bits_per_element:.2f} times less than "
        f"bfloat16; packed arrays take the bytes of the formula in all {len(comparisons) - 2} cases."
    )
    return answered(Evidence(tuple(comparisons)), answer, f"{fmt.bits_per_element:g} bits")
