"""Handwritten tables of format properties, and helpers that tests of the oracle share.

Nothing in this module is computed from the descriptions in `mxnum.formats`.
"""

from __future__ import annotations

import math
from typing import Any

import ml_dtypes
import numpy as np

from mxnum.reference import decode, encode

INF, NAN = math.inf, math.nan
ELEMENTS = ("e4m3", "e5m2", "e3m2", "e2m3", "e2m1", "int8", "e3m0", "int4")
MODES = ("rne", "rna", "rtz", "rtp", "rtn", "rto", "sr")
RULES = ("floor", "ceil", "even", "rceil", "half_up", "floor_plus_one")

# For each element: mantissa bits, emax, emin, largest value and its code, smallest normal number
# and its code, smallest positive number.
TABLE: dict[str, tuple[int, int, int, float, int, float, int, float]] = {
    "e4m3": (3, 8, -6, 448.0, 0x7E, 2.0**-6, 0x08, 2.0**-9),
    "e5m2": (2, 15, -14, 57344.0, 0x7B, 2.0**-14, 0x04, 2.0**-16),
    "e3m2": (2, 4, -2, 28.0, 0x1F, 0.25, 0x04, 0.0625),
    "e2m3": (3, 2, 0, 7.5, 0x1F, 1.0, 0x08, 0.125),
    "e2m1": (1, 2, 0, 6.0, 0x07, 1.0, 0x02, 0.5),
    "int8": (6, 0, 0, 127 / 64, 0x7F, 1.0, 0x40, 2.0**-6),
    "e3m0": (0, 4, -2, 16.0, 0x07, 0.25, 0x01, 0.25),
    "int4": (2, 0, 0, 1.75, 0x07, 1.0, 0x04, 0.25),
}
SIGN = {"e4m3": 128, "e5m2": 128, "e3m2": 32, "e2m3": 32, "e2m1": 8, "int8": 128, "e3m0": 8, "int4": 8}
CANONICAL_NAN = {"float64": 0x7FF8000000000000, "float32": 0x7FC00000, "bfloat16": 0x7FC0, "float16": 0x7E00}
DTYPES: dict[str, Any] = {
    "float64": np.float64,
    "float32": np.float32,
    "bfloat16": ml_dtypes.bfloat16,
    "float16": np.float16,
}


def f16(values: Any) -> Any:
    return np.array(values, np.float16)


def f32(values: Any) -> Any:
    return np.array(values, np.float32)


def u8(values: Any) -> Any:
    return np.array(values, np.uint8)


def bits_of(array: Any) -> list[int]:
    """Return the bit patterns of an array."""
    array = np.asarray(array)
    return [int(v) for v in array.reshape(-1).view(f"uint{8 * array.dtype.itemsize}")]


def value(code: int, element: Any, scale: int = 127) -> float:
    """Return the value of a code in float64."""
    return float(np.array([decode(code, element, scale=scale)], np.uint64).view(np.float64)[0])


def rounded(x: Any, element: Any, rounding: str = "rne", **options: Any) -> float:
    """Return the value to which an element format rounds a number."""
    return value(encode(x, element, rounding=rounding, **options), element)


def random_floats(rng: np.random.Generator, n: int, low: float, high: float) -> list[float]:
    """Return numbers of both signs whose magnitudes are log-uniform in 2**low to 2**high."""
    magnitude = np.exp2(rng.uniform(low, high, n))
    return [float(v) for v in magnitude * rng.choice([-1.0, 1.0], n)]
