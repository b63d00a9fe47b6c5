"""Formulations for scales that are floats, and the one that follows the definition.

A formulation computes a few constants from the scale of a block and the tensor scale. With these it
converts the elements of the block.
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
    """The functions with which a loop converts elements under the scales of their blocks."""

    #: `prepare(scale code, tensor scale, tables, block, room)` computes the constants of a block,
    #: and returns True if the formulation is right for the two scales. It writes constant i to
    #: `tables[i * room + block]`. The scale and the tensor scale are words of 64 bits.
    prepare: Callable[..., Any]
    #: `at(tables, block, room)` returns the constants of a block.
    at: Callable[..., Any]
    #: `element(item, constants, random bits)` converts one float or code.
    element: Callable[..., Any]
    #: The number of constants, and True if constants have 64 bits.
    constants: int
    is_wide: bool
    #: True if `element` takes items and random bits as words of 64 bits.
    in_wide_words: bool
    #: True if `element` also accepts vectors of lanes.
    in_vectors: bool = False
    #: A second function like `prepare`, which computes the constants that are left; None if there
    #: are none.
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
    """Return the definition's formulation from floats to codes, or to their values in `target`."""
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
    """Return the definition's formulation from codes to values."""
    decode = make_decode_over(element, scale, target)

    @dialect
    def of_code(code, factor, random):
        return decode(code, factor[0], factor[1], factor[2])

    return _defined(scale, of_code)


def _defined(scale: ScaleFormat, element: Callable[..., Any]) -> Formulation:
    """Return a formulation whose constants describe the factor.

    They are its exponent, its significand and its kind.
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
