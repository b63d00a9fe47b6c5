"""The functions that loops call for each element of an array, and the types of such functions.

Each function is either a fast formulation or taken from `mxnum.definition`. One fast formulation
serves all element formats, whereas `mxnum.definition` has a separate function for each conversion.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from mxnum.definition.convert import make_decode, make_encode
from mxnum.definition.float_scale import make_decode_over, make_encode_over, make_factor
from mxnum.definition.scale import make_scale_of, scale_constants, scale_width
from mxnum.definition.word import dialect, word_bits
from mxnum.engine.machine.lanes import lane, load, store, wide
from mxnum.engine.rounding import any_scale, as_float32, float_additions, paths
from mxnum.engine.rounding.any_scale import value_of_code_anywhere
from mxnum.engine.rounding.as_float32 import leading_part, rest
from mxnum.engine.rounding.by_factors import Formulation
from mxnum.engine.rounding.float_additions import Constants, Domain
from mxnum.formats import ElementFormat, ScaleFormat
from mxnum.memory.dtypes import Array
from mxnum.modes import Overflow, Rounding, ScaleRule


class Fast(NamedTuple):
    """A fast function for all element formats, and the numbers that describe one of the formats."""

    #: `function(x, scale, random, constants)` converts one number.
    function: Callable[..., Any]
    #: An argument of the loop: the fields of the `Domain`, then the fields of the `Constants`.
    numbers: Array
    #: `function` with its constants compiled in, which is at least a fifth faster; None for less
    #: common conversions.
    special: Callable[..., Any] | None = None


#: The value of `numbers` for a function that needs neither a `Domain` nor `Constants`.
NO_NUMBERS = np.zeros(len(Domain._fields) + len(Constants._fields), np.int32)


@dataclass(frozen=True)
class Definition:
    """One conversion by `mxnum.definition`, as `function(x, scale, random, constants)`.

    The functions that `quantizing_anywhere` and `decoding_anywhere` return are right only for a
    finite x and a scale that is not NaN. Any other function in a `Definition` accepts every x and
    every scale. Two `Definition` objects compare equal if one compiled loop serves both.
    """

    function: Callable[..., Any]
    #: True if every intermediate result fits in 32 bits, so that a loop may compute with 32-bit
    #: integers.
    in_lanes: bool
    #: The array from which the loop makes the constants that it passes to `function`.
    numbers: Array = field(default_factory=lambda: NO_NUMBERS, compare=False)

    @property
    def word(self) -> Callable[[Any], Any]:
        """The function with which a loop converts scales and random bits to the type of x."""
        return lane if self.in_lanes else wide


@dialect
def numbers_given(numbers):
    """Return the `Domain` and the `Constants` that an array `Fast.numbers` holds."""
    limits = Domain(int(numbers[0]), int(numbers[1]), int(numbers[2]))
    n = numbers
    return limits, Constants(
        int(n[3]), int(n[4]), int(n[5]), int(n[6]), int(n[7]), int(n[8]), int(n[9]), int(n[10]), int(n[11]),
        int(n[12]), int(n[13]), int(n[14]), int(n[15]), int(n[16]), int(n[17]), int(n[18]), int(n[19]),
        int(n[20]), int(n[21]), int(n[22]),
    )  # fmt: skip


#: The float types and roundings for which loops are also compiled with the constants of one
#: element.
_COMMON = (("float32", Rounding.RNE), ("float32", Rounding.SR), ("float64", Rounding.RNE))


@cache
def _with_constants(function: Callable[..., Any], constants: float_additions.Constants) -> Callable[..., Any]:
    """Return `function` with the constants of one element compiled in.

    A loop still passes its own constants as the fourth argument, but the returned function ignores
    this argument.
    """

    @dialect
    def with_constants(x, scale, random, unused):
        return function(x, scale, random, constants)

    return with_constants


def _limits(least: int, greatest: int, greatest_x: int) -> Domain:
    """Return the `Domain` with these limits; clip the scales to the range 0 to `LAST_SCALE`."""
    return Domain(max(least, 0), min(greatest, float_additions.LAST_SCALE), greatest_x)


def _numbers(limits: Domain, constants: float_additions.Constants) -> Array:
    return np.array([*limits, *constants], np.int32)


@cache
def fast_quantizing(
    source: ElementFormat,
    element: ElementFormat,
    rounding: Rounding,
    overflow: Overflow,
    rule: ScaleRule,
    target: ElementFormat | None,
) -> Fast | None:
    """Return the `Fast` conversion from floats to codes, or to values in `target`.

    The result is None if `paths` lists no fast conversion for these formats and modes.
    """
    can_round = paths.rounds_fast(source, element, rounding, rule)
    if not can_round or (target is not None and not paths.DECODING.covers(target, element)):
        return None
    overflow = overflow.of(element.specials)
    least, greatest, greatest_x = float_additions.domain(element, rounding)
    by_parity = float_additions.breaks_ties_by_parity(element)
    has_values = paths.VALUES.covers(float_additions.FLOAT32, element)
    if target is None or not has_values:
        function = _rounding(source, rounding, float_additions.make_code(rounding, by_parity))
    else:
        function = _rounding(source, rounding, float_additions.make_value(rounding, by_parity))
    if target is not None:
        function = _valuing(function, not has_values, target)
    if target is not None and not (has_values and target.name == "float32"):
        least_value, greatest_value = float_additions.decoding_domain(element)
        least, greatest = max(least, least_value), min(greatest, greatest_value)
    special = None
    if has_values and (source.name, rounding) in _COMMON:
        special = _with_constants(function, float_additions.constants(element, rounding, overflow))
    constants = float_additions.constants(element, rounding, overflow, rule)
    return Fast(function, _numbers(_limits(least, greatest, greatest_x), constants), special)


@cache
def fast_decoding(element: ElementFormat, target: ElementFormat) -> Fast | None:
    """Return the `Fast` conversion from codes to their values under the scale.

    The result is None if `paths` lists no fast conversion for the two formats.
    """
    if not paths.DECODING.covers(target, element):
        return None
    function, constants, domain = (
        _decoding(target),
        float_additions.constants(element),
        float_additions.decoding_domain(element),
    )
    special = None
    if paths.PRODUCTS.covers(target, element):
        special, domain = (
            _with_constants(_by_product(element, target), constants),
            float_additions.product_domain(element),
        )
    return Fast(function, _numbers(_limits(*domain, 0), constants), special)


@cache
def quantizing_anywhere(
    source: ElementFormat,
    element: ElementFormat,
    rounding: Rounding,
    overflow: Overflow,
    target: ElementFormat | None,
) -> Definition | None:
    """Return `fast_quantizing`'s conversion in a version without limits on x and the scale.

    This version is right for every finite x and every scale except NaN. The result is None if
    `paths` lists no such version for these formats and modes.
    """
    reaches_all = paths.BEYOND.covers(source, element, rounding=rounding)
    if not reaches_all or (target is not None and target.name != "float32"):
        return None
    overflow, by_parity = overflow.of(element.specials), float_additions.breaks_ties_by_parity(element)
    make = any_scale.make_code_anywhere if target is None else any_scale.make_value_anywhere
    function = _rounding(source, rounding, make(rounding, by_parity))
    return _anywhere(function, float_additions.constants(element, rounding, overflow))


@cache
def decoding_anywhere(element: ElementFormat, target: ElementFormat) -> Definition | None:
    """Return `fast_decoding`'s conversion in a version that is right for every scale except NaN.

    The result is None if `paths` lists no such version for the two formats.
    """
    if target.name != "float32" or not paths.BEYOND.covers(target, element):
        return None

    return _anywhere(_decode_anywhere, float_additions.constants(element))


@dialect
def _decode_anywhere(code, scale, random, e):
    return value_of_code_anywhere(code, scale, e)


def _anywhere(function: Callable[..., Any], constants: float_additions.Constants) -> Definition:
    return Definition(function, True, _numbers(_limits(0, float_additions.LAST_SCALE, 0), constants))


@cache
def quantizing(source: ElementFormat, target: ElementFormat, rounding: Rounding, overflow: Overflow) -> Definition:
    """Return the conversion of floats to codes by `mxnum.definition`."""
    overflow = overflow.of(target.specials)  # Overflow modes with equal results for `target` share one kernel.
    encode = make_encode(source, target, rounding, overflow)

    @dialect
    def encode_number(x, scale, random, unused):
        return encode(x, scale, random)

    return Definition(encode_number, word_bits(source, target) == 32)


@cache
def requantizing(
    source: ElementFormat, element: ElementFormat, rounding: Rounding, overflow: Overflow, target: ElementFormat
) -> Definition:
    """Return the conversion of floats to quantized values, by `mxnum.definition`."""
    to_code, to_value = quantizing(source, element, rounding, overflow), decoding(element, target)
    encode, decode = to_code.function, to_value.function

    @dialect
    def encode_decode(x, scale, random, unused):
        return decode(encode(x, scale, random, unused), scale, 0, unused)

    return Definition(encode_decode, to_code.in_lanes and to_value.in_lanes)


@cache
def decoding(element: ElementFormat, target: ElementFormat) -> Definition:
    """Return the conversion of codes to values by `mxnum.definition`.

    The conversion ignores random bits.
    """
    decode = make_decode(element, target)

    @dialect
    def decode_code(code, scale, random, unused):
        return decode(code, scale)

    return Definition(decode_code, word_bits(element, target) == 32)


@cache
def scaling(source: ElementFormat, element: ElementFormat, rule: ScaleRule) -> Definition:
    """Return the conversion from the largest magnitude of a block to its scale code.

    The result's `function` takes `(amax, bias, first_bumped)`. The result's `numbers` holds `bias`
    and `first_bumped`, which `scale_constants` computes.
    """
    width = scale_width(source, element)
    numbers = np.array(scale_constants(element, rule, width), np.int64)
    return Definition(_scale_of(source, width), word_bits(source, element) == 32, numbers)


_scale_of = cache(make_scale_of)


@cache
def _rounding(source: ElementFormat, rounding: Rounding, function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that converts a `source` number to float32 and then calls `function`."""
    widen = as_float32.make_widen(source)

    @dialect
    def widen_round(x, scale, random, e):
        return function(widen(x), scale, random, e)

    @dialect
    def split_round(x, scale, random, e):
        leading = leading_part(x)
        return function(leading, scale, random + rest(x, leading, scale, e), e)

    return split_round if source.name == "float64" and rounding.is_stochastic else widen_round


@cache
def _valuing(function: Callable[..., Any], gives_codes: bool, target: ElementFormat) -> Callable[..., Any]:
    """Return a function that converts the results of `function` to values in `target`.

    `function` returns codes if `gives_codes`, else float32 values.
    """
    convert, decode = as_float32.make_convert_value(target), _decoding(target)

    @dialect
    def round_convert(x, scale, random, e):
        return convert(function(x, scale, random, e))

    @dialect
    def round_decode(x, scale, random, e):
        return decode(function(x, scale, random, e), scale, random, e)

    return round_decode if gives_codes else round_convert


@cache
def _decoding(target: ElementFormat) -> Callable[..., Any]:
    value_of_code, convert = float_additions.value_of_code, as_float32.make_convert_value(target)

    @dialect
    def decode_convert(code, scale, random, e):
        return convert(value_of_code(code, scale, e))

    return decode_convert


@cache
def _by_product(element: ElementFormat, target: ElementFormat) -> Callable[..., Any]:
    value_by_product, convert = (
        float_additions.make_value_by_product(element),
        as_float32.make_convert_value(target),
    )

    @dialect
    def decode_by_product(code, scale, random, e):
        return convert(value_by_product(code, scale, e))

    return decode_by_product


@cache
def quantizing_over(
    source: ElementFormat,
    element: ElementFormat,
    scale: ScaleFormat,
    rounding: Rounding,
    overflow: Overflow,
    target: ElementFormat | None,
) -> Formulation:
    """Return the conversion by `mxnum.definition` of floats to codes, if scales are floats.

    If `target` is given, the conversion decodes the codes to this float type.
    """
    encode = make_encode_over(source, element, scale, rounding, overflow)
    if target is None:

        @dialect
        def to_code(x, factor, random):
            return encode(x, factor[0], factor[1], factor[2], random)

        return _defined(scale, to_code)
    decode = make_decode_over(element, scale, target)

    @dialect
    def to_value(x, factor, random):
        return decode(encode(x, factor[0], factor[1], factor[2], random), factor[0], factor[1], factor[2])

    return _defined(scale, to_value)


@cache
def decoding_over(element: ElementFormat, scale: ScaleFormat, target: ElementFormat) -> Formulation:
    """Return the conversion by `mxnum.definition` of codes to values, if scales are floats."""
    decode = make_decode_over(element, scale, target)

    @dialect
    def of_code(code, factor, random):
        return decode(code, factor[0], factor[1], factor[2])

    return _defined(scale, of_code)


def _defined(scale: ScaleFormat, element: Callable[..., Any]) -> Formulation:
    """Return a `Formulation` that stores three constants for each block (see `make_factor`).

    The constants are the exponent, the significand and the kind of the block's scale times the
    tensor scale.
    """
    factor = make_factor(scale)

    @dialect
    def prepare(code, tensor, tables, block, room):
        exponent, significand, kind = factor(code, tensor)
        store(tables, block, exponent)
        store(tables, room + block, significand)
        store(tables, 2 * room + block, kind)
        return True

    @dialect
    def at(tables, block, room):
        return load(tables, block), load(tables, room + block), load(tables, 2 * room + block)

    return Formulation(prepare, at, element, 3, is_wide=True, in_wide_words=True)
