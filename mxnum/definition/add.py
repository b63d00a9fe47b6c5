"""The exact sum of two unpacked numbers, with a sticky bit for one later correct rounding."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mxnum.definition.unpack import FINITE, INFINITE, NAN, make_normalize
from mxnum.definition.word import dialect, select

GUARD = 3


def sum_width(width: int) -> int:
    """Return the significand width of the sum of two numbers of `width`: guard bits and a carry."""
    return width + GUARD + 1


def make_add(width: int) -> Callable[..., Any]:
    """Return `add(a, b)`, which sums two unpacked numbers of `width` exactly up to a sticky bit.

    Each number is given as sign, exponent, significand and kind; so is the sum, at
    `sum_width(width)`. Nonzero bits lost in aligning the smaller number are kept as a one in the
    last bit. That bit lies below the half of whatever a rounding to `width` or fewer bits discards,
    so the rounded result is the same as for the exact sum. An exact zero is +0 unless both numbers
    are -0, as IEEE 754 requires for every rounding but downward.
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
