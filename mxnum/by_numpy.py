"""Quantizing by the definition as numpy runs it: nothing is compiled, and numba is not loaded.

A loop takes a second to compile and a millisecond to run over a small array. Whoever tries thousands of settings on one
waits for compilers alone; here they take some 70 ns for each element, from the first call.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from mxnum.chunks import chunks, gather, of_blocks, spread
from mxnum.dtypes import Array, signed_bits
from mxnum.formats import E8M0, FLOATS, ElementFormat, MXFormat, get_e8m0
from mxnum.layout import Blocks, scales_shape
from mxnum.modes import Nonfinite, OffsetRange, Overflow, Rounding, ScaleRule
from mxnum.scalar.convert import make_decode, make_encode
from mxnum.scalar.offset import (
    difference_format,
    make_difference,
    make_from_ordered,
    make_half_range_scale,
    make_midpoint,
    make_to_ordered,
)
from mxnum.scalar.random import make_align_random
from mxnum.scalar.scale import make_shared_scale

#: Elements done at a time, so that what lies between two steps stays in the caches.
PIECE = 1 << 15


class Settings(NamedTuple):
    """What `mxnum.quantize` is asked for."""

    rounding: Rounding = Rounding.RNE
    overflow: Overflow = Overflow.SATURATE
    scale_rule: ScaleRule = ScaleRule.FLOOR
    nonfinite: Nonfinite = Nonfinite.BLOCK
    #: None without asymmetric scaling.
    offset_range: OffsetRange | None = None
    sr_bits: int = 30


class Quantized(NamedTuple):
    """The parts of an `MXArray`."""

    codes: Array
    scales: Array
    #: float16; None without asymmetric scaling.
    offsets: Array | None


def quantize(
    x: Array, fmt: MXFormat, blocks: Blocks, asked: Settings, scales: Array | None = None, words: Array | None = None
) -> Quantized:
    """What `mxnum.quantize` returns, in arithmetic on integers; `words` are the random words of each element.

    A NaN for an element that has none, where the policy does not refuse its block, becomes the largest value.
    """
    get_e8m0(fmt, "mxnum.by_numpy")
    side = scales_shape(x.shape, blocks)
    offsets = None if asked.offset_range is None else np.empty(side, np.float16)
    made = Quantized(np.empty(x.shape, np.uint8), np.empty(side, np.uint8), offsets)
    for part in chunks(x.shape, blocks, PIECE):
        sides = of_blocks(part, blocks)
        given = None if scales is None else scales[sides]
        piece = _quantized(np.asarray(x[part]), fmt, blocks, asked, given, None if words is None else words[part])
        made.codes[part], made.scales[sides] = piece.codes, piece.scales
        if made.offsets is not None:
            made.offsets[sides] = piece.offsets
    return made


def dequantize(codes: Array, scales: Array, element: ElementFormat, blocks: Blocks, target: ElementFormat) -> Array:
    """The values of codes under their scales, as bit patterns of `target`: signed ones of 64 bits, or unsigned ones."""
    values = make_decode(element, target)(codes.astype(np.int64), spread(scales.astype(np.int64), blocks, codes.shape))
    return np.asarray(values).astype(f"i{target.bits // 8}").view(f"u{target.bits // 8}")


def _quantized(
    x: Array, fmt: MXFormat, blocks: Blocks, asked: Settings, scales: Array | None, words: Array | None
) -> Quantized:
    """One piece."""
    source, element, shape = FLOATS[x.dtype.name], fmt.element, x.shape
    bits = signed_bits(x).astype(np.int64)
    is_finite, made, offsets = _is_finite(bits, source), None, None
    if asked.offset_range is not None:
        high, low = _ends(bits, is_finite, source, blocks)
        any_finite = low <= high
        offsets = np.where(any_finite, make_midpoint(source)(*_patterns(source, high, low)), 0)
        if asked.offset_range.is_half:
            half = make_half_range_scale(source, element, asked.scale_rule)
            made = np.where(any_finite, half(*_patterns(source, high, low)), 0)
        bits = make_difference(source)(bits, spread(offsets, blocks, shape))
        source = difference_format(source)
    if scales is not None:
        made = scales.astype(np.int64)
    elif made is None:
        magnitude = np.where(_is_finite(bits, source), _magnitude(bits, source), 0)
        made = make_shared_scale(source, element, asked.scale_rule)(gather(np.maximum, magnitude, blocks))
    if asked.nonfinite.by_block:
        made = np.where(gather(np.logical_and, is_finite, blocks), made, E8M0.nan_code)
    random = np.zeros(1, np.int64) if words is None else make_align_random(asked.sr_bits)(words.astype(np.int64))
    encode = make_encode(source, element, asked.rounding, asked.overflow)
    codes = encode(bits, spread(made, blocks, shape), random)
    if offsets is not None:
        offsets = np.where(made == E8M0.nan_code, 0, offsets).astype(np.uint16).view(np.float16)
    return Quantized(codes.astype(np.uint8), made.astype(np.uint8), offsets)


def _magnitude(bits: Array, source: ElementFormat) -> Array:
    return bits & ((1 << (source.bits - 1)) - 1)


def _is_finite(bits: Array, source: ElementFormat) -> Array:
    return np.asarray(_magnitude(bits, source) <= source.max_code)


def _ends(bits: Array, is_finite: Array, source: ElementFormat, blocks: Blocks) -> tuple[Array, Array]:
    """The largest and the smallest finite number of each block, as integers that order as numbers do."""
    ordered = make_to_ordered(source)(bits)
    infinity = source.max_code + 1
    high = gather(np.maximum, np.where(is_finite, ordered, -infinity), blocks)
    return high, gather(np.minimum, np.where(is_finite, ordered, infinity), blocks)


def _patterns(source: ElementFormat, high: Array, low: Array) -> tuple[Array, Array]:
    """Bit patterns of ends; of blocks without any, those of zero."""
    from_ordered = make_from_ordered(source)
    missing = low > high
    return from_ordered(np.where(missing, 0, high)), from_ordered(np.where(missing, 0, low))
