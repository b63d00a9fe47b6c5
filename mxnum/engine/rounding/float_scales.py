"""What loops compute under scales that are floats: the definition.

A formulation makes a few constants of the scale of a block and the tensor scale, and its elements with them.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

from mxnum.definition.float_scale import make_decode_over, make_encode_over, make_factor
from mxnum.definition.word import dialect
from mxnum.engine.machine.lanes import load, store
from mxnum.formats import ElementFormat, ScaleFormat
from mxnum.modes import Overflow, Rounding


class Formulation(NamedTuple):
    """How elements are made under the scales of their blocks."""

    #: (scale code, tensor scale, tables, block, room) -> whether this is right for them: writes the constants of a
    #: block, the i-th to place i * room + block. The scale and the tensor scale are words of 64 bits.
    prepare: Callable[..., Any]
    #: (tables, block, room) -> the constants.
    at: Callable[..., Any]
    #: (what is read, constants, random bits) -> what is written.
    element: Callable[..., Any]
    #: How many constants there are, and whether they have 64 bits.
    constants: int
    is_wide: bool
    #: Whether elements and random bits are taken in words of 64 bits.
    in_wide_words: bool
    #: Whether elements may be done by vectors of lanes.
    in_vectors: bool = False
    #: As `prepare`, for the rest of many constants.
    prepare_more: Callable[..., Any] | None = None


@cache
def quantizing(
    source: ElementFormat,
    element: ElementFormat,
    scale: ScaleFormat,
    rounding: Rounding,
    overflow: Overflow,
    target: ElementFormat | None,
) -> Formulation:
    """By the definition, from a float to a code, or to its value in `target`."""
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
def decoding(element: ElementFormat, scale: ScaleFormat, target: ElementFormat) -> Formulation:
    """By the definition, from a code to its value."""
    decode = make_decode_over(element, scale, target)

    @dialect
    def of_code(code, factor, random):
        return decode(code, factor[0], factor[1], factor[2])

    return _defined(scale, of_code)


def _defined(scale: ScaleFormat, element: Callable[..., Any]) -> Formulation:
    """Exponent, significand and kind of the factor are the constants."""
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
