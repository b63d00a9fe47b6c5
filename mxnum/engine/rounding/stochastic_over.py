"""Stochastic rounding to elements of four bits under scales that are floats.

One product of integers decides whether a number rounds up.

Let f be the factor, which is scale times tensor scale. The magnitude |x| lies between v * f and
(v + w) * f, where v and v + w are neighbouring values of the element. The gap w is a power of two,
and v is a small multiple of w. `by_factors.by_seven_places` finds v: it compares the magnitude with
thresholds, and rounds toward zero. Let R be the random bits and d = (|x| / f - v) / w. The
magnitude rounds up if floor(d * 2**30) + R is at least 2**30, which is equivalent to

    |x| * 2**30 >= f * (v * 2**30 + w * (2**30 - R)) = f * w * ((v / w + 1) * 2**30 - R).

The integer (v / w + 1) * 2**30 - R has 32 bits. Under scales of eight bits, f has at most 28
significant bits. Wider scales may give f more bits; then `mxnum.definition` rounds the block.
Scaled by a power of two, the right side of the inequality is an integer of 60 bits, held as two
words. If the left side then has fraction bits, dropping them does not change its comparison with an
integer. So the comparison needs neither division nor rounding.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from mxnum.definition.pack import SR_BITS
from mxnum.definition.random import multiply_32x32
from mxnum.definition.word import dialect, select
from mxnum.engine.machine.lanes import store
from mxnum.engine.rounding import as_float32, by_factors
from mxnum.engine.rounding.by_factors import Formulation
from mxnum.formats import ElementFormat, ScaleFormat
from mxnum.modes import Rounding

#: The greatest number of bits of a factor's significand.
_DIGITS = 28
#: `prepare` stores this exponent for a factor of zero. It makes the right side of the inequality
#: larger than the left side for every x, so no number rounds up.
_FAR = 1 << 20
_HALF = 1 << 31


@cache
def by_products(
    source: ElementFormat, element: ElementFormat, scale: ScaleFormat, target: ElementFormat | None
) -> Formulation:
    """Return the `Formulation` that rounds stochastically to codes, or to values in `target`.

    If given, `target` must equal `source`.
    """
    places = by_factors.by_seven_places(source, element, scale, Rounding.RTZ, target)
    codes = by_factors.by_seven_places(source, element, scale, Rounding.RTZ, None)
    prepare_places, code_toward_zero = places.prepare, codes.element
    factor_of, widen = by_factors._make_factor(scale), as_float32.make_widen(source)
    goes_up, COUNT = make_goes_up(element), places.constants
    LEADING, value_of = 1 << (_DIGITS - 1), by_factors.make_value_by_code(7)
    SIGN, MAX, SIGN_UP = 1 << element.mantissa_bits + element.exponent_bits, element.max_code, source.bits - 1

    @dialect
    def prepare(code, tensor, tables, b, room):
        factor = factor_of(code, tensor)
        significand = ((factor >> (53 - _DIGITS)) & (LEADING - 1)) | LEADING
        store(tables, COUNT * room + b, select(factor == 0, LEADING, significand))
        store(tables, (COUNT + 1) * room + b, select(factor == 0, _FAR, (factor >> 52) - 1023))
        has_digits = (factor & ((1 << 53 - _DIGITS) - 1)) == 0
        return prepare_places(code, tensor, tables, b, room) & has_digits

    @dialect
    def to_code(x, c, random):
        below = code_toward_zero(x, c, 0)
        magnitude = below & (SIGN - 1)
        up = goes_up(widen(x) & 0x7FFFFFFF, magnitude, c[COUNT], c[COUNT + 1], random)
        return below + select(magnitude == MAX, 0, up)

    @dialect
    def to_value(x, c, random):
        code = to_code(x, c, random)
        return value_of(code, c) | (code >> 3 << SIGN_UP)

    at, make = by_factors.rows_at(0, COUNT + 2), to_code if target is None else to_value
    return places._replace(prepare=prepare, at=at, element=make, constants=COUNT + 2)


@cache
def make_goes_up(element: ElementFormat) -> Any:
    """Return a function that returns 1 if a magnitude rounds up, and 0 otherwise.

    The function is called as `goes_up(x, code, significand, exponent, random)`. `x` has the float32
    bits of the magnitude, and `code` is the magnitude's code after rounding toward zero.
    `significand` and `exponent` describe the factor.
    """
    MANTISSA, LEAST = element.mantissa_bits, element.emin - element.mantissa_bits
    #: float32's bias plus its number of fraction bits, minus the number of fraction bits of the
    #: factor, minus the number of random bits.
    BIAS = 127 + 23 - (_DIGITS - 1) - SR_BITS

    @dialect
    def goes_up(x, code, significand, exponent, random):
        field, step = x >> 23, code >> MANTISSA
        subnormal = field == 0
        x = select(subnormal, x, (x & 0x7FFFFF) | 0x800000)
        field = select(subnormal, 1, field)
        multiple = select(step == 0, code, (1 << MANTISSA) | (code & ((1 << MANTISSA) - 1)))
        step = select(step == 0, 0, step - 1) + LEAST
        high, low = multiply_32x32(significand, ((multiple + 1) << SR_BITS) - random)
        up = field - BIAS - exponent - step
        up = select(up < -31, -31, select(up > 63, 63, up))
        # `x_high` and `x_low` are the two words of x * 2**up.
        back = 0 - up
        x_high = select(up < 0, 0, x >> 1 >> ((31 - up) & 31))
        x_high = select(up < 32, x_high, x << (up & 31))
        x_low = select(up < 0, x >> (back & 31), (x << (up & 31)) & 0xFFFFFFFF)
        x_low = select(up < 32, x_low, 0)
        # Subtracting 2**31 from both words makes the signed comparison an unsigned one.
        reaches = select(x_low - _HALF < low - _HALF, 0, 1)
        reaches = select(x_high == high, reaches, select(x_high < high, 0, 1))
        return select(random == 0, 0, reaches)

    return goes_up
