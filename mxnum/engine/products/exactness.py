"""Where float hardware holds the sum of a block exactly.

As multiples of one unit elements are integers. Sums of their products up to 2**24 units are exact in float32 in any
order, up to 2**53 in float64. Where the elements of a format could sum up to more, it is those that are there that
decide: most blocks hold a few binades only. Where they do not, one operand is split in two.

A sum is then scaled by a power of two and rounded once: float64 does not underflow there, and in float32 the scale has
to be a number, or float64 is taken.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from mxnum.engine.products.operands import Operand
from mxnum.engine.products.terms import ZERO, meanings
from mxnum.formats import E8M0, ElementFormat
from mxnum.memory.dtypes import Array

_EXACT = {"float32": 24, "float64": 53}
#: Bits of an element, in units, that are split off where float64 cannot hold a sum.
SPLIT = 16


@dataclass(frozen=True)
class Held:
    """How the block sums of two matrices are held: in which float type, and the left operand split at which step."""

    word: str
    step: float | None = None


def held(a: Operand, b: Operand) -> Held | None:
    """How to hold the block sums of two matrices that are `by_rows`; None where floats cannot."""
    run = min(a.blocks[-1], a.array.shape[-1])
    how = exactness_of(a.format, b.format, run) if run else None
    if how is None:
        return None
    if how.word == "float32" and _scales_are_float32(a, b, run):
        return Held("float32")
    if how.always or not may_be_wide(a, b, run):
        return Held("float64")
    return Held("float64", 2.0 ** (SPLIT + how.unit_a)) if how.if_split else None


@dataclass(frozen=True)
class Exactness:
    """How the block sums of two element formats can be held."""

    word: str
    #: Whether `word` holds the sums of any elements: if not, those that are there decide.
    always: bool
    #: Whether it holds them where the first operand is split.
    if_split: bool
    unit_a: int
    unit_b: int


@cache
def exactness_of(a: ElementFormat, b: ElementFormat, run: int) -> Exactness | None:
    """The cheapest way to hold sums of `run` products exactly, or None. Elements are held as normal float32 numbers."""
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
    if total <= 1 << _EXACT["float32"] and -149 <= unit <= 103:
        return Exactness("float32", True, True, *units)
    parts = max(largest[0] >> SPLIT, 1 << SPLIT)
    if_split = parts * largest[1] * run <= 1 << _EXACT["float64"]
    return Exactness("float64", total <= 1 << _EXACT["float64"], if_split, *units)


def is_normal_float32(element: ElementFormat) -> bool:
    """Whether its numbers are."""
    return element.emin - element.mantissa_bits >= -126 and element.emax <= 127


def _scales_are_float32(a: Operand, b: Operand, run: int) -> bool:
    """Whether the product of a scale of a with one of b is a float32 number, NaN aside.

    The least scale does not count where it is that of zeros: their sum is zero under whatever scale.
    """
    if _reach([x.scales for x in (a, b)]):
        return True
    some = []
    for x in (a, b):
        codes: Any = x.scales
        zero = (meanings(x.format).classes // 2 == ZERO // 2)[x.array]
        least_of_zeros = (codes == 0) & np.logical_and.reduceat(zero, np.arange(0, x.array.shape[1], run), 1)
        some.append(codes[~least_of_zeros & (codes != E8M0.nan_code)])
    return _reach(some)


def _reach(scales: list[Any]) -> bool:
    least, greatest = (sum(int(reduce(x, initial=E8M0.bias)) for x in scales) for reduce in (np.min, np.max))
    return least - 2 * E8M0.bias >= -149 and greatest - 2 * E8M0.bias <= 127


# Which elements are there


def may_be_wide(a: Operand, b: Operand, run: int) -> bool:
    """Whether float64 might not hold the sum of some block.

    The elements of a block are multiples of its least binade's steps, and below the end of its greatest binade: so are
    products, and their sum has at most the bits of both and of the count.
    """
    return bool((widths(a, run) + widths(b, run) > bits_to_spare(run)).any())


def bits_to_spare(run: int) -> int:
    """How wide the two blocks of a sum may be together."""
    return _EXACT["float64"] - (run - 1).bit_length()


def widths(x: Operand, run: int) -> Array:
    """For each block along the summed axis: the bits between the ends of binades, over all rows."""
    element, starts = x.format, np.arange(0, x.array.shape[1], run)
    if element.integer:
        return np.full(starts.size, element.bits)
    magnitudes = x.array & np.uint8((1 << (element.bits - 1)) - 1)
    greatest = np.maximum.reduceat(magnitudes.max(0), starts)
    least = np.minimum.reduceat((magnitudes - np.uint8(1)).min(0), starts)
    return bits_between(least.astype(int), greatest.astype(int), element.mantissa_bits)


def bits_between(least: Array, greatest: Array, mantissa: int) -> Array:
    """Bits from the last of the smaller to the first of the larger magnitude code; the smaller one less 1, modulo 256.

    Zeros are thus no smaller ones; without any other there are no bits.
    """
    low, high = np.maximum((least + 1) >> mantissa, 1), np.maximum(greatest >> mantissa, 1)
    return np.where(greatest > 0, high - low + mantissa + 1, 0)
