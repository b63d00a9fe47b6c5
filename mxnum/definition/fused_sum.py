"""Compute fused sums as matrix units do: align, truncate and add terms, then round once.

A term has a sign, an exponent and a significand that is not normalized. The value of a term is
significand * 2**(exponent - point), where `point` counts the fraction bits of the significand.
Words have 64 bits. The numbers that describe a matrix unit, such as its fraction bits, are
arguments of the functions, so that one compiled loop serves all units.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from mxnum.definition import add as addition
from mxnum.definition.pack import make_pack, make_round
from mxnum.definition.unpack import FINITE, INFINITE, NAN, make_normalize, make_unpack
from mxnum.definition.word import dialect, select
from mxnum.formats import ElementFormat
from mxnum.modes import Overflow, Rounding
from mxnum.units.unit import SUM_BITS, ZERO_EXPONENT

#: States of a sum: infinity, minus infinity, and NaN. The bitwise OR of the states of both
#: infinities is the state of NaN.
PLUS, MINUS, INVALID = 1, 2, 3
_WORD = 64
_FARTHEST = _WORD - 2


@cache
def make_parts(source: ElementFormat) -> Callable[..., Any]:
    """Return a function `parts(code)` that splits a float into (sign, exponent, significand, kind).

    The magnitude of a finite number is significand * 2**(exponent - m), where m is the number of
    mantissa bits. A subnormal number has the exponent of the smallest normal number; zero has
    `ZERO_EXPONENT`. An infinity or NaN has the significand 0.
    """
    BITS, MANTISSA, BIAS, MAX = source.bits, source.mantissa_bits, source.bias, source.max_code
    HAS_INFINITY, HAS_NAN = source.specials == "ieee", source.specials != "none"
    IMPLICIT = 1 << MANTISSA

    @dialect
    def parts(code):
        sign = (code >> (BITS - 1)) & 1
        magnitude = code & ((1 << (BITS - 1)) - 1)
        field = magnitude >> MANTISSA
        significand = (magnitude & (IMPLICIT - 1)) | select(field == 0, 0, IMPLICIT)
        exponent = select(field == 0, 1, field) - BIAS
        kind = FINITE
        if HAS_INFINITY:
            kind = select(magnitude > MAX + 1, NAN, select(magnitude > MAX, INFINITE, FINITE))
        elif HAS_NAN:
            kind = select(magnitude > MAX, NAN, FINITE)
        significand = select(kind == FINITE, significand, 0)
        exponent = select(significand == 0, ZERO_EXPONENT, exponent)
        return sign, exponent, significand, kind

    return parts


@dialect
def align(sign, exponent, significand, largest, left, right):
    """Divide a term by 2**(largest - F), truncate the quotient toward zero, and return the integer.

    F is the number of fraction bits that the unit keeps. The caller passes `left` = max(F - point,
    0) and `right` = max(point - F, 0), where `point` counts the fraction bits of the significand.
    `largest` is at least `exponent`, the exponent of the term.
    """
    distance = largest - exponent + right
    distance = select(distance > _FARTHEST, _FARTHEST, distance)
    magnitude = (significand << left) >> distance
    return select(sign == 0, magnitude, 0 - magnitude)


@cache
def make_finish(accumulator: ElementFormat, rounding: Rounding) -> Callable[..., Any]:
    """Return a function `finish(total, largest, fraction_bits, below, state)` that rounds a sum.

    The sum is total * 2**(largest - fraction_bits), and is rounded once. `finish` then sets the
    last `below` bits of the result to zero. If the sum is zero or rounds to zero, the result is +0.
    If the sum is beyond the largest number, the result is infinite. If `state` is `PLUS`, `MINUS`
    or `INVALID`, the result is infinity, minus infinity or NaN, and the sum is ignored. The NaN has
    all bits set except the sign.
    """
    BITS, INFINITY, ALL_ONES = accumulator.bits, accumulator.max_code + 1, (1 << (accumulator.bits - 1)) - 1
    normalize, round_magnitude = make_normalize(SUM_BITS), make_round(accumulator, rounding, SUM_BITS, _WORD)

    @dialect
    def finish(total, largest, fraction_bits, below, state):
        magnitude = select(total < 0, 0 - total, total)
        exponent, significand = normalize(largest - fraction_bits + SUM_BITS, magnitude)
        code = (round_magnitude(0, exponent, significand, 0) >> below) << below
        sign = select(code == 0, 0, select(total < 0, 1, 0))
        code = select(state == 0, code, select(state == INVALID, ALL_ONES, INFINITY))
        sign = select(state == 0, sign, select(state == MINUS, 1, 0))
        return code | (sign << (BITS - 1))

    return finish


@cache
def make_add(accumulator: ElementFormat) -> Callable[..., Any]:
    """Return a function `add(a, b)` that adds two accumulators and rounds to nearest even.

    The accumulators and their sum are bit patterns.
    """
    width = accumulator.mantissa_bits + 1
    unpack, add = make_unpack(accumulator, width), addition.make_add(width)
    pack = make_pack(accumulator, Rounding.RNE, Overflow.IEEE, addition.sum_width(width), _WORD)

    @dialect
    def add_accumulators(a, b):
        sign_a, exponent_a, significand_a, kind_a = unpack(a)
        sign_b, exponent_b, significand_b, kind_b = unpack(b)
        sign, exponent, significand, kind = add(
            sign_a, exponent_a, significand_a, kind_a, sign_b, exponent_b, significand_b, kind_b
        )
        return pack(sign, exponent, significand, kind, 0)

    return add_accumulators
