"""What loops compute for each element of an array: fast formulations for all elements, the definition for each."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from mxnum.dtypes import Array
from mxnum.engine import magic, paths
from mxnum.engine.lanes import lane, wide
from mxnum.formats import ElementFormat
from mxnum.modes import Overflow, Rounding, ScaleRule
from mxnum.scalar.convert import make_decode, make_encode
from mxnum.scalar.scale import make_shared_scale
from mxnum.scalar.word import dialect, word_bits


class Limits(NamedTuple):
    """Where a fast formulation is right: scale codes, and bit patterns of |x| in float32. Bounds are included."""

    least_scale: int
    greatest_scale: int
    greatest_x: int


class Fast(NamedTuple):
    """A fast formulation: a function that serves all elements, and the numbers that make it one of them."""

    #: (x, scale, random, constants) -> result.
    function: Callable[..., Any]
    #: The limits, then the constants: what a loop is given.
    numbers: Array
    #: The same with its constants compiled in, for the commonest conversions and loops: a fifth faster or more.
    special: Callable[..., Any] | None = None


class Definition(NamedTuple):
    """The definition of one conversion: (x, scale, random) -> result, for every x and every scale."""

    function: Callable[..., Any]
    #: Whether every intermediate fits 32 bits, so that a loop may run in lanes.
    in_lanes: bool

    @property
    def word(self) -> Callable[[Any], Any]:
        """What turns a scale or random bits into a word beside the loaded x."""
        return lane if self.in_lanes else wide


@dialect
def numbers_given(numbers):
    """Limits and constants from the array that a loop is given."""
    limits = Limits(int(numbers[0]), int(numbers[1]), int(numbers[2]))
    n = numbers
    return limits, magic.Constants(
        int(n[3]), int(n[4]), int(n[5]), int(n[6]), int(n[7]), int(n[8]), int(n[9]), int(n[10]), int(n[11]),
        int(n[12]), int(n[13]), int(n[14]), int(n[15]), int(n[16]), int(n[17]), int(n[18]), int(n[19]),
    )  # fmt: skip


def _with_constants(function: Callable[..., Any], constants: magic.Constants) -> Callable[..., Any]:
    """The function of one element: those that its loop gives it are not looked at."""

    @dialect
    def with_constants(x, scale, random, unused):
        return function(x, scale, random, constants)

    return with_constants


def _numbers(limits: Limits, constants: magic.Constants) -> Array:
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
    """From a float to the element's code, or with `target` to the value of that code; None where `paths` has none."""
    if not paths.rounds_fast(source, element) or (target is not None and not paths.decodes_fast(element, target)):
        return None
    limits = Limits(*magic.domain(element, rounding))
    if target is None:
        function = _coding(source, rounding, magic.breaks_ties_by_parity(element))
    elif source == target and paths.has_nearest_value(source, element, rounding, overflow):
        function = magic.make_nearest_value()
    else:
        least, greatest = magic.decoding_domain(element, target)
        limits = limits._replace(
            least_scale=max(limits.least_scale, least), greatest_scale=min(limits.greatest_scale, greatest)
        )
        function = _recoding(source, rounding, magic.breaks_ties_by_parity(element), target)
    constants = magic.constants(element, rounding, overflow, rule)
    is_common = source.name == "float32" and rounding == Rounding.RNE and rule == ScaleRule.FLOOR
    special = _with_constants(function, constants) if is_common and overflow == Overflow.SATURATE else None
    return Fast(function, _numbers(limits, constants), special)


@cache
def fast_decoding(element: ElementFormat, target: ElementFormat) -> Fast | None:
    """From an element's code to its value under the scale; None where `paths` has none."""
    if not paths.decodes_fast(element, target):
        return None
    function, constants = _decoding(target), magic.constants(element)
    special = _with_constants(function, constants) if target.name == "float32" else None
    return Fast(function, _numbers(Limits(*magic.decoding_domain(element, target), 0), constants), special)


@cache
def quantizing(source: ElementFormat, target: ElementFormat, rounding: Rounding, overflow: Overflow) -> Definition:
    """From a float to a code."""
    if target.specials == "none":  # nothing to overflow to: both choices are one kernel
        overflow = Overflow.SATURATE
    return Definition(make_encode(source, target, rounding, overflow), word_bits(source, target) == 32)


@cache
def requantizing(
    source: ElementFormat, element: ElementFormat, rounding: Rounding, overflow: Overflow, target: ElementFormat
) -> Definition:
    """From a float to the value of its code in `target`."""
    encode, encodes_in_lanes = quantizing(source, element, rounding, overflow)
    decode, decodes_in_lanes = decoding(element, target)

    @dialect
    def encode_decode(x, scale, random):
        return decode(encode(x, scale, random), scale, 0)

    return Definition(encode_decode, encodes_in_lanes and decodes_in_lanes)


@cache
def decoding(element: ElementFormat, target: ElementFormat) -> Definition:
    """From an element's code to its value under the scale; random bits are not looked at."""
    decode = make_decode(element, target)

    @dialect
    def decode_code(code, scale, random):
        return decode(code, scale)

    return Definition(decode_code, word_bits(element, target) == 32)


@cache
def scaling(source: ElementFormat, element: ElementFormat, rule: ScaleRule) -> Definition:
    """From the largest magnitude of a block to its scale; the other two arguments are not looked at."""
    shared_scale = make_shared_scale(source, element, rule)

    @dialect
    def scale_of(amax, scale, random):
        return shared_scale(amax)

    return Definition(scale_of, word_bits(source, element) == 32)


@cache
def keeping_scales(source: ElementFormat) -> Definition:
    """The scale that is there already."""

    @dialect
    def keep(amax, scale, random):
        return scale

    return Definition(keep, source.bits <= 32)


@cache
def _coding(source: ElementFormat, rounding: Rounding, by_parity: bool) -> Callable[..., Any]:
    widen, code = magic.make_widen(source), magic.make_code(rounding, by_parity)

    @dialect
    def widen_code(x, scale, random, e):
        return code(widen(x), scale, random, e)

    return widen_code


@cache
def _recoding(source: ElementFormat, rounding: Rounding, by_parity: bool, target: ElementFormat) -> Callable[..., Any]:
    code, decode = _coding(source, rounding, by_parity), _decoding(target)

    @dialect
    def code_decode(x, scale, random, e):
        return decode(code(x, scale, random, e), scale, random, e)

    return code_decode


@cache
def _decoding(target: ElementFormat) -> Callable[..., Any]:
    value_of_code, convert = magic.value_of_code, magic.make_convert_value(target)

    @dialect
    def decode_convert(code, scale, random, e):
        return convert(value_of_code(code, scale, e))

    return decode_convert
