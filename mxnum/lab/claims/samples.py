"""Random samples for the checks of claims, and a test that kernels agree with a formula."""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import numpy as np

from mxnum import quantize
from mxnum.analysis import Statistics, measure
from mxnum.lab.claims.evidence import Statement, Whose
from mxnum.memory.dtypes import Array

SEED = 20260101
#: The allowed distance of a measured number from the claimed number, in standard errors. A correct
#: kernel exceeds this distance by chance in one of 1.7 million samples.
SIGMA = 5
#: The number of equal parts into which checks divide [1, 2). The middle of each part is a mantissa.
PARTS = 1 << 16
#: The number of blocks in a sample: for blocks of 32 numbers, and for blocks of 16.
BLOCKS, BLOCKS_OF_16 = 1 << 16, 1 << 17
#: The approximate largest magnitude of the 2**21 N(0, 1) numbers of a sample.
LARGEST = 5
#: The tensor scale of NVFP4 for `LARGEST`: `LARGEST` / (largest element times largest scale), in
#: float32.
TENSOR_SCALE = float(np.float32(LARGEST / 2688))
#: The formats with blocks of 32 that checks use, by the names of their elements.
FORMATS = {
    "E4M3": "mxfp8_e4m3", "E3M2": "mxfp6_e3m2", "E2M3": "mxfp6_e2m3", "E2M1": "mxfp4_e2m1", "E3M0": "mxfp4_e3m0",
}  # fmt: skip
CONFIGURATION = {"seed": SEED, "blocks": BLOCKS, "block": 32, "rounding": "rne", "error bar": f"{SIGMA} sigma"}
OF_NVFP4 = {"seed": SEED, "blocks": BLOCKS_OF_16, "block": 16, "tensor scale": TENSOR_SCALE, "error bar": "5 sigma"}


def mantissas() -> Array:
    """Return the middles of `PARTS` equal parts of [1, 2), exact in float32."""
    return (1 + (2 * np.arange(PARTS) + 1) / (2 * PARTS)).astype(np.float32)


def log_measure() -> Array:
    """Return the width of each of the `PARTS` parts on a log2 scale; the widths sum to 1."""
    shares: Array = np.diff(np.log2(1 + np.arange(PARTS + 1) / PARTS))
    return shares


@cache
def normal_blocks(blocks: int = BLOCKS, size: int = 32) -> Array:
    """Return blocks of N(0, 1) numbers in float32, one block in each row."""
    return np.random.default_rng(SEED).standard_normal((blocks, size)).astype(np.float32)


@cache
def by_block(fmt: str, rule: str) -> Statistics:
    """Quantize `normal_blocks()` to a format, and return the error statistics of each block."""
    return measure(normal_blocks(), fmt, scale_rule=rule, per=0)


def values(x: Array, fmt: str = "nvfp4", **options: Any) -> Array:
    """Return x quantized and dequantized, in float64."""
    return quantize(x, fmt, **options).dequantize("float64")


def mean(values: Array) -> tuple[float, float]:
    """Return the mean of independent values, and `SIGMA` times its standard error."""
    return float(values.mean()), SIGMA * float(values.std()) / math.sqrt(len(values))


def kernels_agree(samples: list[tuple[float, Array]]) -> Statement:
    """Judge whether each sample mean is within `SIGMA` standard errors of its theoretical value."""
    distances = []
    for expected, sample in samples:
        value, bar = mean(sample)
        distances.append(SIGMA * abs(value - expected) / bar if bar else (0.0 if value == expected else math.inf))
    close = sum(d <= SIGMA for d in distances)
    return Statement(
        f"the kernels agree with the formula within {SIGMA} standard errors",
        close == len(distances),
        f"{close} of {len(distances)} numbers agree; the largest difference is {max(distances):.1f} standard errors",
        Whose.OURS,
    )
