"""Asymmetric scaling: offsets of blocks, scales from half-ranges, and decoding with offsets."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from mxnum.definition.add import make_add, sum_width
from mxnum.definition.convert import SCALE_BIAS, SCALE_NAN
from mxnum.definition.pack import make_pack
from mxnum.definition.scale import make_scale_rule
from mxnum.definition.unpack import make_unpack
from mxnum.definition.word import dialect, select, word_bits, working_width
from mxnum.formats import FLOATS, ElementFormat
from mxnum.modes import Overflow, Rounding, ScaleRule

OFFSET = FLOATS["float16"]


def difference_format(source: ElementFormat) -> ElementFormat:
    """Return the format of x minus an offset: float32, or float64 if x is float64."""
    return source if source.name == "float64" else FLOATS["float32"]


def make_to_ordered(source: ElementFormat) -> Callable[..., Any]:
    """Return `to_ordered(x)`, which maps bit patterns to integers in the same order as the numbers.

    Bit patterns are signed. Both zeros become 0.
    """
    MAGNITUDE_MASK = (1 << (source.bits - 1)) - 1

    @dialect
    def to_ordered(x):
        magnitude = x & MAGNITUDE_MASK
        return select(x < 0, 0 - magnitude, magnitude)

    return to_ordered


def make_from_ordered(source: ElementFormat) -> Callable[..., Any]:
    """Return `from_ordered(ordered)`, the inverse of `to_ordered`.

    The result is a signed bit pattern. Zero becomes +0.
    """
    SIGN_BIT = -(1 << (source.bits - 1))

    @dialect
    def from_ordered(ordered):
        negative = ordered < 0
        magnitude = select(negative, 0 - ordered, ordered)
        return select(negative, magnitude | SIGN_BIT, magnitude)

    return from_ordered


def make_midpoint(source: ElementFormat) -> Callable[..., Any]:
    """Return `midpoint(largest, smallest)`, which rounds (largest + smallest) / 2 once to float16.

    `largest` and `smallest` are the bit patterns of a block's largest and smallest finite number. A
    midpoint beyond the largest float16 number becomes 65504 or -65504.
    """
    width = working_width(source, OFFSET)
    unpack = make_unpack(source, width)
    add = make_add(width)
    pack = make_pack(OFFSET, Rounding.RNE, Overflow.SATURATE, sum_width(width), word_bits(source, OFFSET))

    @dialect
    def midpoint(largest, smallest):
        sign_a, exponent_a, a, kind_a = unpack(largest)
        sign_b, exponent_b, b, kind_b = unpack(smallest)
        sign, exponent, total, kind = add(sign_a, exponent_a, a, kind_a, sign_b, exponent_b, b, kind_b)
        return pack(sign, exponent - 1, total, kind, 0)

    midpoint.__name__ = f"midpoint_{source.name}"
    return midpoint


def make_difference(source: ElementFormat) -> Callable[..., Any]:
    """Return `difference(x, offset)`, which rounds x - offset once to `difference_format(source)`.

    Rounding is to nearest even. If x is NaN, the difference is a NaN with the sign of x, because
    encoding keeps the sign of a NaN.
    """
    target = replace(difference_format(source), canonical_nan=False)
    width = working_width(source, target)
    unpack, unpack_offset = make_unpack(source, width), make_unpack(OFFSET, width)
    add = make_add(width)
    pack = make_pack(target, Rounding.RNE, Overflow.IEEE, sum_width(width), word_bits(source, target))

    @dialect
    def difference(x, offset):
        sign_a, exponent_a, a, kind_a = unpack(x)
        sign_b, exponent_b, b, kind_b = unpack_offset(offset)
        sign, exponent, total, kind = add(sign_a, exponent_a, a, kind_a, 1 - sign_b, exponent_b, b, kind_b)
        return pack(sign, exponent, total, kind, 0)

    difference.__name__ = f"difference_{source.name}"
    return difference


def make_half_range_scale(source: ElementFormat, element: ElementFormat, rule: ScaleRule) -> Callable[..., Any]:
    """Return `half_range_scale(largest, smallest)`, the E8M0 code for A = (largest - smallest) / 2.

    A is exact. The arguments are the bit patterns of a block's largest and smallest finite number.
    """
    width = working_width(source, element)
    unpack = make_unpack(source, width)
    add = make_add(width)
    scale_rule = make_scale_rule(element, rule, sum_width(width))

    @dialect
    def half_range_scale(largest, smallest):
        sign_a, exponent_a, a, kind_a = unpack(largest)
        sign_b, exponent_b, b, kind_b = unpack(smallest)
        _, exponent, total, _ = add(sign_a, exponent_a, a, kind_a, 1 - sign_b, exponent_b, b, kind_b)
        return scale_rule(exponent - 1, total)

    half_range_scale.__name__ = f"half_range_scale_{source.name}_{element.name}_{rule}"
    return half_range_scale


def make_decode_offset(element: ElementFormat, target: ElementFormat) -> Callable[..., Any]:
    """Return `decode_offset(code, scale, offset)`, which decodes an element and adds its offset.

    The result is element value * 2**(scale - 127) + offset, rounded once to `target`, to nearest
    even.
    """
    width = max(working_width(element, target), OFFSET.mantissa_bits)
    unpack, unpack_offset = make_unpack(element, width), make_unpack(OFFSET, width)
    add = make_add(width)
    pack = make_pack(target, Rounding.RNE, Overflow.IEEE, sum_width(width), word_bits(element, target))
    NAN_CODE = target.nan_code

    @dialect
    def decode_offset(code, scale, offset):
        sign_a, exponent_a, a, kind_a = unpack(code)
        sign_b, exponent_b, b, kind_b = unpack_offset(offset)
        sign, exponent, total, kind = add(
            sign_a, exponent_a + scale - SCALE_BIAS, a, kind_a, sign_b, exponent_b, b, kind_b
        )
        value = pack(sign, exponent, total, kind, 0)
        return select(scale == SCALE_NAN, NAN_CODE, value)

    decode_offset.__name__ = f"decode_offset_{element.name}_{target.name}"
    return decode_offset
