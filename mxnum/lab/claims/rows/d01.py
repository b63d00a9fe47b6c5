"""D1: how many bits Hopper's FP8 sums keep, how large their error is, and how sums shrink."""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import numpy as np

from mxnum import matmul, quantize
from mxnum.lab.claims.claim import Claim, Context
from mxnum.lab.claims.evidence import Comparison, Evidence, Statement, ours
from mxnum.lab.claims.samples import SEED, SIGMA, mean
from mxnum.lab.theory.truncated_sums import E4M3_BINADE, mean_sum
from mxnum.memory.dtypes import Array

CLAIM = Claim(
    "D1",
    "Hopper's FP8 sums keep 14 bits",
    "The FP8 units of NVIDIA's H800 keep around 14 bits of a sum. For two random matrices with K = 4096 the largest "
    "relative error is nearly 2 %. This error grows with K. Moving the sum to float32 every 128 products makes the "
    "sum more precise.",
    "The library's unit `hopper_fp8` multiplies random matrices in E4M3, with one scale for each matrix. This unit "
    "reproduces every bit of products that cuBLAS computed on an H100. Mean sums of positive numbers are compared with "
    "bounds, which `mxnum.lab.theory.mean_sum` derives.",
    "The paper does not state the distribution of its matrices, or the quantity by which it divides the error. Both "
    "are needed to decide the claim.",
)
PLAIN, PROMOTED = "hopper_fp8", "hopper_fp8_promoted"
LENGTHS = (256, 512, 1024, 2048, 4096, 8192)
#: `K` is the number of products in a sum in the paper's figure; `SIDE` is the number of rows and of
#: columns of the results.
K, SIDE = 4096, 128
#: The number of dot products whose mean is compared with the derived bounds.
DOTS = 512
ONE_SCALE = "e4m3:scale=float32"


class Errors(NamedTuple):
    """Errors of the sums of a matrix product."""

    #: The largest error, divided by the root mean square of the results.
    largest: float
    #: The largest relative error of a result: the error divided by the exact result.
    relative: float
    #: The root mean square of the errors, divided by the root mean square of the results.
    typical: float
    #: `bias` is the slope of a regression of the error on the result. `bar` is `SIGMA` times the
    #: standard error of `bias`, if each row of the result counts as one sample.
    bias: float
    bar: float


def matrices(k: int) -> dict[str, tuple[Array, Array]]:
    """Return pairs of matrices of three distributions, in E4M3 with one scale each."""
    rng, shape = np.random.default_rng(SEED), (SIDE, k)
    made = {
        "normal": [rng.standard_normal(shape) for _ in range(2)],
        "uniform -1 to 1": [rng.uniform(-1, 1, shape) for _ in range(2)],
        "uniform 0 to 1": [rng.uniform(0, 1, shape) for _ in range(2)],
    }
    return {name: (_elements(a), _elements(b)) for name, (a, b) in made.items()}


def _elements(x: Array) -> Array:
    """Return the E4M3 elements of a matrix under one scale, as float8 numbers."""
    import ml_dtypes

    found = quantize(x.astype(np.float32), ONE_SCALE, block_shape=x.shape)
    return found.codes.view(ml_dtypes.float8_e4m3fn)


def _sum(a: Array, b: Array, unit: str) -> Array:
    return matmul(a, b, accumulate=unit).astype(np.float64)


@cache
def errors_at(k: int) -> dict[tuple[str, str], Errors]:
    """Return the errors of sums of `k` products, by distribution and unit."""
    found = {}
    for name, (a, b) in matrices(k).items():
        exact = a.astype(np.float64) @ b.astype(np.float64).T
        size = float(np.sqrt((exact**2).mean()))
        for unit in (PLAIN, PROMOTED):
            error = _sum(a, b.T, unit) - exact
            bias, bar = mean((error * exact).mean(axis=1) / size**2)
            worst, relative = abs(error).max() / size, (abs(error) / abs(exact)).max()
            found[name, unit] = Errors(worst, relative, float(np.sqrt((error**2).mean())) / size, bias, bar)
    return found


def bits_kept(unit: str) -> int:
    """Return the number of bits, including the leading 1, that a unit keeps of sums from 1 to 2."""
    import ml_dtypes

    kept = 1
    for bit in range(1, 30):
        a, b = np.zeros((2, 1, 32), ml_dtypes.float8_e5m2)
        a[0, :2], b[0, :2] = (1, 2.0 ** -(bit // 2)), (1, 2.0 ** -(bit - bit // 2))
        kept = bit + 1 if _sum(a, b.T, unit)[0, 0] > 1 else kept
    return kept


def within_bounds(unit: str, k: int) -> tuple[bool, str]:
    """Judge whether a unit's mean sum of positive numbers is within the derived bounds."""
    import ml_dtypes

    rng = np.random.default_rng([SEED, k])
    a, b = (rng.choice(E4M3_BINADE, (DOTS, k)).astype(ml_dtypes.float8_e4m3fn) for _ in range(2))
    exact = (a.astype(np.float64) * b.astype(np.float64)).sum(axis=1)
    found, bar = mean(_sum(a[:, None], b[..., None], unit).ravel() - exact)
    bounds = mean_sum(unit, k)
    low, high = bounds.low - bounds.exact - bar, bounds.high - bounds.exact + bar
    lost = bounds.shrinking[0]
    return (
        low <= found <= high,
        f"{unit}, K = {k}: sums shrink by {percent(-found / bounds.exact, 4)}, derived {percent(lost, 4)}",
    )


def percent(share: float, digits: int = 2) -> str:
    """Return a share in percent."""
    return f"{100 * share:.{digits}f} %"


@CLAIM.check
def _check(context: Context) -> Evidence:
    context.tell("random matrices")
    found = {k: errors_at(k) for k in LENGTHS}
    names, at = list(matrices(1)), found[K]
    largest = {u: [[found[k][name, u].largest for k in LENGTHS] for name in names] for u in (PLAIN, PROMOTED)}
    readings = "; ".join(
        f"{name}: errors are at most {percent(at[name, PLAIN].largest)} of the results' root mean square, and at most "
        f"{at[name, PLAIN].relative:.2g} times the exact result"
        for name in names
    )
    statements = [
        Statement("the largest relative error at K = 4096 is nearly 2 %", None, readings),
        Statement(
            "the largest relative error grows with K",
            all(np.diff(each).min() > 0 for each in largest[PLAIN]),
            "; ".join(f"{n}: {percent(v[0])} to {percent(v[-1])}" for n, v in zip(names, largest[PLAIN], strict=True)),
        ),
        Statement(
            "promotion to float32 every 128 products lowers the largest error at K = 4096",
            all(at[name, PROMOTED].largest < at[name, PLAIN].largest for name in names),
            "; ".join(f"{name}: {percent(at[name, PROMOTED].largest)}" for name in names),
        ),
        *ours(*of_shrinking(context, found)),
    ]
    comparisons = [Comparison("bits kept", 14, bits_kept(PLAIN), 0.5)]
    normal, positive = (percent(at[name, PLAIN].largest) for name in (names[0], names[-1]))
    answer = (
        f"The unit keeps {comparisons[0].found} bits. At K = {K} the error is at most {normal} of the "
        f"typical result for N(0, 1) matrices, and {positive} for positive matrices "
        f"({percent(at[names[-1], PROMOTED].largest)} with promotion). It is unknown which matrices gave nearly 2 %."
    )
    note = (
        "Errors are those of summation alone: each sum is compared with the exact sum of the same products of E4M3 "
        "elements. For each matrix product, the slope of a regression of the error on the result shows how much the "
        f"sums shrink. Each result is a {SIDE} x {SIDE} matrix. The means of sums of positive numbers are over "
        f"{DOTS} dot products."
    )
    configuration = {"seed": SEED, "error bar": f"{SIGMA} sigma", "K": list(LENGTHS)}
    return Evidence(comparisons, statements, note, configuration, answer, f"{normal} and {positive}")


def of_shrinking(context: Context, found: dict[int, dict[tuple[str, str], Errors]]) -> list[Statement]:
    """Judge whether all sums shrink, and whether sums of positive numbers shrink as derived."""
    context.tell("bounds of the mean")
    derived = [within_bounds(unit, k) for unit in (PLAIN, PROMOTED) for k in LENGTHS]
    every = [errors for of in found.values() for errors in of.values()]
    return [
        Statement(
            f"sums of positive numbers shrink as derived, within {SIGMA} standard errors",
            all(holds for holds, _ in derived),
            "; ".join(text for _, text in derived),
        ),
        Statement(
            "sums of all three kinds of matrices shrink, with promotion and without",
            all(errors.bias + errors.bar < 0 for errors in every),
            "; ".join(
                f"{name}, {unit}: {percent(found[256][name, unit].bias, 3)} at K = 256, "
                f"{percent(found[8192][name, unit].bias, 3)} at 8192"
                for name, unit in found[K]
            ),
        ),
    ]


@CLAIM.figure()
def _draw(ax: Any, context: Context) -> str:
    for name, mark in zip(matrices(1), "o^s", strict=True):
        for unit, line in ((PLAIN, "-"), (PROMOTED, "--")):
            largest = [errors_at(k)[name, unit].largest for k in LENGTHS]
            ax.loglog(LENGTHS, largest, mark + line, ms=4, lw=1, label=f"{name}, {unit}")
    ax.axhline(0.02, color="0.6", lw=0.8)
    ax.set(xlabel="K", ylabel="largest error / typical result")
    ax.legend(fontsize=6)
    return "The largest error of a sum, divided by the root mean square of the results. Grey: the paper's 2 %."
