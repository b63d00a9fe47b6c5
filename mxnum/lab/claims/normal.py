"""Checks of the claims about normal numbers in blocks of 32, by formula and through the real kernels: M3, M4, B5."""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import numpy as np

from mxnum import fake_quantize, shared_scale
from mxnum.analysis import Statistics, block_error, measure
from mxnum.lab.claims.design import found
from mxnum.lab.claims.evidence import Comparison, Evidence, Statement, Whose
from mxnum.lab.claims.judged import answered
from mxnum.lab.claims.registry import Context, check
from mxnum.memory.dtypes import Array

SEED = 20260101
BLOCKS = 1 << 16
#: Standard errors that a figure may lie from the one claimed; a fair sample exceeds it once in 1.7 million.
SIGMA = 5

_FORMATS = {
    "E4M3": "mxfp8_e4m3", "E3M2": "mxfp6_e3m2", "E2M3": "mxfp6_e2m3", "E2M1": "mxfp4_e2m1", "E3M0": "mxfp4_e3m0",
}  # fmt: skip
#: Percent under floor and even, and half a unit of the last digit.
_OVERFLOW = {
    "E4M3": (0.8574, 0.5482, 5e-5),
    "E3M2": (0.8574, 0.3052, 5e-5),
    "E2M3": (0.3724, 0.1585, 5e-5),
    "E2M1": (2.3434, 0.6221, 5e-5),
    "E3M0": (10.958, 4.158, 5e-4),
}
#: Under floor, even, ceil and rceil, and half a unit of the last digit.
_MSE = {
    "E4M3": ((0.000862, 0.000762, 0.000705, 0.000705), 5e-7),
    "E3M2": ((0.002911, 0.002791, 0.002791, 0.002791), 5e-7),
    "E2M3": ((0.000805, 0.000797, 0.001329, 0.000802), 5e-7),
    "E2M1": ((0.013219, 0.012509, 0.020788, 0.013313), 5e-7),
    "E3M0": ((0.04943, 0.03778, 0.03779, 0.03779), 5e-6),
}
_CONFIGURATION = {"seed": SEED, "blocks": BLOCKS, "block": 32, "rounding": "rne", "error bar": f"{SIGMA} sigma"}


@cache
def normal_blocks() -> Array:
    """One block of N(0, 1) a row, in float32."""
    return np.random.default_rng(SEED).standard_normal((BLOCKS, 32)).astype(np.float32)


@cache
def by_block(fmt: str, rule: str) -> Statistics:
    """Statistics of each block."""
    return measure(normal_blocks(), _FORMATS[fmt], scale_rule=rule, per=0)


def mean(values: Array) -> tuple[float, float]:
    """The mean of independent values, and `SIGMA` of its standard errors."""
    return float(values.mean()), SIGMA * float(values.std()) / math.sqrt(len(values))


def kernels_agree(samples: list[tuple[float, Array]]) -> Statement:
    """Whether the means of independent samples lie within `SIGMA` standard errors of what a formula says."""
    distances = []
    for expected, values in samples:
        value, bar = mean(values)
        distances.append(SIGMA * abs(value - expected) / bar if bar else (0.0 if value == expected else math.inf))
    close = sum(d <= SIGMA for d in distances)
    return Statement(
        f"the kernels agree with the formula within {SIGMA} standard errors",
        close == len(distances),
        f"{close} of {len(distances)} figures, the farthest {max(distances):.1f} standard errors away",
        Whose.OURS,
    )


@check("M3")
def overflow_rates(context: Context) -> Evidence:
    """The share of elements beyond the largest value before rounding."""
    comparisons, samples = [], []
    for fmt, (floor, even, digit) in _OVERFLOW.items():
        context.tell(fmt)
        for rule, want in (("floor", floor), ("even", even), ("ceil", 0.0), ("rceil", 0.0)):
            exact = float(block_error(_FORMATS[fmt], scale_rule=rule).overflow)
            within = digit if want else 0
            comparisons.append(Comparison(f"{fmt} {rule}, % of elements", want, 100 * exact, within, Whose.KEPT))
            samples.append((exact, by_block(fmt, rule).beyond_max_rate))
    on_gradients = {fmt: 100 * found("gradients", _FORMATS[fmt], "even").beyond_max_rate for fmt in ("E2M1", "E3M0")}
    statement = Statement(
        "0.9 % for E2M1 and 3.69 % for E3M0 on the paper's gradients under even",
        None,
        "{E2M1:.2f} % and {E3M0:.2f} % on lognormal ones, whose spread is our choice".format(**on_gradients),
    )
    agree = all(c.agrees for c in comparisons) and kernels_agree(samples).holds
    answer = (
        f"For normal numbers formula and kernels agree in all {len(samples)} cases. Undecided: the paper's 0.9 and "
        "3.69 % on its own gradients, which are not at hand."
    )
    return Evidence(
        tuple(comparisons), (kernels_agree(samples), statement), configuration=_CONFIGURATION,
        answer=answer if agree else "", number="ours {E2M1:.2f} and {E3M0:.2f} %".format(**on_gradients),
    )  # fmt: skip


@check("M4")
def mean_squared_errors(context: Context) -> Evidence:
    """Mean squared error under each rule."""
    comparisons, samples = [], []
    for fmt, (claimed, digit) in _MSE.items():
        context.tell(fmt)
        for rule, want in zip(("floor", "even", "ceil", "rceil"), claimed, strict=True):
            exact = float(block_error(_FORMATS[fmt], scale_rule=rule).mse)
            comparisons.append(Comparison(f"{fmt} {rule}", want, exact, digit, Whose.KEPT))
            samples.append((exact, by_block(fmt, rule).mse))
    note = "Figures of a quadrature, which stood here up to version 0.2, were off by up to 0.00002, and 0.0001 in E3M0."
    least = {c.what: c.found for c in sorted(comparisons, key=lambda c: -c.found) if c.what.startswith("E2M1")}
    answer = (
        f"The kernels reach the derived mean squared error in all {len(samples)} cases; E2M1's is least with "
        f"{list(least)[-1].removeprefix('E2M1 ')}."
    )
    return answered(Evidence(tuple(comparisons), (kernels_agree(samples),), note, _CONFIGURATION), answer)


@check("B5")
def unbiased_stochastic_rounding(context: Context) -> Evidence:
    """Gain and conditional variance of floor MXFP4 with stochastic rounding, plain and with the factor 3/4."""
    x, fmt = normal_blocks(), "mxfp4_e2m1"
    smaller = x * np.float32(0.75)
    given = {"scales": shared_scale(x, fmt)}
    # What is quantized, how, the factor back, the formula's arguments, and the claimed gain and variance.
    variants: tuple[tuple[str, Array, dict[str, Any], float, dict[str, Any], float, float | None], ...] = (
        ("plain", x, {}, 1.0, {}, 0.98958, 0.02351),
        ("scale from x, then 3/4", smaller, given, 4 / 3, {"prescale": "3/4"}, 1.0, 0.02818),
        ("3/4 before the scale", smaller, {}, 4 / 3, {"sigma": 0.75}, 0.98205, None),
    )
    comparisons, samples = [], []
    wide = x.astype(np.float64)
    for i, (name, values, options, back, arguments, gain, variance) in enumerate(variants):
        context.tell(name)
        exact = block_error(fmt, rounding="sr", **arguments)
        first, second = (
            back * fake_quantize(values, fmt, rounding="sr", seed=SEED, stream=2 * i + j, **options).astype(np.float64)
            for j in (0, 1)
        )
        comparisons.append(Comparison(f"{name}: gain", gain, float(exact.gain), 5e-6))
        # E[Q x] / E[x x], of which E[x x] = 1 makes 1 + E[(Q - x) x] the less noisy form.
        samples.append((float(exact.gain), 1 + ((first - wide) * wide).mean(axis=1)))
        if variance is not None:
            comparisons.append(Comparison(f"{name}: variance", variance, float(exact.noise), 5e-6))
            samples.append((float(exact.noise), ((first - second) ** 2).mean(axis=1) / 2))  # two draws on the same x
    configuration = _CONFIGURATION | {"rounding": "sr", "scale rule": "floor"}
    note = "The factor, and why it removes the bias, are from arXiv 2502.20586; the figures are ours."
    found = {c.what: c.found for c in comparisons}
    answer = (
        f"Floor MXFP4 with stochastic rounding has a gain of {found['plain: gain']:.4f}; 3/4 after the scale is chosen "
        f"makes it {found['scale from x, then 3/4: gain']:.4f} and raises the variance from "
        f"{found['plain: variance']:.4f} to {found['scale from x, then 3/4: variance']:.4f}."
    )
    evidence = Evidence(tuple(comparisons), (kernels_agree(samples),), note, configuration)
    return answered(evidence, answer, f"gain {found['plain: gain']:.5f}")
