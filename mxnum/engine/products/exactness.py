"""Decide how hardware can hold exact sums of blocks.

The elements of a format are integer multiples of one unit. Sums of products of elements are exact
up to 2**24 units in float32, and up to 2**53 units in float64, in any order of addition. If sums of
a format could exceed 2**53 units, float64 may still suffice for the given arrays, because most
blocks span only a few binades. If the blocks of the arrays span too many binades, each element of
one operand is split into two parts.

Small elements are multiplied as integers, and the sums of the products must not exceed 2**24 units.

The exact sum of a block is multiplied by the product of the two blocks' scales, and rounded once.
In float64, multiplying by the scales cannot underflow. float32 is used only if it holds the product
of the scales; otherwise float64 is used. If scales are floats, their product has several bits, and
float64 has to hold these bits besides the bits of the sum.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from mxnum.engine.products import integers
from mxnum.engine.products.operands import Operand
from mxnum.engine.products.terms import ZERO, meanings
from mxnum.formats import E8M0, ElementFormat
from mxnum.memory.dtypes import Array

_EXACT = {"float32": 24, "float64": 53}
#: If float64 cannot hold a sum, each element is split into an upper and a lower part. The lower
#: part has this many bits.
SPLIT = 16


@dataclass(frozen=True)
class Held:
    """The number type that holds the block sums of two matrices, and whether elements are split.

    `word` is the number type of the panels, which hold the packed operands. If each element of the
    left operand is split into two parts, `step` is the power of two that separates the parts.
    Otherwise `step` is None.
    """

    word: str
    step: float | None = None


def held(a: Operand, b: Operand) -> Held | None:
    """Return how hardware can hold the block sums of two matrices exactly, or None if it cannot.

    Both matrices come from `Operand.by_rows`.
    """
    run = run_of(a)
    extra = a.scale_bits + b.scale_bits - 2
    how = exactness_of(a.format, b.format, run, integers.instructions(), extra) if run else None
    if how is None or any(_has_infinite_scale(x) for x in (a, b)):
        return None
    unit = how.unit_a + how.unit_b if how.word in integers.IN_WORD else 0
    if how.word != "float64" and _scales_are_float32(a, b, run, unit):
        return Held(how.word)
    if how.always or (extra == 0 and not may_be_wide(a, b, run)):
        return Held("float64")
    return Held("float64", 2.0 ** (SPLIT + how.unit_a)) if how.if_split else None


@dataclass(frozen=True)
class Exactness:
    """How hardware can hold exact block sums, for elements of two formats."""

    word: str
    #: True if `word` holds the sums of all possible elements exactly. If False, whether `word`
    #: suffices depends on the elements of the given arrays.
    always: bool
    #: True if `word` holds the sums of all possible elements exactly, provided that each element of
    #: the first operand is split into two parts.
    if_split: bool
    unit_a: int
    unit_b: int


@cache
def exactness_of(
    a: ElementFormat, b: ElementFormat, run: int, instructions: str = "", extra: int = 0
) -> Exactness | None:
    """Return the cheapest way to hold sums of `run` products exactly, or None if no way is exact.

    `instructions` is the result of `integers.instructions`. `extra` is the number of significand
    bits of both scales together, minus 2; it is 0 if both scales are powers of two. If scales are
    floats, float32 is used only if it holds the product of any two scales exactly. float64 is used
    only if it holds the product of both scales and the sum of a block exactly.

    The result is None if an element other than zero is not a normal float32 number.
    """
    units, largest = [], []
    for element in (a, b):
        unit = element.emin - element.mantissa_bits
        if not is_normal_float32(element):
            return None
        term = meanings(element)
        magnitudes = zip(np.abs(term.significands).tolist(), term.exponents.tolist(), strict=True)
        largest.append(max(int(math.ldexp(m, e - unit)) for m, e in magnitudes))
        units.append(unit)
    total, unit = largest[0] * largest[1] * run, sum(units)
    if total <= 1 << _EXACT["float32"] and -149 <= unit <= 103 and extra + 2 <= _EXACT["float32"]:
        return Exactness(integers.word_for(a, b, run, instructions) or "float32", True, True, *units)
    parts = max(largest[0] >> SPLIT, 1 << SPLIT)
    if_split = extra == 0 and parts * largest[1] * run <= 1 << _EXACT["float64"]
    always = total <= 1 << (_EXACT["float64"] - (extra + 2 if extra else 0))
    return Exactness("float64", always, if_split, *units) if extra == 0 or always else None


def is_normal_float32(element: ElementFormat) -> bool:
    """Return True if all numbers of a format, other than zero, are normal float32 numbers."""
    return element.emin - element.mantissa_bits >= -126 and element.emax <= 127


def _has_infinite_scale(x: Operand) -> bool:
    scales: Any = x.scales
    return x.has_float_scales and bool(np.isinf(scales).any())


def _scales_are_float32(a: Operand, b: Operand, run: int, unit: int) -> bool:
    """Return True if 2**unit times any scale of `a` times any scale of `b` is exact in float32.

    Scales that are NaN are ignored. The scale code 0 is ignored if all elements of its block are
    zero, because the sum of these elements is zero under any scale.
    """
    if _reach([_ends(x, x.scales) for x in (a, b)], unit):
        return True
    some = []
    for x in (a, b):
        codes: Any = x.scales
        if not x.has_float_scales:
            zero = (meanings(x.format).classes // 2 == ZERO // 2)[x.array]
            least_of_zeros = (codes == 0) & np.logical_and.reduceat(zero, np.arange(0, x.array.shape[1], run), 1)
            codes = codes[~least_of_zeros & (codes != E8M0.nan_code)]
        some.append(_ends(x, codes))
    return _reach(some, unit)


def _reach(ends: list[tuple[int, int]], unit: int) -> bool:
    (least_a, greatest_a), (least_b, greatest_b) = ends
    return least_a + least_b + unit >= -149 and greatest_a + greatest_b + unit <= 127


def _ends(x: Operand, scales: Any) -> tuple[int, int]:
    """Return (e, f) such that all scales are multiples of 2**e and at most 2**f.

    Float scales that are zero or NaN are ignored. The NaN code of E8M0 counts as the scale 2**128.
    """
    # Fast path: the calls of `reduce` take half the time of `np.min` and `np.max`.
    if not x.has_float_scales:
        least, greatest = (reduce(scales, None, initial=E8M0.bias) for reduce in (np.minimum.reduce, np.maximum.reduce))
        return int(least) - E8M0.bias, int(greatest) - E8M0.bias
    least = np.minimum.reduce(scales, None, initial=1.0, where=scales > 0)
    greatest = np.fmax.reduce(scales, None, initial=1.0)
    return math.frexp(float(least))[1] - x.scale_bits, math.frexp(float(greatest))[1]


def run_of(x: Operand) -> int:
    """Return the length of the blocks along the summed axis.

    If rows are shorter than a block, the result is the length of the padded rows, a multiple of 4.
    """
    block, length = x.blocks[-1], x.array.shape[-1]
    return block if block <= length else -(-length // 4) * 4


# The elements of arrays


def may_be_wide(a: Operand, b: Operand, run: int) -> bool:
    """Return True if the sum of some block might not be exact in float64.

    The elements of a block are multiples of the spacing of numbers in its lowest binade, and lie
    below the end of its highest binade. So a product of two elements has at most w_a + w_b bits,
    where w_a and w_b are the `widths` of the blocks. A sum of n products has at most ceil(log2(n))
    more bits than a product.
    """
    return bool((widths(a, run) + widths(b, run) > bits_to_spare(run)).any())


def bits_to_spare(run: int) -> int:
    """Return the most bits that each of `run` products may have if float64 is to hold their sum."""
    return _EXACT["float64"] - (run - 1).bit_length()


def widths(x: Operand, run: int) -> Array:
    """Return for each column of blocks the number of bits that its elements span.

    The elements of a column are multiples of the spacing s of numbers in their lowest binade, and
    lie below the end t of their highest binade. They span log2(t / s) bits. Integer elements span
    the number of bits of an element.
    """
    element, starts = x.format, np.arange(0, x.array.shape[1], run)
    if element.integer:
        return np.full(starts.size, element.bits)
    magnitudes = x.array & np.uint8((1 << (element.bits - 1)) - 1)
    greatest = np.maximum.reduceat(magnitudes.max(0), starts)
    least = np.minimum.reduceat((magnitudes - np.uint8(1)).min(0), starts)
    return bits_between(least.astype(int), greatest.astype(int), element.mantissa_bits)


def bits_between(least: Array, greatest: Array, mantissa: int) -> Array:
    """Return for each column of blocks the number of bits that its elements span.

    Both arrays hold one code without sign bit for each column: `greatest` the greatest code, and
    `least` the least nonzero code, minus 1. If all elements of a column are zero, its item in
    `least` is 255, and its result is 0.
    """
    low, high = np.maximum((least + 1) >> mantissa, 1), np.maximum(greatest >> mantissa, 1)
    return np.where(greatest > 0, high - low + mantissa + 1, 0)
