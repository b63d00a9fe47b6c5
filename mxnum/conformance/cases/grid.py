"""The values of an element as a grid of exact float64 numbers, with neighbours and midpoints."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np

from mxnum.conformance.bits import as_floats
from mxnum.formats import ElementFormat
from mxnum.memory.dtypes import Array, numpy_dtype
from mxnum.modes import ScaleRule

#: The number of mantissa bits that a conversion drops: from float32 to bfloat16 (key 32), and from
#: float64 to float32 (key 64).
NARROWER = {32: 16, 64: 29}
#: Classes of numbers by their position in the grid. A number belongs to the first class that fits.
PLACES = ("NaN", "infinity", "zero", "representable", "beyond the largest", "tie", "subnormal result", "ordinary")


@cache
def magnitudes(element: ElementFormat) -> Array:
    """Return the nonnegative finite values of an element, in ascending order.

    The magnitude of the most negative integer is missing, because the library never produces that
    integer.
    """
    return np.array(sorted({v for v in element.values() if math.isfinite(v) and v >= 0}))


@cache
def points(element: ElementFormat) -> Array:
    """Return test points of an element: magnitudes, midpoints, and numbers beyond both ends."""
    grid = magnitudes(element)
    step = grid[-1] - grid[-2] if element.mantissa_bits else grid[-1]
    beyond = grid[-1] + step * np.array([0.5, 1.0, 1.5, 2.0])
    far = grid[-1] * np.array([1.5, 2, 4, 1e3])
    below = grid[1] * np.exp2([-2, -3, -24, -32, -60])
    return np.unique(np.concatenate([grid, (grid[1:] + grid[:-1]) / 2, beyond, far, below]))


def past_midpoints(element: ElementFormat, source: ElementFormat, exponent: int = 0) -> Array:
    """Return bit patterns of numbers just past `m * 2**exponent`, for each midpoint m.

    The distance from the midpoint is a fraction of the gap between two neighbouring values, or 1.5
    ulps of a narrower float. Such numbers distinguish kernels that keep different numbers of bits
    below the element's last place.
    """
    grid = magnitudes(element)
    gaps, middles = grid[1:] - grid[:-1], (grid[1:] + grid[:-1]) / 2
    values = np.concatenate([middles + gaps * share for share in (3 / 8, 3 / 16, 3 / 32)])
    past = narrowed(np.ldexp(values, exponent), source)
    if source.bits in NARROWER:
        at = narrowed(np.ldexp(middles, exponent), source)
        past = np.concatenate([past, at + at.dtype.type(3 << (NARROWER[source.bits] - 1))])
    return with_neighbours(past, source, reach=0)


def fractions_of_rules(element: ElementFormat) -> Array:
    """Return thresholds for f in [1, 2), where f * 2**e is the largest magnitude of a block.

    At a threshold, a scale rule may change the scale, or the largest element may begin to overflow.
    """
    top = element.max / 2.0**element.emax
    half = 2.0 ** -(element.mantissa_bits + 1)
    return np.unique([1.0, top, min(top + half, 2 - half), 2 - half, 1.5])


def threshold(element: ElementFormat, rule: ScaleRule) -> float:
    """Return the f in [1, 2] at which a scale rule begins to use a larger scale for f * 2**e.

    The value 2 means that the rule never uses a larger scale.
    """
    return {
        ScaleRule.FLOOR: 2.0,
        ScaleRule.CEIL: 1.0,
        ScaleRule.EVEN: 2 - 2.0 ** -(element.mantissa_bits + 1),
        ScaleRule.RCEIL: element.max / 2.0**element.emax,
        ScaleRule.HALF_UP: 1.75,
        ScaleRule.FLOOR_PLUS_ONE: 1.0,
    }[rule]


def narrowed(values: Array, source: ElementFormat) -> Array:
    """Return float64 values, rounded to the float type `source`, as bit patterns."""
    with np.errstate(over="ignore", under="ignore"):
        return np.asarray(values, np.float64).astype(numpy_dtype(source)).view(f"u{source.bits // 8}")


def with_neighbours(bits: Array, source: ElementFormat, reach: int = 1) -> Array:
    """Return positive bit patterns and their finite neighbours, each with both signs."""
    wide = bits.astype(np.int64)
    around = np.concatenate([wide + step for step in range(-reach, reach + 1)])
    around = np.unique(around[(around >= 0) & (around <= source.max_code)])
    both = np.concatenate([around, around]).astype(f"u{source.bits // 8}")
    both[len(around) :] |= both.dtype.type(1 << (source.bits - 1))
    return both


def around_thresholds(element: ElementFormat, source: ElementFormat, exponents: Sequence[int]) -> Array:
    """Return bit patterns near the thresholds of scale rules.

    The distance from a threshold is two or three ulps, or nearly half an ulp of a narrower float.
    These numbers separate two kinds of kernels: kernels whose threshold is one ulp off, and kernels
    with larger errors, for example because they first round inputs to a narrower float.
    """
    fractions = np.unique([*(threshold(element, rule) for rule in ScaleRule), *fractions_of_rules(element)])
    values = np.ldexp(fractions[None], np.array(exponents)[:, None]).ravel()
    at = narrowed(values[values < float(source.max)], source).astype(np.int64)
    half = [(1 << (NARROWER[source.bits] - 1)) - 1] if source.bits in NARROWER else []
    steps = [2, 3, *half]
    return np.unique(np.concatenate([at + sign * step for step in steps for sign in (-1, 1)]))


def special_patterns(source: ElementFormat, nan: bool = True) -> Array:
    """Return the bit patterns of zeros, extreme subnormals and normals, infinities and NaNs.

    Each pattern comes with both signs.
    """
    m, top = source.mantissa_bits, source.max_code
    positive = [0, 1, 2, 3, (1 << m) - 1, 1 << m, (1 << m) + 1, top - 1, top, top + 1]
    if nan:
        positive += [top + 2, top + 1 + (1 << (m - 1)), top + 2 + (1 << (m - 1)), top + (1 << m)]
    both = np.array([*positive, *positive], f"u{source.bits // 8}")
    both[len(positive) :] |= both.dtype.type(1 << (source.bits - 1))
    return both


def as_magnitudes(bits: Array, source: ElementFormat, scales: Array | None = None) -> Array:
    """Return abs(x) / 2**(scale-127) in float64.

    Only results far below the smallest magnitude of an element are inexact.
    """
    with np.errstate(all="ignore"):
        wide = np.abs(as_floats(bits, source).astype(np.float64))
        return wide if scales is None else np.ldexp(wide, 127 - scales.astype(np.int64))


def neighbours(y: Array, element: ElementFormat) -> tuple[Array, Array]:
    """Return for each magnitude y the largest grid value <= y, and the next grid value.

    After the last grid value, the next value is one step larger.
    """
    grid = magnitudes(element)
    place = np.clip(np.searchsorted(grid, y, side="right") - 1, 0, len(grid) - 1)
    step = grid[-1] - grid[-2] if element.mantissa_bits else grid[-1]
    extended = np.append(grid, grid[-1] + step)
    return grid[place], extended[place + 1]


def places(y: Array, element: ElementFormat) -> Array:
    """Return an index into `PLACES` for each magnitude y."""
    known = np.where(np.isfinite(y), y, 0)
    below, above = neighbours(known, element)
    found = np.full(y.shape, PLACES.index("ordinary"), np.uint8)
    found[known < element.min_normal] = PLACES.index("subnormal result")
    found[known - below == above - known] = PLACES.index("tie")
    found[known > magnitudes(element)[-1]] = PLACES.index("beyond the largest")
    found[known == below] = PLACES.index("representable")
    found[known == 0] = PLACES.index("zero")
    found[np.isinf(y)] = PLACES.index("infinity")
    found[np.isnan(y)] = PLACES.index("NaN")
    return found


def simplicity(x: Any) -> tuple[Any, ...]:
    """Return a key that sorts simple numbers first: zero, few bits, small exponents.

    Positive numbers come before negative ones.
    """
    value = float(x)
    if value == 0 or value - value != 0:
        return (0 if value == 0 else 99, np.signbit(x))
    numerator = abs(value.as_integer_ratio()[0])
    significant = numerator.bit_length() - ((numerator & -numerator).bit_length() - 1)
    return min(significant, 9), abs(int(np.frexp(value)[1]) - 1), significant, value < 0
