"""Quantize numpy arrays by the definition, without compiling anything or loading numba.

A compiled loop takes a second to compile and a millisecond to run over a small array. A caller that
tries thousands of settings on one array would mostly wait for the compiler. The functions of this
module take about 70 ns for each element, even in the first call.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from mxnum.definition.chunks import chunks, gather, of_blocks, spread
from mxnum.definition.convert import make_decode, make_encode
from mxnum.definition.float_scale import (
    ONE,
    factor_width,
    make_decode_over,
    make_divide,
    make_encode_over,
    make_factor,
    make_float_scale,
    make_tensor_scale,
)
from mxnum.definition.offset import (
    difference_format,
    make_difference,
    make_from_ordered,
    make_half_range_scale,
    make_midpoint,
    make_to_ordered,
)
from mxnum.definition.random import make_align_random
from mxnum.definition.scale import make_shared_scale
from mxnum.definition.unpack import FINITE, NAN, make_unpack
from mxnum.formats import E8M0, FLOATS, ElementFormat, MXFormat, ScaleFormat
from mxnum.layout import Blocks, scales_shape
from mxnum.memory.dtypes import Array, scale_dtype, signed_bits, stored_bits
from mxnum.modes import FloatScaleRule, Nonfinite, OffsetRange, Overflow, Rounding, ScaleRule

#: The number of elements converted at a time, small enough for the intermediate arrays to stay in
#: the caches.
PIECE = 1 << 15


class Settings(NamedTuple):
    """The settings of a call of `mxnum.quantize`."""

    rounding: Rounding = Rounding.RNE
    overflow: Overflow = Overflow.SATURATE
    #: A `FloatScaleRule` for float scales, else a `ScaleRule`. Unused if scales are given.
    scale_rule: ScaleRule | FloatScaleRule = ScaleRule.FLOOR
    nonfinite: Nonfinite = Nonfinite.BLOCK
    #: Which magnitude determines the scale of a block with an offset: the largest difference or
    #: half the range. None if blocks have no offsets.
    offset_range: OffsetRange | None = None
    sr_bits: int = 30


class Quantized(NamedTuple):
    """The parts of an `MXArray`."""

    codes: Array
    #: Scales as an `MXArray` holds them: codes of eight bits, or floats.
    scales: Array
    #: Offsets as float16; None if blocks have no offsets.
    offsets: Array | None


def quantize(
    x: Array,
    fmt: MXFormat,
    blocks: Blocks,
    asked: Settings,
    scales: Array | None = None,
    words: Array | None = None,
    tensor_scale: Array | None = None,
) -> Quantized:
    """Return the codes, scales and offsets that `mxnum.quantize` returns.

    All arithmetic is on integers. `words` holds a random word for each element. A tensor scale is a
    float32 array that broadcasts with x. If the element has no NaN code, a NaN becomes the largest
    value, unless the setting `nonfinite` makes the block NaN. The function raises
    NotImplementedError if `scales` is None and the scale rule needs all elements of a block (see
    `looks_at_elements`).
    """
    if scales is None and looks_at_elements(asked.scale_rule):
        raise NotImplementedError(f"Only the engine computes scales by the rule {asked.scale_rule}.")
    side = scales_shape(x.shape, blocks)
    tensors = np.broadcast_to(_tensor_bits(tensor_scale), side)
    offsets = None if asked.offset_range is None else np.empty(side, np.float16)
    made = Quantized(np.empty(x.shape, np.uint8), np.empty(side, scale_dtype(fmt.scale)), offsets)
    for part in chunks(x.shape, blocks, PIECE):
        sides = of_blocks(part, blocks)
        given = None if scales is None else stored_bits(np.asarray(scales[sides], order="C")).astype(np.int64)
        drawn = None if words is None else words[part]
        piece = _quantized(np.asarray(x[part]), fmt, blocks, asked, given, drawn, tensors[sides])
        made.codes[part], made.scales[sides] = piece.codes, piece.scales
        if made.offsets is not None:
            made.offsets[sides] = piece.offsets
    return made


def looks_at_elements(rule: ScaleRule | FloatScaleRule) -> bool:
    """Return True if the rule's scale depends on all elements of a block.

    If True, this module cannot compute the scale, but the compiled engine can. If False, the scale
    depends only on the block's largest magnitude.
    """
    return isinstance(rule, FloatScaleRule) and rule.error_power > 0


def dequantize(
    codes: Array,
    scales: Array,
    element: ElementFormat,
    scale: ScaleFormat,
    blocks: Blocks,
    target: ElementFormat,
    tensor_scale: Array | None = None,
) -> Array:
    """Return the values of codes under their scales, as unsigned bit patterns of `target`."""
    tensors = np.broadcast_to(_tensor_bits(tensor_scale), scales.shape)
    factors = _factors(scale, stored_bits(np.ascontiguousarray(scales)).astype(np.int64), tensors)
    decode = make_decode(element, target) if scale.power_of_two else make_decode_over(element, scale, target)
    values = decode(codes.astype(np.int64), *(spread(part, blocks, codes.shape) for part in factors))
    return np.asarray(values).astype(f"i{target.bits // 8}").view(f"u{target.bits // 8}")


def encode(
    x: Array, element: ElementFormat, rounding: Rounding = Rounding.RNE, overflow: Overflow = Overflow.SATURATE
) -> Array:
    """Return the codes of numbers whose scale is 1, as int64.

    If the element has no NaN code, a NaN becomes the largest value.
    """
    code = make_encode(FLOATS[x.dtype.name], element, rounding, overflow)
    bits = signed_bits(np.ascontiguousarray(x)).astype(np.int64)
    return np.asarray(code(bits, np.full(x.shape, E8M0.bias), np.zeros(1, np.int64)))


def tensor_scale(largest: Array, source: ElementFormat, fmt: MXFormat) -> Array:
    """Return the tensor scale of each tensor, as float32.

    `largest` holds each tensor's largest finite magnitude, as a bit pattern of `source`.
    """
    find = make_tensor_scale(source, fmt.element, fmt.scale)
    return np.asarray(find(np.asarray(largest, np.int64))).astype(np.uint32).view(np.float32)


def largest_of(x: Array, axis: int | None = None) -> Array:
    """Return the largest finite magnitude of an array, as a bit pattern.

    If `axis` is given, return the largest magnitude along this axis, which has length 1 in the
    result.
    """
    bits, source = signed_bits(np.ascontiguousarray(x)).astype(np.int64), FLOATS[x.dtype.name]
    finite = np.where(_is_finite(bits, source), _magnitude(bits, source), 0)
    return np.asarray(finite.max(axis=axis, keepdims=axis is not None, initial=0))


def exceed(x: Array, fmt: MXFormat, scales: Array, tensors: Array, asked: Settings, words: Array | None) -> Array:
    """Return, for each number, True if its quotient rounds to more than the largest element.

    The quotient is the number divided by its scale and tensor scale. The function rounds the
    quotient to a wider format with one more exponent bit. In the wider format, a number beyond the
    largest element has a code above the element's `max_code`.
    """
    e, source = fmt.element, FLOATS[x.dtype.name]
    wider = ElementFormat("wider", e.exponent_bits + 1, e.mantissa_bits, e.bias)
    factors = _factors(fmt.scale, stored_bits(scales).astype(np.int64), _tensor_bits(tensors))
    encode = _encoder(source, wider, fmt.scale, asked.rounding, Overflow.SATURATE)
    code = encode(signed_bits(x).astype(np.int64), *factors, _random(words, asked.sr_bits))
    return np.asarray(_magnitude(code, wider) > e.max_code)


def scale_numbers(scales: Array, scale: ScaleFormat) -> Array:
    """Return the exact values of scales, as float64."""
    if scale.bits > 8:
        return scales.astype(np.float64)
    return np.array([scale.value(code) for code in range(1 << _code_bits(scale))])[scales]


def _code_bits(scale: ScaleFormat) -> int:
    return scale.bits if scale.number is None else scale.number.bits - 1


def quotients(x: Array, scale: ScaleFormat, scales: Array, tensor_scale: Array | None) -> Array:
    """Return |x| divided by the scale and the tensor scale of each number, in float64.

    A quotient is rounded, but it compares with any number of at most 40 binary digits in the same
    way as the exact quotient. The values of elements, and the midpoints between them, have fewer
    than 40 binary digits. The quotient of a finite number and a zero or infinite scale is 0.
    """
    source = FLOATS[x.dtype.name]
    magnitude = _magnitude(signed_bits(x).astype(np.int64), source)
    _, exponent, significand, _ = make_unpack(source, source.mantissa_bits)(magnitude)
    codes = stored_bits(np.ascontiguousarray(scales)).astype(np.int64)
    over, divisor, kind = make_factor(scale)(codes, _tensor_bits(tensor_scale))
    width, digits = factor_width(scale), 40
    divides = np.broadcast_to((kind == FINITE) & (divisor != 0), x.shape)
    divide = make_divide(source.mantissa_bits, width, digits)
    exponent, quotient = divide(exponent, significand, over, np.where(divides, divisor, 1 << width))
    with np.errstate(all="ignore"):  # numpy warns of results that np.where discards
        found = np.where(divides & (significand != 0), np.ldexp(quotient.astype(float), exponent - digits - 1), 0.0)
        wide = np.abs(x.astype(np.float64))
    return np.where(np.isfinite(wide), np.where(kind == NAN, np.nan, found), wide)


def _tensor_bits(tensor_scale: Array | None) -> Array:
    return (
        np.array(ONE) if tensor_scale is None else np.asarray(tensor_scale, np.float32).view(np.uint32).astype(np.int64)
    )


def _factors(scale: ScaleFormat, codes: Array, tensors: Array) -> tuple[Array, ...]:
    """Return the scales and tensor scales as arguments for `encode` and `decode`.

    E8M0 scales are passed as codes. For any other scale, the arguments are the exponent,
    significand and kind of the product of scale and tensor scale.
    """
    if scale.power_of_two:
        return (codes,)
    return tuple(np.broadcast_to(part, codes.shape) for part in make_factor(scale)(codes, tensors))


def _encoder(
    source: ElementFormat, element: ElementFormat, scale: ScaleFormat, rounding: Rounding, overflow: Overflow
) -> Callable[..., Any]:
    """Return `encode(x, *factors, random)`, which divides x by its scale and rounds to a code."""
    if scale.power_of_two:
        return make_encode(source, element, rounding, overflow)
    return make_encode_over(source, element, scale, rounding, overflow)


def _found(
    amax: Array, tensors: Array, source: ElementFormat, fmt: MXFormat, rule: ScaleRule | FloatScaleRule
) -> Array:
    """Return the scale code that `rule` finds for each block from the block's largest magnitude."""
    if isinstance(rule, ScaleRule):
        return np.asarray(make_shared_scale(source, fmt.element, rule)(amax))
    return np.asarray(make_float_scale(source, fmt.element, fmt.scale, rule)(amax, tensors))


def _random(words: Array | None, sr_bits: int) -> Array:
    return np.zeros(1, np.int64) if words is None else np.asarray(make_align_random(sr_bits)(words.astype(np.int64)))


def _quantized(
    x: Array,
    fmt: MXFormat,
    blocks: Blocks,
    asked: Settings,
    scales: Array | None,
    words: Array | None,
    tensors: Array,
) -> Quantized:
    """Quantize one piece of an array.

    `scales` holds the bits of each block's scale, and `tensors` holds the bits of each block's
    tensor scale.
    """
    source, element, shape = FLOATS[x.dtype.name], fmt.element, x.shape
    bits = signed_bits(x).astype(np.int64)
    is_finite, made, offsets = _is_finite(bits, source), None, None
    if asked.offset_range is not None:
        high, low = _ends(bits, is_finite, source, blocks)
        any_finite = low <= high
        offsets = np.where(any_finite, make_midpoint(source)(*_patterns(source, high, low)), 0)
        if asked.offset_range.is_half:
            assert isinstance(asked.scale_rule, ScaleRule)
            half = make_half_range_scale(source, element, asked.scale_rule)
            made = np.where(any_finite, half(*_patterns(source, high, low)), 0)
        bits = make_difference(source)(bits, spread(offsets, blocks, shape))
        source = difference_format(source)
    if scales is not None:
        made = scales
    elif made is None:
        magnitude = np.where(_is_finite(bits, source), _magnitude(bits, source), 0)
        made = np.asarray(_found(gather(np.maximum, magnitude, blocks), tensors, source, fmt, asked.scale_rule))
    if asked.nonfinite.by_block:
        made = np.where(gather(np.logical_and, is_finite, blocks), made, fmt.scale.nan_code)
    encode = _encoder(source, element, fmt.scale, asked.rounding, asked.overflow)
    factors = (spread(part, blocks, shape) for part in _factors(fmt.scale, made, tensors))
    codes = np.asarray(encode(bits, *factors, _random(words, asked.sr_bits)))
    if offsets is not None:
        offsets = np.where(made == fmt.scale.nan_code, 0, offsets).astype(np.uint16).view(np.float16)
    kept = np.asarray(made).astype(f"u{fmt.scale.bits // 8}").view(scale_dtype(fmt.scale))
    return Quantized(codes.astype(np.uint8), kept, offsets)


def _magnitude(bits: Array, source: ElementFormat) -> Array:
    return bits & ((1 << (source.bits - 1)) - 1)


def _is_finite(bits: Array, source: ElementFormat) -> Array:
    return np.asarray(_magnitude(bits, source) <= source.max_code)


def _ends(bits: Array, is_finite: Array, source: ElementFormat, blocks: Blocks) -> tuple[Array, Array]:
    """Return the largest and the smallest finite number of each block.

    Each number is returned as the integer to which `to_ordered` maps it.
    """
    ordered = make_to_ordered(source)(bits)
    infinity = source.max_code + 1
    high = gather(np.maximum, np.where(is_finite, ordered, -infinity), blocks)
    return high, gather(np.minimum, np.where(is_finite, ordered, infinity), blocks)


def _patterns(source: ElementFormat, high: Array, low: Array) -> tuple[Array, Array]:
    """Convert the results of `_ends` to bit patterns; a block without finite numbers gives +0."""
    from_ordered = make_from_ordered(source)
    missing = low > high
    return from_ordered(np.where(missing, 0, high)), from_ordered(np.where(missing, 0, low))
