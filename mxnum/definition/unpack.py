"""Split a code into sign, exponent and significand: the first half of every conversion."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from mxnum.definition.word import dialect, select
from mxnum.formats import ElementFormat

#: Values of `kind`, the class of an unpacked number.
FINITE, INFINITE, NAN = 0, 1, 2

#: The exponent of zero. It is smaller than the exponent of any nonzero number under any scale, so
#: that rounding never treats a zero as a large number.
ZERO_EXPONENT = -(1 << 12)


@cache
def make_normalize(width: int) -> Callable[..., Any]:
    """Return `normalize(exponent, significand)`, which shifts the significand to at least 2**width.

    The argument `significand` must be below 2**(width+1). The exponent decreases by the shift, so
    the number remains the same. A significand of zero stays zero, and its exponent becomes
    ZERO_EXPONENT or less.
    """

    @dialect
    def normalize(exponent, significand):
        exponent = select(significand == 0, ZERO_EXPONENT, exponent)
        # Shift out the leading zeros in steps of 32, 16, 8, 4, 2 and 1 bits, without branches.
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

    |value| = significand * 2**(exponent - width). The significand of a nonzero finite number is
    normalized: 2**width <= significand < 2**(width+1). Zero has an exponent of ZERO_EXPONENT or
    less. `kind` is FINITE, INFINITE or NAN. If `kind` is INFINITE or NAN, the exponent and the
    significand have no meaning, but they do not overflow the integer type.
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
