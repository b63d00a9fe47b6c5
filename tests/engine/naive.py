"""Quantize and decode numpy arrays by the definition, for comparison with the engine's loops.

The functions call `mxnum.definition`, and find the block of each element by index arithmetic alone.
"""

from __future__ import annotations

import numpy as np

from mxnum.definition.convert import make_decode, make_encode
from mxnum.definition.offset import (
    difference_format,
    make_decode_offset,
    make_difference,
    make_from_ordered,
    make_half_range_scale,
    make_midpoint,
    make_to_ordered,
)
from mxnum.definition.random import make_align_random, philox4x32
from mxnum.definition.scale import make_shared_scale
from mxnum.formats import E8M0
from mxnum.layout import scales_shape
from mxnum.memory.dtypes import code_dtype, numpy_dtype, signed_bits
from mxnum.modes import Nonfinite, OffsetRange, Overflow


def block_of(shape, blocks):
    """Return, for each element, the number of its block; blocks are numbered in C order."""
    counts = scales_shape(shape, blocks)
    number = np.zeros(shape, np.int64)
    for axis, (block, count) in enumerate(zip(blocks, counts, strict=True)):
        along = (np.arange(shape[axis]) // block).reshape((-1,) + (1,) * (len(shape) - axis - 1))
        number = number * count + along
    return number


def bits_of(x):
    """Return the bit patterns of x as a new array of signed 64-bit integers."""
    return signed_bits(np.ascontiguousarray(x)).astype(np.int64).reshape(x.shape)


def random_of(random, shape):
    """Return the random bits of each element, shifted to the top of 30 bits."""
    if random is None:
        return np.int64(0)
    if random.words is None:
        low, high, stream_low, stream_high = random.key
        counters = np.arange(-(-max(1, int(np.prod(shape))) // 4), dtype=np.int64)
        zero = np.zeros_like(counters)
        words = philox4x32(counters, zero, stream_low + zero, stream_high + zero, low + zero, high + zero)
        words = np.stack([word & 0xFFFFFFFF for word in words], -1).reshape(-1)[: int(np.prod(shape))].reshape(shape)
    else:
        words = random.words.astype(np.int64)
    return make_align_random(random.sr_bits)(words)


def largest(magnitude, source, block, count):
    """Return the largest finite magnitude of each block."""
    found = np.zeros(count, np.int64)
    finite = magnitude <= source.max_code
    np.maximum.at(found, block[finite], magnitude[finite])
    return found


def quantize(request):
    """Return the codes, scales and offsets that a request asks for."""
    asked, source, element = request.settings, request.settings.source, request.settings.element
    x, shape, side = bits_of(request.x), asked.shape, asked.scales_shape
    block, count = block_of(shape, asked.blocks), int(np.prod(side))
    magnitude = x & ((1 << (source.bits - 1)) - 1)
    offsets, is_half = None, asked.offset_range == OffsetRange.HALF
    scales = None if request.scales is None else request.scales.astype(np.int64).reshape(-1)
    special = np.zeros(count, bool)
    np.logical_or.at(special, block, magnitude > source.max_code)
    if asked.offset_range is not None:
        finite, ordered = magnitude <= source.max_code, make_to_ordered(source)(x)
        top, bottom = np.full(count, -source.max_code - 1), np.full(count, source.max_code + 1)
        np.maximum.at(top, block[finite], ordered[finite])
        np.minimum.at(bottom, block[finite], ordered[finite])
        is_empty = top < bottom
        ends = [make_from_ordered(source)(np.where(is_empty, 0, end)) for end in (top, bottom)]
        offsets = make_midpoint(source)(*ends) & 0xFFFF
        x = make_difference(source)(x, offsets[block])
        if is_half and scales is None:
            half = make_half_range_scale(source, element, asked.scale_rule)(*ends)
            scales = np.where(is_empty, 0, half)
        source = difference_format(source)
        magnitude = x & ((1 << (source.bits - 1)) - 1)
    if scales is None:
        amax = largest(magnitude, source, block, count)
        scales = make_shared_scale(source, element, asked.scale_rule)(amax)
    if asked.nonfinite == Nonfinite.BLOCK:
        scales = np.where(special, E8M0.nan_code, scales)
    if offsets is not None:
        offsets = np.where(scales == E8M0.nan_code, 0, offsets).astype(np.uint16).view(np.float16).reshape(side)
    random = random_of(request.random, shape)
    codes = encoded(x, source, element, scales[block], asked.rounding, asked.overflow, random)
    return codes, scales.astype(np.uint8).reshape(side), offsets


def encoded(x, source, target, scales, rounding, overflow, random):
    """Return the codes of numbers for given scales; `x` holds the bit patterns of the numbers."""
    overflow = Overflow.SATURATE if target.specials == "none" else overflow
    codes = make_encode(source, target, rounding, overflow)(x, scales, random)
    return np.broadcast_to(codes, x.shape).astype(np.int64).astype(code_dtype(target.bits))


def encode(x, source, target, rounding, overflow, random):
    """Return the codes of numbers for the scale 1."""
    scales = np.full(x.shape, E8M0.bias, np.int64)
    return encoded(bits_of(x), source, target, scales, rounding, overflow, random_of(random, x.shape))


def dequantize(codes, scales, offsets, element, blocks, target):
    """Return the values of codes for given scales and offsets."""
    block = block_of(codes.shape, blocks)
    code, scale = codes.astype(np.int64), scales.astype(np.int64).reshape(-1)[block]
    if offsets is None:
        values = make_decode(element, target)(code, scale)
    else:
        middle = np.ascontiguousarray(offsets).view(np.uint16).astype(np.int64).reshape(-1)[block]
        values = make_decode_offset(element, target)(code, scale, middle)
    dtype = numpy_dtype(target)
    return np.broadcast_to(values, codes.shape).astype(np.int64).astype(f"i{dtype.itemsize}").view(dtype)
