"""Fast formulations for scales that are floats: float64 products, quotients and comparisons.

A *factor* is scale times tensor scale. A factor has at most 11 + 24 significant bits, so a float64
number holds it exactly. The product of a factor and a value of an element, or of a factor and a
midpoint of two values, is also exact in float64. A *threshold* is a magnitude at which the result
of rounding changes.

Elements of four bits have seven thresholds. For each block, a loop multiplies each threshold by the
factor once; these products are exact. Comparing abs(x) with the products rounds x without a
division. Three of the seven thresholds of E2M1 are 2 or 4 times another threshold, so four products
suffice. Each value of E2M1 is 1 or 1.5 times a power of two, so two products give all values.

For larger elements, loops compute the quotient abs(x) / factor in float64, and `as_float32` and
`float_additions` round the quotient at scale 1. The quotient lies on the same side of every
threshold as the exact quotient, because the rounding error is too small to cross a threshold. A
threshold has at most 8 bits, so threshold * factor has at most 43 bits. The magnitude abs(x) has at
most 48 bits, because float64 inputs are first rounded to odd, to 48 bits. If abs(x) differs from
threshold * factor, the relative difference is at least 2**-48. Rounding the quotient to 53 bits has
a relative error of at most 2**-53.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from mxnum.definition.float_scale import number_of
from mxnum.definition.word import dialect, select
from mxnum.engine.machine.float64_words import add_float64, divide_float64, multiply_float64, subtract_float64
from mxnum.engine.machine.lanes import (
    float16_to_float32,
    float32_to_float16,
    float32_to_float64,
    float64_to_float32,
    load,
    low_word,
    store,
    wide,
)
from mxnum.engine.rounding import as_float32, float_additions, paths
from mxnum.engine.rounding.as_float32 import to_odd_by_conversion
from mxnum.formats import FLOATS, ElementFormat, ScaleFormat
from mxnum.modes import FloatScaleRule, Overflow, Rounding, which

UNIT = 127
_BIAS, _MANTISSA = 1023, 52
_NEVER, _NEVER_WIDE = 0x7FFFFFFF, 0x7FFFFFFFFFFFFFFF
#: The bit pattern of 2**100, a quotient that is larger than every element.
_GREATEST = (UNIT + 100) << 23
#: A float64 number above every finite factor and above every scale.
_HUGE = (_BIAS + 700) << _MANTISSA
#: If a factor is zero, numbers are divided by infinity instead, so that all quotients are zero.
_INFINITY = 0x7FF << _MANTISSA
#: Nonzero float64 numbers below 2**-600 become 2**-600, which is far below every nonzero product
#: threshold * factor.
_TINY = (_BIAS - 600) << _MANTISSA
#: Input types for which loops process several numbers at once, in vectors.
_IN_VECTORS = "float32", "bfloat16"
#: Adding `_DOUBLE` to the bits of a normal float32 number doubles the number. For factors from
#: `_DOUBLES_FROM` to below `_DOUBLES_TO`, thresholds and values are normal numbers.
_DOUBLE, _DOUBLES_FROM, _DOUBLES_TO = 1 << 23, (_BIAS - 125) << _MANTISSA, (_BIAS + 125) << _MANTISSA


class Formulation(NamedTuple):
    """The functions with which a loop converts the elements of blocks that have float scales."""

    #: `prepare(scale code, tensor scale, tables, block, room)` computes the constants of a block,
    #: and returns True if the formulation is right for the two scales. The tables have a row of
    #: `room` entries for each constant, so `prepare` writes constant i of the block to
    #: `tables[i * room + block]`. The scale code and the tensor scale are 64-bit words.
    prepare: Callable[..., Any]
    #: `at(tables, block, room)` returns the constants that were computed for a block.
    at: Callable[..., Any]
    #: `element(item, constants, random bits)` converts one float or code.
    element: Callable[..., Any]
    #: `constants` is the number of values that are computed for a block from its scale and the
    #: tensor scale. `is_wide` is True if constants have 64 bits.
    constants: int
    is_wide: bool
    #: True if `element` takes items and random bits as words of 64 bits.
    in_wide_words: bool
    #: True if `element` also accepts vectors of 32-bit integers.
    in_vectors: bool = False
    #: A function with the parameters of `prepare` that computes the remaining constants; None if
    #: `prepare` computes all constants.
    prepare_more: Callable[..., Any] | None = None


#: Pairs (function, number), one for each constant of a block. If the block has the factor f, the
#: constant is function(f, number).
Entries = tuple[tuple[Callable[..., Any], int], ...]


def _bits(number: float) -> int:
    return int(np.float64(number).view(np.int64))


@cache
def make_number_of_scale(scale: ScaleFormat) -> Callable[..., Any]:
    """Return `number_of_scale(code)`, which returns the float64 bits of a scale.

    For the codes of NaN and infinity, the result is meaningless.
    """
    number = number_of(scale)
    MANTISSA, UP = number.mantissa_bits, _MANTISSA - number.mantissa_bits
    LEAST, REBIAS = (_BIAS + number.emin) << _MANTISSA, (_BIAS - number.bias) << _MANTISSA

    @dialect
    def number_of_scale(code):
        moved = code << UP
        subnormal = subtract_float64(moved + LEAST, LEAST)
        return select(code < (1 << MANTISSA), subnormal, moved + REBIAS)

    return number_of_scale


@cache
def make_number(source: ElementFormat) -> Callable[..., Any]:
    """Return `number(x)`, which returns the float64 bits of abs(x).

    If `source` is float64, `number` rounds abs(x) to odd, to 48 bits.
    """

    @dialect
    def of_float32(x):
        return float32_to_float64(low_word(x & 0x7FFFFFFF))

    @dialect
    def of_bfloat16(x):
        return float32_to_float64(low_word((x & 0x7FFF) << 16))

    @dialect
    def of_float16(x):
        return float32_to_float64(float16_to_float32(low_word(x & 0x7FFF)))

    @dialect
    def of_float64(x):
        magnitude = x & _NEVER_WIDE
        leading = (magnitude & -32) | select((magnitude & 31) == 0, 0, 32)
        return select(magnitude == 0, 0, select(leading < _TINY, _TINY, leading))

    return {"float32": of_float32, "bfloat16": of_bfloat16, "float16": of_float16, "float64": of_float64}[source.name]


@cache
def make_scale(
    source: ElementFormat, element: ElementFormat, scale: ScaleFormat, rule: FloatScaleRule, aim: int | None = None
) -> Callable[..., Any]:
    """Return `fast_float_scale(amax, tensor)`, which returns the scale code of a block.

    `fast_float_scale` equals the function that `definition.float_scale.make_float_scale` returns.
    `fast_float_scale` divides in float64 and rounds the quotient by an addition.
    """
    number, goal = number_of(scale), _bits(element.max if aim is None else element.value(aim))
    MANTISSA, MAX, EMIN = number.mantissa_bits, number.max_code, _BIAS + number.emin
    number_of_x, ROUNDS_UP = make_number(source), rule.rounds_up

    @dialect
    def fast_float_scale(amax, tensor):
        divisor = multiply_float64(float32_to_float64(low_word(tensor)), goal)
        quotient = divide_float64(number_of_x(amax), divisor)
        quotient = select(quotient > _HUGE, _HUGE, quotient)  # A larger quotient would make `magic` infinite or NaN.
        field = quotient >> _MANTISSA
        field = select(field < EMIN, EMIN, field)
        magic = (field + (_MANTISSA - MANTISSA)) << _MANTISSA
        total = add_float64(quotient, magic)
        code = ((field - EMIN) << MANTISSA) + (total - magic)
        if ROUNDS_UP:
            code = code + select(subtract_float64(total, magic) < quotient, 1, 0)
        return select(code > MAX, MAX, code)

    return fast_float_scale


def _places(element: ElementFormat, rounding: Rounding) -> list[tuple[float, bool]]:
    """Return `(threshold, inclusive)` for each code above 0.

    Magnitudes above the threshold round to this code or to a larger code. If `inclusive`, the
    threshold itself rounds to this code; otherwise the threshold rounds to the next lower code.
    """
    nearest_even, nearest_away, toward_zero, to_odd = which(
        rounding, Rounding.RNE, Rounding.RNA, Rounding.RTZ, Rounding.RTO
    )
    made = []
    for code, (low, high) in enumerate(pairwise(element.value(code) for code in range(element.max_code + 1)), 1):
        if nearest_even or nearest_away:
            made.append(((low + high) / 2, nearest_away or code % 2 == 0))
        elif toward_zero or (to_odd and code % 2 == 0):
            made.append((high, True))
        else:
            made.append((low, False))
    return made


def _thresholds(element: ElementFormat, rounding: Rounding, is_wide: bool) -> Entries:
    """Return `Entries` for the seven thresholds of an element of four bits."""
    how, places = (_first_from(is_wide), _NEVER_WIDE if is_wide else _NEVER), _places(element, rounding)
    return tuple((_make_threshold(*how, inclusive), _bits(place)) for place, inclusive in places)


def _values(element: ElementFormat, target: ElementFormat) -> Entries:
    """Return `Entries` for the values of codes 1 to 7, rounded to a float type."""
    value = _make_value(make_narrow(target))
    return tuple((value, _bits(element.value(code))) for code in range(1, 8))


@cache
def _make_threshold(first_from: Callable[..., Any], never: int, inclusive: bool) -> Callable[..., Any]:
    """Return `threshold(factor, place)`, which returns the least magnitude above place * factor.

    If `inclusive`, `threshold` returns the least magnitude that is at least place * factor. For a
    factor of 0, `threshold` returns `never`, which is larger than every finite magnitude.
    """
    INCLUSIVE, NEVER = inclusive, never

    @dialect
    def threshold(factor, place):
        return select(factor == 0, NEVER, first_from(multiply_float64(factor, place), INCLUSIVE))

    return threshold


@cache
def _make_value(narrow: Callable[..., Any]) -> Callable[..., Any]:
    """Return `value(factor, number)`, which returns factor * number, rounded to a float type."""

    @dialect
    def value(factor, number):
        return narrow(multiply_float64(factor, number))

    return value


@cache
def _store_rows(row: int, entries: Entries) -> Callable[..., Any]:
    """Return `store_rows(factor, tables, b, room)`, which stores the entries of block `b`.

    `store_rows` stores entry i in row `row` + i of the tables.
    """
    (of_factor, NUMBER), *others = entries
    store_others: Any = _store_rows(row + 1, tuple(others)) if others else None
    IS_LAST = store_others is None

    @dialect
    def store_rows(factor, tables, b, room):
        store(tables, row * room + b, of_factor(factor, NUMBER))
        if not IS_LAST:
            store_others(factor, tables, b, room)

    return store_rows


@cache
def rows_at(row: int, count: int) -> Callable[..., Any]:
    """Return `at(tables, b, room)`, which returns the constants of block `b`.

    The tables hold these constants in `count` consecutive rows, beginning with row `row`.
    """
    others: Any = rows_at(row + 1, count - 1) if count > 1 else None
    IS_LAST = count == 1

    @dialect
    def at(tables, b, room):
        if IS_LAST:
            return (load(tables, row * room + b),)
        return (load(tables, row * room + b),) + others(tables, b, room)

    return at


@cache
def _value_above(row: int) -> Callable[..., Any]:
    """Return `value(magnitude, c)`, which returns the value to which a magnitude rounds.

    The thresholds are c[0], c[1], ..., and the values are c[7], c[8], .... The result is
    c[i + 7] for the largest i <= `row` with c[i] <= magnitude, or 0 if there is no such i.
    """
    value_of_others: Any = None if row == 0 else _value_above(row - 1)
    IS_FIRST = row == 0

    @dialect
    def value(magnitude, c):
        below = 0 if IS_FIRST else value_of_others(magnitude, c)
        return select(magnitude < c[row], below, c[row + 7])

    return value


@cache
def make_value_by_code(first: int) -> Callable[..., Any]:
    """Return `value(code, c)`, which returns the magnitude of a code of four bits.

    The magnitude is 0 or one of the seven constants c[first], c[first + 1], ....
    """

    @dialect
    def value(code, c):
        odd, second = (code & 1) == 0, (code & 2) == 0
        low = select(second, select(odd, 0, c[first]), select(odd, c[first + 1], c[first + 2]))
        high = select(second, select(odd, c[first + 3], c[first + 4]), select(odd, c[first + 5], c[first + 6]))
        return select((code & 4) == 0, low, high)

    return value


def by_places(
    source: ElementFormat, element: ElementFormat, scale: ScaleFormat, rounding: Rounding, target: ElementFormat | None
) -> Formulation:
    """Return the `Formulation` that rounds to elements of four bits by comparing with thresholds.

    The results are values if `target` is given, else codes. `target` must equal `source`.
    """
    make = by_doublings if element.mantissa_bits == 1 and source.name in _IN_VECTORS else by_seven_places
    return make(source, element, scale, rounding, target)


@cache
def by_seven_places(
    source: ElementFormat, element: ElementFormat, scale: ScaleFormat, rounding: Rounding, target: ElementFormat | None
) -> Formulation:
    """Return the `Formulation` that rounds by comparisons to any element of four bits.

    The factor multiplies each of the seven thresholds. If `target` is given, the factor also
    multiplies each of the seven values.
    """
    IS_WIDE, MAKES_VALUES, FLIP = source.bits == 64, target is not None, -1 if element.integer else 0
    SIGN_DOWN, MAGNITUDE = (63, _NEVER_WIDE) if IS_WIDE else (31, _NEVER)
    SIGN_UP = 0 if target is None else target.bits - 1
    KEEPS_ZERO_SIGN = not element.integer
    factor_of, widen, value_above = _make_factor(scale), as_float32.make_widen(source), _value_above(6)
    store_thresholds = _store_rows(0, _thresholds(element, rounding, IS_WIDE))
    store_values = _store_rows(7, _values(element, target or FLOATS["float32"]))

    @dialect
    def prepare(code, tensor, tables, b, room):
        factor = factor_of(code, tensor)
        store_thresholds(factor, tables, b, room)
        return factor < _HUGE

    @dialect
    def prepare_values(code, tensor, tables, b, room):
        if MAKES_VALUES:
            store_values(factor_of(code, tensor), tables, b, room)

    @dialect
    def to_code(x, c, random):
        x = x if IS_WIDE else widen(x)
        magnitude = x & MAGNITUDE
        # Thresholds ascend, so a binary search needs three comparisons instead of seven.
        low = magnitude < c[3]
        lower = magnitude < select(low, c[1], c[5])
        lowest = magnitude < select(low, select(lower, c[0], c[2]), select(lower, c[4], c[6]))
        code = select(low, 0, 4) + select(lower, 0, 2) + select(lowest, 0, 1)
        sign = x >> SIGN_DOWN
        if FLIP:
            return ((code ^ sign) - sign) & 15
        return code | (sign & 8)

    @dialect
    def to_value(x, c, random):
        x = x if IS_WIDE else widen(x)
        magnitude = x & MAGNITUDE
        value, sign = value_above(magnitude, c), (x >> SIGN_DOWN) << SIGN_UP
        if KEEPS_ZERO_SIGN:
            return value | sign
        return select(magnitude < c[0], 0, value | sign)

    make, count, more = (to_value, 14, prepare_values) if MAKES_VALUES else (to_code, 7, None)
    return Formulation(prepare, rows_at(0, count), make, count, IS_WIDE, IS_WIDE, source.name in _IN_VECTORS, more)


@cache
def by_doublings(
    source: ElementFormat, element: ElementFormat, scale: ScaleFormat, rounding: Rounding, target: ElementFormat | None
) -> Formulation:
    """Return the `Formulation` that rounds to E2M1 by comparisons.

    Above the least normal number of the element, thresholds and values double from binade to
    binade. Normal numbers may be doubled before or after rounding, because doubling only adds 1 to
    the exponent. So one product gives the thresholds or values of several binades. The definition
    converts the blocks whose thresholds or values may be subnormal or infinite.
    """
    MAKES_VALUES = target is not None
    (p3, f3), (p4, f4) = ((_bits(place), on) for place, on in _places(element, rounding)[2:4])
    store_first = _store_rows(0, _thresholds(element, rounding, False)[:2])
    UNIT_VALUE, MORE = (_bits(element.value(code)) for code in (2, 3))
    BITS = 32 if target is None else target.bits
    DOWN, SIGN_UP, DOUBLE_VALUE = 32 - BITS, BITS - 1, _DOUBLE >> (32 - BITS)
    factor_of, widen, first_from = _make_factor(scale), as_float32.make_widen(source), _first_from(False)
    narrow: Any = None if target is None else make_narrow(target)

    @dialect
    def prepare(code, tensor, tables, b, room):
        factor = factor_of(code, tensor)
        is_zero = factor == 0
        fourth = first_from(multiply_float64(factor, p4), f4)
        store_first(factor, tables, b, room)
        store(tables, 2 * room + b, first_from(multiply_float64(factor, p3), f3))
        store(tables, 3 * room + b, select(is_zero, _NEVER, fourth))
        store(tables, 4 * room + b, fourth + _DOUBLE)
        return is_zero | ((factor >= _DOUBLES_FROM) & (factor < _DOUBLES_TO))

    @dialect
    def prepare_values(code, tensor, tables, b, room):
        if MAKES_VALUES:
            factor = factor_of(code, tensor)
            unit = narrow(multiply_float64(factor, UNIT_VALUE))
            store(tables, 5 * room + b, unit)
            store(tables, 6 * room + b, narrow(multiply_float64(factor, MORE)))
            store(tables, 7 * room + b, unit - DOUBLE_VALUE)

    @dialect
    def compared(magnitude, c):
        # Thresholds ascend, so a binary search needs three comparisons instead of seven.
        low = magnitude < c[3]
        lower = magnitude < select(low, c[1], c[4])
        doubled = select(low, 0, select(lower, _DOUBLE, 2 * _DOUBLE))
        third = c[2] + doubled
        return low, lower, magnitude < select(low, select(lower, c[0], third), third), doubled

    @dialect
    def to_code(x, c, random):
        x = widen(x)
        low, lower, lowest, _ = compared(x & _NEVER, c)
        return (select(low, 0, 4) + select(lower, 0, 2) + select(lowest, 0, 1)) | ((x >> 31) & 8)

    @dialect
    def to_value(x, c, random):
        x = widen(x)
        low, lower, lowest, doubled = compared(x & _NEVER, c)
        value = select(lowest, c[5], c[6]) + (doubled >> DOWN)
        value = select(low, select(lower, select(lowest, 0, c[7]), value), value)
        return value | ((x >> 31) << SIGN_UP)

    make, count, more = (to_value, 8, prepare_values) if MAKES_VALUES else (to_code, 5, None)
    at = rows_at(0, count)
    return Formulation(prepare, at, make, count, is_wide=False, in_wide_words=False, in_vectors=True, prepare_more=more)


@cache
def by_quotients(
    source: ElementFormat,
    element: ElementFormat,
    scale: ScaleFormat,
    rounding: Rounding,
    overflow: Overflow,
    target: ElementFormat | None,
) -> Formulation | None:
    """Return the `Formulation` that rounds float64 quotients to any element.

    The result is None if the rounding is stochastic or if `reaches(element)` is False.
    """
    if not reaches(element) or rounding.is_stochastic:
        return None
    overflow = overflow.of(element.specials)
    constants = float_additions.constants(element, rounding, overflow)
    to_code = float_additions.make_code(rounding, float_additions.breaks_ties_by_parity(element))
    factor_of, number_of_x, value_of = _make_factor(scale), make_number(source), _make_value_of(element, target)
    SIGN_DOWN = source.bits - 1

    @dialect
    def prepare(code, tensor, tables, b, room):
        factor = factor_of(code, tensor)
        store(tables, b, select(factor == 0, _INFINITY, factor))
        store(tables, room + b, factor)
        return factor < _HUGE

    @dialect
    def element_of(x, c, random):
        quotient = to_odd_by_conversion(divide_float64(number_of_x(x), c[0]))
        quotient = select(quotient > _GREATEST, _GREATEST, quotient)
        signed = quotient | low_word(0 - ((wide(x) >> SIGN_DOWN) & 1) << 31)
        return value_of(to_code(signed, UNIT, low_word(0), constants), c[1])

    return Formulation(prepare, rows_at(0, 2), element_of, 2, is_wide=True, in_wide_words=True)


def reaches(element: ElementFormat) -> bool:
    """Return True if theorems prove that `float_additions` is right for an element at scale 1."""
    if not paths.ROUNDING.covers(_FLOAT32, element) or not paths.DECODING.covers(_FLOAT32, element):
        return False
    least, greatest, _ = float_additions.domain(element, Rounding.RNE)
    least_value, greatest_value = float_additions.decoding_domain(element)
    return max(least, least_value) <= UNIT <= min(greatest, greatest_value) and abs(element.bias) < 64


_FLOAT32 = FLOATS["float32"]


@cache
def decoding(element: ElementFormat, scale: ScaleFormat, target: ElementFormat) -> Formulation | None:
    """Return the `Formulation` that decodes codes, or None if `reaches(element)` is False."""
    if not reaches(element):
        return None
    if element.bits == 4 and not element.integer and target.name == "float32":
        return _by_values(element, scale)
    factor_of, value_of = _make_factor(scale), _make_value_of(element, target)
    LEAST = 0 if element.infinity_code is None else 1  # 0 * infinity is NaN, so the definition handles a factor of 0.

    @dialect
    def prepare(code, tensor, tables, b, room):
        factor = factor_of(code, tensor)
        store(tables, b, factor)
        return (factor >= LEAST) & (factor < _HUGE)

    @dialect
    def value(code, c, random):
        return value_of(low_word(code), c[0])

    return Formulation(prepare, rows_at(0, 1), value, 1, is_wide=True, in_wide_words=True)


def _by_values(element: ElementFormat, scale: ScaleFormat) -> Formulation:
    """Return the `Formulation` that decodes codes of four bits to float32.

    `prepare` computes the seven magnitudes of a block, and `element` selects one of them by the
    code.
    """
    factor_of, store_values = _make_factor(scale), _store_rows(0, _values(element, FLOATS["float32"]))
    value_of = make_value_by_code(0)

    @dialect
    def prepare(code, tensor, tables, b, room):
        factor = factor_of(code, tensor)
        store_values(factor, tables, b, room)
        return factor < _HUGE

    @dialect
    def value(code, c, random):
        return value_of(code, c) | ((code >> 3) << 31)

    return Formulation(prepare, rows_at(0, 7), value, 7, is_wide=False, in_wide_words=False, in_vectors=True)


@cache
def _make_factor(scale: ScaleFormat) -> Callable[..., Any]:
    """Return `factor(code, tensor)`, which returns the float64 bits of scale times tensor scale.

    The bits are above `_HUGE` if the scale or the tensor scale is not finite.
    """
    number, LIMIT = make_number_of_scale(scale), number_of(scale).max_code

    @dialect
    def factor(code, tensor):
        product = multiply_float64(number(code), float32_to_float64(low_word(tensor)))
        # The bits of a NaN whose sign bit is set are a negative integer.
        return select(code > LIMIT, _NEVER_WIDE, select(product < 0, _NEVER_WIDE, product))

    return factor


@cache
def _first_from(is_wide: bool) -> Callable[..., Any]:
    """Return `first(threshold, inclusive)`, which returns the least magnitude above a threshold.

    If `inclusive`, `first` returns the least magnitude that is at least the threshold. The
    threshold is a float64 bit pattern; magnitudes are bit patterns of float32, or of float64 if
    `is_wide`.
    """

    @dialect
    def first_wide(place, from_on):
        return place if from_on else place + 1

    @dialect
    def first(place, from_on):
        near = float64_to_float32(place)
        back = float32_to_float64(near)
        return near + (select(back < place, 1, 0) if from_on else select(back <= place, 1, 0))

    return first_wide if is_wide else first


@cache
def make_narrow(target: ElementFormat) -> Callable[..., Any]:
    """Return `narrow(number)`, which rounds a nonnegative float64 number to `target`.

    `narrow` rounds once, to nearest even, and takes and returns bit patterns.
    """

    @dialect
    def to_odd(number):
        near = float64_to_float32(number)
        back = float32_to_float64(near)
        below = near - select(back > number, 1, 0)
        return below | select(back == number, 0, 1)

    @dialect
    def to_float64(number):
        return number

    @dialect
    def to_float32(number):
        return float64_to_float32(number)

    @dialect
    def to_bfloat16(number):
        odd = to_odd(number)
        return (odd + 0x7FFF + ((odd >> 16) & 1)) >> 16

    @dialect
    def to_float16(number):
        return float32_to_float16(to_odd(number))

    return {"float64": to_float64, "float32": to_float32, "bfloat16": to_bfloat16, "float16": to_float16}[target.name]


@cache
def _make_value_of(element: ElementFormat, target: ElementFormat | None) -> Callable[..., Any]:
    """Return `value(code, factor)`, which returns the code's value times the factor.

    The result is a bit pattern of the type `target`. If `target` is None, `value` returns the code
    itself.
    """

    @dialect
    def unchanged(code, factor):
        return code

    if target is None:
        return unchanged
    constants, narrow = float_additions.constants(element), make_narrow(target)
    decode = float_additions.value_of_code
    INFINITY, NAN, UP = target.max_code + 1, target.nan_code, target.bits - 1

    @dialect
    def value(code, factor):
        value = decode(code, UNIT, constants)
        magnitude = value & 0x7FFFFFFF
        number = narrow(multiply_float64(float32_to_float64(magnitude), factor))
        special = select(magnitude > 0x7F800000, NAN, INFINITY)
        sign = (wide(value) >> 31) & select(magnitude > 0x7F800000, 0, 1)
        return wide(select(magnitude < 0x7F800000, number, special)) | (sign << UP)

    return value
