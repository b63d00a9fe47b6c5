"""Add two unpacked numbers and keep a sticky bit, so that one later rounding is correct."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mxnum.definition.unpack import FINITE, INFINITE, NAN, make_normalize
from mxnum.definition.word import dialect, select

GUARD = 3


def sum_width(width: int) -> int:
    """Return the width of a sum's significand: `width` plus guard bits plus a bit for the carry."""
    return width + GUARD + 1


def make_add(width: int) -> Callable[..., Any]:
    """Return `add(a, b)`, which adds two unpacked numbers and keeps a sticky bit.

    The arguments and the sum are tuples (sign, exponent, significand, kind). The arguments'
    significands have the width `width`, and the sum's significand has the width `sum_width(width)`.
    The last bit of the sum is the sticky bit, which is 1 if aligning the smaller number lost
    nonzero bits. The sticky bit is worth less than half a unit in the last place of a rounded sum.
    So rounding the sum to `width` or fewer bits gives the same number as rounding the exact sum. A
    sum that is exactly zero is +0 unless both numbers are -0, as IEEE 754 requires for every
    rounding except rounding downward.
    """
    FAR = width + GUARD + 1
    normalize = make_normalize(sum_width(width))

    @dialect
    def add(sign_a, exponent_a, a, kind_a, sign_b, exponent_b, b, kind_b):
        swap = select(exponent_a == exponent_b, b - a, exponent_b - exponent_a) > 0
        larger = select(swap, b, a) << GUARD
        smaller = select(swap, a, b) << GUARD
        distance = select(swap, exponent_b - exponent_a, exponent_a - exponent_b)
        distance = select(distance > FAR, FAR, distance)
        lost = smaller & ((1 << distance) - 1)
        smaller = (smaller >> distance) | select(lost == 0, 0, 1)
        total = select(sign_a == sign_b, larger + smaller, larger - smaller)
        sign = select(total == 0, sign_a & sign_b, select(swap, sign_b, sign_a))
        exponent, total = normalize(select(swap, exponent_b, exponent_a) + 1, total)
        sign = select(kind_a == FINITE, select(kind_b == FINITE, sign, sign_b), sign_a)
        kind = select(kind_a > kind_b, kind_a, kind_b)
        both_infinite = select(kind_a == INFINITE, kind_b, 0) == INFINITE
        kind = select(select(both_infinite, sign_a ^ sign_b, 0) == 1, NAN, kind)
        return sign, exponent, total, kind

    return add
