"""Functions that CUDA kernels apply to one element.

Each function computes what `mxnum.definition` defines, either by the definition itself or by a
formulation that is proved equal to the definition. The arguments are the integers that a kernel
reads from memory, and the results are the integers that the kernel stores. Where the definition
needs only words of 32 bits, the functions compute with 32-bit integers (`lanes`).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from mxnum.definition.convert import make_decode, make_encode
from mxnum.definition.offset import difference_format, make_decode_offset, make_difference
from mxnum.definition.scale import make_shared_scale
from mxnum.definition.word import dialect, select, word_bits
from mxnum.engine.cuda import scaled
from mxnum.engine.machine.lanes import integer, lane
from mxnum.formats import E8M0, ELEMENTS, ElementFormat
from mxnum.modes import Nonfinite, Overflow, Rounding, ScaleRule

NAN_SCALE = E8M0.nan_code


@dialect
def wide(value):
    """Return an integer as a word of 64 bits."""
    return int(value)


@dialect
def same(value):
    """Return a word of 64 bits unchanged, since the word is an integer already."""
    return value


def words(bits: int) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Return a function that converts integers to words of `bits` bits, and its inverse."""
    return (lane, integer) if bits == 32 else (wide, same)


def stored(target: ElementFormat) -> int:
    """Return the mask that turns a signed bit pattern of `target` into an unsigned integer.

    If `target` has more than 32 bits, the mask is -1, which leaves the bit pattern signed.
    """
    return -1 if target.bits > 32 else (1 << target.bits) - 1


def scales_to_float32(source: ElementFormat, element: ElementFormat, rounding: Rounding, overflow: Overflow) -> bool:
    """Return True if the float32 operations of the module `scaled` can round to `element`.

    The operations of `scaled` are right for finite numbers only. So the caller may use `scaled`
    only if blocks with a NaN or an infinity get the scale NaN.
    """
    return (
        source.name in scaled.SOURCES
        and element.name in scaled.ELEMENTS
        and element == ELEMENTS[element.name]
        and rounding == Rounding.RNE
        and overflow.of(element.specials).saturates
    )


def decodes_by_float32(element: ElementFormat, target: ElementFormat) -> bool:
    """Return True if the float32 operations of `scaled` can decode `element` to `target`."""
    return target.name == "float32" and ELEMENTS.get(element.name) == element


@cache
def make_scale_of(source: ElementFormat, element: ElementFormat, rule: ScaleRule) -> Callable[..., Any]:
    """Return `scale_of(amax)`, which returns the scale code of a block.

    `amax` is the largest finite magnitude of the block, as a bit pattern of `source`.
    """
    by_float32 = scaled.covers_scale(source, element)
    word, plain = words(word_bits(source, element))
    shared_scale = (scaled.make_scale if by_float32 else make_shared_scale)(source, element, rule)

    @dialect
    def scale_of(amax):
        return plain(shared_scale(word(amax)))

    return scale_of


@cache
def make_power_of_two(source: ElementFormat, element: ElementFormat, rule: ScaleRule) -> Callable[..., Any]:
    """Return `power_of_two(amax, tensor)`, which returns `scale_of(amax)` and ignores `tensor`."""
    scale_of = make_scale_of(source, element, rule)

    @dialect
    def power_of_two(amax, tensor):
        return scale_of(amax)

    return power_of_two


@cache
def make_quantized(
    source: ElementFormat, element: ElementFormat, rounding: Rounding, overflow: Overflow, nonfinite: Nonfinite
) -> Callable[..., Any]:
    """Return `quantized(x, scale, random)`, which returns the element code of `x`."""
    STORED = stored(element)
    if not nonfinite.by_element and scales_to_float32(source, element, rounding, overflow):
        code_of = scaled.make_code(source, element)
        down = scaled.down

        @dialect
        def quantized_by_float32(x, scale, random):
            s = lane(scale)
            return integer(select(s == NAN_SCALE, 0, code_of(lane(x), down(s))))

        return quantized_by_float32
    word, plain = words(word_bits(source, element))
    encode = make_encode(source, element, rounding, overflow)

    @dialect
    def quantized(x, scale, random):
        return plain(encode(word(x), word(scale), word(random))) & STORED

    return quantized


@cache
def make_dequantized(element: ElementFormat, target: ElementFormat) -> Callable[..., Any]:
    """Return `dequantized(code, scale)`, which decodes a code to a bit pattern of `target`."""
    STORED = stored(target)
    if decodes_by_float32(element, target):
        decoded, up = scaled.make_decoded(element), scaled.up
        NAN = target.nan_code

        @dialect
        def dequantized_by_float32(code, scale):
            s = lane(scale)
            return integer(select(s == NAN_SCALE, NAN, decoded(lane(code), up(s)))) & STORED

        return dequantized_by_float32
    word, plain = words(word_bits(element, target))
    decode = make_decode(element, target)

    @dialect
    def dequantized(code, scale):
        return plain(decode(word(code), word(scale))) & STORED

    return dequantized


@cache
def make_fake_quantized(
    source: ElementFormat, element: ElementFormat, rounding: Rounding, overflow: Overflow, nonfinite: Nonfinite
) -> Callable[..., Any]:
    """Return `fake_quantized(x, scale, random)`, which quantizes and dequantizes `x`.

    `fake_quantized` returns a bit pattern of `source`.
    """
    fast = not nonfinite.by_element and scales_to_float32(source, element, rounding, overflow)
    if fast and source.name == "float32":
        value_of, down, up = scaled.make_value(element), scaled.down, scaled.up
        NAN, STORED = source.nan_code, stored(source)

        @dialect
        def fake_quantized_by_float32(x, scale, random):
            s = lane(scale)
            return integer(select(s == NAN_SCALE, NAN, value_of(lane(x), down(s), up(s)))) & STORED

        return fake_quantized_by_float32
    quantized = make_quantized(source, element, rounding, overflow, nonfinite)
    dequantized = make_dequantized(element, source)

    @dialect
    def fake_quantized(x, scale, random):
        return dequantized(quantized(x, scale, random), scale)

    return fake_quantized


@cache
def make_difference_of(source: ElementFormat) -> Callable[..., Any]:
    """Return `difference_of(x, offset)`, which returns the signed bit pattern of x - offset.

    The difference has the format `difference_format(source)`.
    """
    word, plain = words(word_bits(source, difference_format(source)))
    difference = make_difference(source)

    @dialect
    def difference_of(x, offset):
        return plain(difference(word(x), word(offset)))

    return difference_of


@cache
def make_offset_quantized(
    source: ElementFormat, element: ElementFormat, rounding: Rounding, overflow: Overflow
) -> Callable[..., Any]:
    """Return `offset_quantized(x, scale, offset, random)`, which returns the code of x - offset.

    If the difference x - offset is infinite, `offset_quantized` returns the code that the
    definition assigns to an infinity.
    """
    difference_of = make_difference_of(source)
    quantized = make_quantized(difference_format(source), element, rounding, overflow, Nonfinite.ELEMENT)

    @dialect
    def offset_quantized(x, scale, offset, random):
        return quantized(difference_of(x, offset), scale, random)

    return offset_quantized


@cache
def make_offset_dequantized(element: ElementFormat, target: ElementFormat) -> Callable[..., Any]:
    """Return `offset_dequantized(code, scale, offset)`, which decodes a code and adds the offset.

    `offset_dequantized` returns a bit pattern of `target`.
    """
    STORED = stored(target)
    word, plain = words(word_bits(element, target))
    decode_offset = make_decode_offset(element, target)

    @dialect
    def offset_dequantized(code, scale, offset):
        return plain(decode_offset(word(code), word(scale), word(offset))) & STORED

    return offset_dequantized
