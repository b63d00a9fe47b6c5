"""The first half of every conversion: split a code into sign, exponent and significand."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from mxnum.definition.word import dialect, select
from mxnum.formats import ElementFormat

#: The kinds of unpacked numbers.
FINITE, INFINITE, NAN = 0, 1, 2

#: The exponent of zero lies below that of every number under every scale, so that rounding never
#: takes zero for a large number.
ZERO_EXPONENT = -(1 << 12)


@cache
def make_normalize(width: int) -> Callable[..., Any]:
    """Return `normalize(exponent, significand)`, which makes 2**width <= significand.

    The significand is below 2**(width+1), and the number stays the same. Zero keeps its
    significand; its exponent ends up at most ZERO_EXPONENT.
    """

    @dialect
    def normalize(exponent, significand):
        exponent = select(significand == 0, ZERO_EXPONENT, exponent)
        # A branch-free count of leading zeros, by halves.
        if width >= 32:
            z = select(significand < (1 << (width - 31)), 32, 0)
            significand = significand << z
            exponent = exponent - z
        if width >= 16:
            z = select(significand < (1 << (width - 15)), 16, 0)
            significand = significand << z
            exponent = exponent - z
        if width >= 8:
            z = select(significand < (1 << (width - 7)), 8, 0)
            significand = significand << z
            exponent = exponent - z
        if width >= 4:
            z = select(significand < (1 << (width - 3)), 4, 0)
            significand = significand << z
            exponent = exponent - z
        if width >= 2:
            z = select(significand < (1 << (width - 1)), 2, 0)
            significand = significand << z
            exponent = exponent - z
        if width >= 1:
            z = select(significand < (1 << width), 1, 0)
            significand = significand << z
            exponent = exponent - z
        return exponent, significand

    return normalize


@cache
def make_unpack(source: ElementFormat, width: int) -> Callable[..., Any]:
    """Return `unpack(code)`, which splits a code into (sign, exponent, significand, kind).

    |value| = significand * 2**(exponent - width). A nonzero finite significand is normalized:
    2**width <= significand < 2**(width+1); zero has an exponent of at most ZERO_EXPONENT. `kind` is
    FINITE, INFINITE or NAN. For INFINITE and NAN the exponent and significand have no meaning, but
    stay within the word.
    """
    BITS = source.bits
    MANTISSA = source.mantissa_bits
    MAGNITUDE_MASK = (1 << (BITS - 1)) - 1
    MANTISSA_MASK = (1 << MANTISSA) - 1
    IMPLICIT = 1 << MANTISSA
    BIAS = source.bias
    WIDEN = width - MANTISSA
    INTEGER = source.integer
    HAS_INFINITY = source.specials == "ieee"
    HAS_NAN = source.specials != "none"
    MAX = source.max_code
    normalize = make_normalize(width)

    @dialect
    def unpack(code):
        sign = (code >> (BITS - 1)) & 1
        magnitude = code & MAGNITUDE_MASK
        if INTEGER:  # two's complement; the most negative code has magnitude 2**(BITS-1)
            magnitude = select(sign == 0, magnitude, (1 << (BITS - 1)) - magnitude)
        field = magnitude >> MANTISSA
        fraction = magnitude & MANTISSA_MASK
        significand = select(field == 0, fraction, fraction | IMPLICIT) << WIDEN
        exponent = select(field == 0, 1, field) - BIAS
        exponent, significand = normalize(exponent, significand)
        kind = FINITE
        if HAS_INFINITY:
            kind = select(magnitude > MAX + 1, NAN, select(magnitude > MAX, INFINITE, FINITE))
        elif HAS_NAN:
            kind = select(magnitude > MAX, NAN, FINITE)
        return sign, exponent, significand, kind

    return unpack
