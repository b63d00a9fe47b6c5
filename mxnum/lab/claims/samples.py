"""Random samples that checks quantize, and a test that kernels agree with a formula."""

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
#: The allowed distance of a figure from the claimed one, in standard errors. A correct sample
#: exceeds it once in 1.7 million.
SIGMA = 5
#: The number of equal parts of [1, 2) whose middles are tried as mantissas.
PARTS = 1 << 16
#: The numbers of blocks of 32, and of 16, in the samples.
BLOCKS, BLOCKS_OF_16 = 1 << 16, 1 << 17
#: The largest magnitude that 2**20 normal numbers usually reach, in standard deviations.
LARGEST = 5
#: The tensor scale of NVFP4: the largest magnitude over (largest element * largest scale), in
#: float32.
TENSOR_SCALE = float(np.float32(LARGEST / 2688))
#: The elements of the checks of blocks of 32.
FORMATS = {
    "E4M3": "mxfp8_e4m3", "E3M2": "mxfp6_e3m2", "E2M3": "mxfp6_e2m3", "E2M1": "mxfp4_e2m1", "E3M0": "mxfp4_e3m0",
}  # fmt: skip
CONFIGURATION = {"seed": SEED, "blocks": BLOCKS, "block": 32, "rounding": "rne", "error bar": f"{SIGMA} sigma"}
OF_NVFP4 = {"seed": SEED, "blocks": BLOCKS_OF_16, "block": 16, "tensor scale": TENSOR_SCALE, "error bar": "5 sigma"}


def mantissas() -> Array:
    """Return the middles of `PARTS` equal parts of [1, 2), exact in float32."""
    return (1 + (2 * np.arange(PARTS) + 1) / (2 * PARTS)).astype(np.float32)


def log_measure() -> Array:
    """Return the share of each of the `PARTS` parts in the logarithm of a binade."""
    shares: Array = np.diff(np.log2(1 + np.arange(PARTS + 1) / PARTS))
    return shares


@cache
def normal_blocks(blocks: int = BLOCKS, size: int = 32) -> Array:
    """Return blocks of N(0, 1), one a row, in float32."""
    return np.random.default_rng(SEED).standard_normal((blocks, size)).astype(np.float32)


@cache
def by_block(fmt: str, rule: str) -> Statistics:
    """Return error statistics of each block of normal numbers."""
    return measure(normal_blocks(), fmt, scale_rule=rule, per=0)


def values(x: Array, fmt: str = "nvfp4", **options: Any) -> Array:
    """Return x quantized and read back, in float64."""
    return quantize(x, fmt, **options).dequantize("float64")


def mean(values: Array) -> tuple[float, float]:
    """Return the mean of independent values, and `SIGMA` of its standard errors."""
    return float(values.mean()), SIGMA * float(values.std()) / math.sqrt(len(values))


def kernels_agree(samples: list[tuple[float, Array]]) -> Statement:
    """Judge if independent sample means lie within `SIGMA` standard errors of theory."""
    distances = []
    for expected, sample in samples:
        value, bar = mean(sample)
        distances.append(SIGMA * abs(value - expected) / bar if bar else (0.0 if value == expected else math.inf))
    close = sum(d <= SIGMA for d in distances)
    return Statement(
        f"the kernels agree with the formula within {SIGMA} standard errors",
        close == len(distances),
        f"{close} of {len(distances)} figures, the farthest {max(distances):.1f} standard errors away",
        Whose.OURS,
    )
