"""Make inputs for tests: rounding boundaries, their neighbours, special values, random bits."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from mxnum import formats
from mxnum.formats import ElementFormat
from mxnum.memory.dtypes import numpy_dtype, signed_bits

Array = npt.NDArray[Any]

ELEMENTS = tuple(formats.ELEMENTS)
FLOATS = tuple(formats.FLOATS)
SEED = 20260101


def kind(name: str) -> str:
    """Return the kind of an element; one implementation rounds all elements of a kind."""
    element = formats.element(name)
    return "integers" if element.integer else "finite" if element.nan_code is None else "with NaN"


def generator(*key: object) -> np.random.Generator:
    """Return a random generator for a test case, the same in every run."""
    return np.random.default_rng([SEED, *("|".join(map(str, key))).encode()])


def patterns(source: ElementFormat, values: Array) -> Array:
    """Return bit patterns of float64 values narrowed to `source`, and of their neighbours."""
    with np.errstate(all="ignore"):
        bits = signed_bits(np.asarray(values, np.float64).astype(numpy_dtype(source)))
    return np.concatenate([bits, bits + 1, bits - 1])


def special_patterns(source: ElementFormat) -> Array:
    """Return the special bit patterns of a float type, in both signs.

    The patterns are zero, the least and greatest subnormal and normal numbers, infinity and NaNs.
    """
    m = source.mantissa_bits
    top = source.max_code
    positive = [0, 1, 2, (1 << m) - 1, 1 << m, (1 << m) + 1, top - 1, top, top + 1, top + 2, top + (1 << m)]
    sign = -(1 << (source.bits - 1))
    return np.array([*positive, *(sign + p for p in positive)], f"i{source.bits // 8}")


def boundary_patterns(source: ElementFormat, element: ElementFormat, scale: int = 127) -> Array:
    """Return bit patterns of `source` at and near the rounding boundaries of `element`.

    The patterns are the values of `element` and the midpoints between them, times 2**(scale-127),
    and the neighbours of these numbers. Some numbers outside the element's range, and the special
    patterns, are added.
    """
    finite = sorted({abs(v) for v in element.values() if math.isfinite(v)})
    beyond = [finite[-1] * f for f in (1 + 2.0**-element.mantissa_bits, 1.25, 1.5, 2.0, 4.0, 1e3)]
    below = [finite[1] * 2.0**-k for k in (1, 2, 3, 24, 31, 32, 60)]
    points = [*finite, *((a + b) / 2 for a, b in pairwise(finite)), *beyond, *below]
    if finite[1] < finite[-1]:  # the midpoint of the largest value and the next value, which is beyond the range
        points.append(finite[-1] + (finite[-1] - finite[-2]) / 2)
    scaled = np.ldexp(np.array([*points, *(-p for p in points)]), scale - 127)
    return np.concatenate([patterns(source, scaled), special_patterns(source)])


def random_patterns(source: ElementFormat, count: int, *key: object) -> Array:
    """Return uniformly random bit patterns, so that every exponent is equally likely."""
    rng = generator("patterns", source.name, *key)
    return rng.integers(-(1 << (source.bits - 1)), 1 << (source.bits - 1), count, dtype=f"i{source.bits // 8}")


def is_nan(source: ElementFormat, bits: Array) -> Array:
    """Return True for each bit pattern that is a NaN.

    The function compares integers, because numpy warns about signalling NaNs in float arrays.
    """
    return (bits.astype(np.int64) & ((1 << (source.bits - 1)) - 1)) > source.max_code + 1


def as_floats(source: ElementFormat, bits: Array) -> list[float]:
    """Return the values of bit patterns of `source` as Python floats; a NaN keeps its sign."""
    with np.errstate(all="ignore"):
        values = bits.view(numpy_dtype(source)).astype(np.float64)
    signed = zip(values.tolist(), bits.tolist(), strict=True)
    return [math.copysign(math.nan, b) if math.isnan(v) else v for v, b in signed]


def report(case: str, inputs: Any, got: Array, want: Array) -> str:
    """Return an assertion message about the first few differences."""
    bad = np.flatnonzero(np.asarray(got) != np.asarray(want))
    lines = [f"{case}: {bad.size} of {np.size(got)} differ"]
    lines += [
        f"  input {i if inputs is None else inputs[i]}: got {int(got[i]):#x}, want {int(want[i]):#x}" for i in bad[:5]
    ]
    return "\n".join(lines)


def assert_same(case: str, inputs: Any, got: Any, want: Any) -> None:
    """Assert that codes are equal; the message shows the inputs of the first differences."""
    got, want = np.asarray(got), np.asarray(want)
    assert got.shape == want.shape, case
    if not np.array_equal(got, want):
        if isinstance(inputs, np.ndarray) and inputs.dtype.kind == "i":
            mask = (1 << (8 * inputs.itemsize)) - 1
            inputs = [f"{int(b) & mask:#x}" for b in np.ravel(inputs)]
        raise AssertionError(report(case, inputs, got.ravel(), want.ravel()))
