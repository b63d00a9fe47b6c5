"""CUDA kernels for arrays of any layout.

Each thread loops over elements, or over blocks. An array is passed as a vector of all its memory,
the index of its first element, and the strides of its axes in elements. `shape` is the shape of the
array of elements, and `blocks` holds the length of a block along each axis, in elements. A block
may extend along any axes, in any memory order.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

from mxnum.definition.offset import (
    OFFSET,
    difference_format,
    make_from_ordered,
    make_half_range_scale,
    make_midpoint,
    make_to_ordered,
)
from mxnum.definition.random import make_align_random, philox4x32
from mxnum.definition.word import dialect, word_bits
from mxnum.engine.cuda.driver import compile_kernel, cuda
from mxnum.engine.cuda.functions import (
    NAN_SCALE,
    make_difference_of,
    make_offset_dequantized,
    make_offset_quantized,
    make_scale_of,
    words,
)
from mxnum.engine.machine.lanes import integer, lane, load, store
from mxnum.formats import ELEMENTS, ElementFormat
from mxnum.modes import Overflow, Rounding, ScaleRule


class Asymmetric(NamedTuple):
    """The element format and the modes that determine the scales of asymmetric quantization."""

    element: ElementFormat
    rule: ScaleRule
    #: True if a scale is computed from half the range of a block, False if it is computed from the
    #: largest magnitude after the offset is subtracted.
    is_half: bool


E2M1 = ELEMENTS["e2m1"]
#: Sources of random words.
NOWHERE, WORDS, SEED = "nowhere", "words", "seed"


@dialect
def draw(counter, key):
    """Return the four Philox words of a counter, as 32-bit lanes.

    `key` holds the low and high word of the seed, the low and high word of the stream, and the
    index of the first element.
    """
    low, high = lane(counter & 0xFFFFFFFF), lane(counter >> 32)
    return philox4x32(low, high, lane(key[2]), lane(key[3]), lane(key[0]), lane(key[1]))


@dialect
def ignore_random(index, words, place, key):
    """Return 0, because rounding that is not stochastic needs no random bits."""
    return 0


def make_random_of(how: str, sr_bits: int) -> Callable[..., Any]:
    """Return `random_of(index, words, place, key)`, which returns the random bits of an element.

    `index` is the C-order index of the element, and `place` is the index of its random word in the
    array `words`. The random bits are shifted to the position at which stochastic rounding needs
    them.
    """
    if how == NOWHERE:
        return ignore_random
    align_random = make_align_random(sr_bits)
    if how == WORDS:

        @dialect
        def read_random(index, words, place, key):
            return integer(align_random(load(words, place)))

        return read_random

    @dialect
    def draw_random(index, words, place, key):
        index += key[4]
        w0, w1, w2, w3 = draw(index >> 2, key)
        which = index & 3
        return integer(align_random(w0 if which == 0 else w1 if which == 1 else w2 if which == 2 else w3))

    return draw_random


@cache
def map_elements(function: Callable[..., Any], how: str, sr_bits: int) -> Any:
    """Return a kernel that computes out = function(x, scale, random) for every element."""

    @dialect
    def ignore_offset(x, scale, offset, random):
        return function(x, scale, random)

    return _elements(ignore_offset, how, sr_bits)


@cache
def map_values(function: Callable[..., Any]) -> Any:
    """Return a kernel that computes out = function(code, scale) for every element."""

    @dialect
    def ignore_both(x, scale, offset, random):
        return function(x, scale)

    return _elements(ignore_both, NOWHERE, 0)


@cache
def quantize_with_offset(
    source: ElementFormat, element: ElementFormat, rounding: Rounding, overflow: Overflow, how: str, sr_bits: int
) -> Any:
    """Return a kernel that quantizes elements after subtracting the offset of their block."""
    return _elements(make_offset_quantized(source, element, rounding, overflow), how, sr_bits)


@cache
def fake_quantize_with_offset(
    source: ElementFormat, element: ElementFormat, rounding: Rounding, overflow: Overflow, how: str, sr_bits: int
) -> Any:
    """Return a kernel that subtracts offsets, quantizes, dequantizes and adds the offsets back."""
    quantized = make_offset_quantized(source, element, rounding, overflow)
    dequantized = make_offset_dequantized(element, source)

    @dialect
    def fake_quantized(x, scale, offset, random):
        return dequantized(quantized(x, scale, offset, random), scale, offset)

    return _elements(fake_quantized, how, sr_bits)


@cache
def dequantize_with_offset(element: ElementFormat, target: ElementFormat) -> Any:
    """Return a kernel that decodes codes and then adds the offset of their block."""
    dequantized = make_offset_dequantized(element, target)

    @dialect
    def without_random(code, scale, offset, random):
        return dequantized(code, scale, offset)

    return _elements(without_random, NOWHERE, 0)


def _elements(function: Callable[..., Any], how: str, sr_bits: int) -> Any:
    random_of = make_random_of(how, sr_bits)

    def run(
        count, shape, blocks, source, source_at, source_by, scales, scales_at, scales_by, offsets, offsets_at,
        offsets_by, words, words_at, words_by, key, out, out_at, out_by,
    ):  # fmt: skip
        index, step = cuda.grid(1), cuda.gridsize(1)
        while index < count:
            rest = index
            of_source, of_scales, of_offsets = source_at, scales_at, offsets_at
            of_words, of_out = words_at, out_at
            for back in range(len(shape)):
                axis = len(shape) - 1 - back
                whole = rest // shape[axis]
                at = rest - whole * shape[axis]
                rest = whole
                block = at // blocks[axis]
                of_source += at * source_by[axis]
                of_scales += block * scales_by[axis]
                of_offsets += block * offsets_by[axis]
                of_words += at * words_by[axis]
                of_out += at * out_by[axis]
            random = random_of(index, words, of_words, key)
            x, scale, offset = load(source, of_source), load(scales, of_scales), load(offsets, of_offsets)
            store(out, of_out, function(integer(x), integer(scale), integer(offset), random))
            index += step

    return compile_kernel(run)


@cache
def map_with_tensor(function: Callable[..., Any], how: str, sr_bits: int) -> Any:
    """Return a kernel that computes out = function(x, scale, tensor, random) for every element."""
    return _elements(function, how, sr_bits)


@cache
def find_first(source: ElementFormat, above_infinity: int) -> Any:
    """Return a kernel that finds the first infinity or NaN of an array, in C order.

    If `above_infinity` is 1, the kernel ignores infinities and finds the first NaN. The kernel
    stores the index of the element in `found[0]`, unless `found[0]` already holds a lower index.
    """
    MAGNITUDE_MASK = (1 << (source.bits - 1)) - 1
    LAST = source.max_code + above_infinity

    def run(count, shape, source, source_at, source_by, found):
        index, step = cuda.grid(1), cuda.gridsize(1)
        while index < count:
            rest, of_source = index, source_at
            for back in range(len(shape)):
                axis = len(shape) - 1 - back
                whole = rest // shape[axis]
                of_source += (rest - whole * shape[axis]) * source_by[axis]
                rest = whole
            if (int(source[of_source]) & MAGNITUDE_MASK) > LAST:
                cuda.atomic.min(found, 0, index)
            index += step

    return compile_kernel(run)


@cache
def fill() -> Any:
    """Return a kernel `run(count, vector, value)`, which fills a vector with a value."""

    def run(count, vector, value):
        index, step = cuda.grid(1), cuda.gridsize(1)
        while index < count:
            vector[index] = value
            index += step

    return compile_kernel(run)


@cache
def largest() -> Any:
    """Return a kernel that finds the largest element of an array of unsigned integers.

    The kernel stores the largest element in `found[0]`, unless `found[0]` already holds a larger
    number.
    """

    def run(count, shape, source, source_at, source_by, found):
        index, step = cuda.grid(1), cuda.gridsize(1)
        while index < count:
            rest, of_source = index, source_at
            for back in range(len(shape)):
                axis = len(shape) - 1 - back
                whole = rest // shape[axis]
                of_source += (rest - whole * shape[axis]) * source_by[axis]
                rest = whole
            cuda.atomic.max(found, 0, int(source[of_source]))
            index += step

    return compile_kernel(run)


# Scales and offsets of blocks


@cache
def block_scales(
    source: ElementFormat, scale_of: Callable[..., Any], nan_code: int, given: bool, asymmetric: Asymmetric | None
) -> Any:
    """Return a kernel that computes the scale of every block.

    If `asymmetric` is not None, the kernel computes offsets too. `scale_of` computes a scale code
    from the largest finite magnitude of a block and the tensor scale. `nan_code` is the scale code
    of blocks that hold NaN or infinity. If `nan_code` is -1, the finite elements of these blocks
    determine the scale. If `given` is True, the kernel reads the scales from `given_scales` instead
    of computing them.

    The last axis of `shape` must be the axis with the longest blocks. `counts` are the numbers of
    blocks along each axis. `given_by`, `tensor_by` and `scales_by` hold a stride for each axis of
    `shape`. `offsets` has the same strides as `scales`.
    """
    MAGNITUDE_MASK = (1 << (source.bits - 1)) - 1
    MAX, NAN_CODE = source.max_code, nan_code
    ASYMMETRIC = asymmetric is not None
    element, rule, HALF = asymmetric if asymmetric is not None else Asymmetric(E2M1, ScaleRule.FLOOR, False)
    to_ordered = make_to_ordered(source)
    offset_of = _make_offset_of(source)
    difference_of = make_difference_of(source)
    of_difference = difference_format(source)
    DIFFERENCE_MASK, DIFFERENCE_MAX = (1 << (of_difference.bits - 1)) - 1, of_difference.max_code
    scale_of_difference = make_scale_of(of_difference, element, rule)
    half_scale_of = _make_half_scale_of(source, element, rule)

    def run(
        total, shape, blocks, counts, source, source_at, source_by, given_scales, given_at, given_by, tensor, tensor_at,
        tensor_by, scales, scales_by, offsets,
    ):  # fmt: skip
        last = len(shape) - 1
        number, step = cuda.grid(1), cuda.gridsize(1)
        while number < total:
            # Find where the block begins, and how many rows along the last axis it has.
            rest, corner, of_given, of_tensor, of_scales, runs = number, source_at, given_at, tensor_at, 0, 1
            for back in range(len(shape)):
                axis = last - back
                whole = rest // counts[axis]
                block = rest - whole * counts[axis]
                rest = whole
                start = block * blocks[axis]
                corner += start * source_by[axis]
                of_given += block * given_by[axis]
                of_tensor += block * tensor_by[axis]
                of_scales += block * scales_by[axis]
                length = min(blocks[axis], shape[axis] - start)
                if axis == last:
                    run_length = length
                else:
                    runs *= length
            amax, bad, high, low = 0, 0, -MAX - 1, MAX + 1
            for which in range(runs):
                place = _place_of_run(which, number, corner, shape, blocks, counts, source_by)
                for i in range(run_length):
                    x = int(source[place + i * source_by[last]])
                    magnitude = x & MAGNITUDE_MASK
                    if magnitude <= MAX:
                        amax = max(amax, magnitude)
                        if ASYMMETRIC:
                            ordered = to_ordered(x)
                            high, low = max(high, ordered), min(low, ordered)
                    else:
                        bad = 1
            offset = 0
            scale = 0
            if ASYMMETRIC:
                offset = offset_of(high, low)
                if HALF:
                    scale = half_scale_of(high, low)
                else:
                    amax = 0
                    for which in range(runs):
                        place = _place_of_run(which, number, corner, shape, blocks, counts, source_by)
                        for i in range(run_length):
                            d = int(difference_of(int(source[place + i * source_by[last]]), offset)) & DIFFERENCE_MASK
                            if d <= DIFFERENCE_MAX:
                                amax = max(amax, d)
                    scale = int(scale_of_difference(amax))
            else:
                scale = int(scale_of(amax, integer(load(tensor, of_tensor))))
            if given:
                scale = int(integer(load(given_scales, of_given)))
            if NAN_CODE >= 0 and bad == 1:
                scale = NAN_CODE
            scales[of_scales] = scale
            if ASYMMETRIC:
                offsets[of_scales] = 0 if scale == NAN_SCALE else offset
            number += step

    return compile_kernel(run)


@dialect
def _place_of_run(which, number, corner, shape, blocks, counts, source_by):
    """Return where row `which` of a block begins: the index in memory of its first element.

    The rows of a block lie along the last axis.
    """
    place, rest, outer = corner, which, number // counts[len(shape) - 1]
    for back in range(1, len(shape)):
        axis = len(shape) - 1 - back
        whole = outer // counts[axis]
        length = min(blocks[axis], shape[axis] - (outer - whole * counts[axis]) * blocks[axis])
        outer = whole
        row = rest // length
        place += (rest - row * length) * source_by[axis]
        rest = row
    return place


def _make_offset_of(source: ElementFormat) -> Callable[..., Any]:
    """Return `offset_of(high, low)`, which returns the float16 bits of a block's midpoint.

    `high` and `low` represent the largest and the smallest finite element of the block. They are
    integers that sort like the numbers (see `make_to_ordered`). The result is 0 if the block has no
    finite element.
    """
    word, plain = words(word_bits(source, OFFSET))
    from_ordered, midpoint = make_from_ordered(source), make_midpoint(source)

    @dialect
    def offset_of(high, low):
        if low <= high:
            return int(plain(midpoint(from_ordered(word(high)), from_ordered(word(low))))) & 0xFFFF
        return 0

    return offset_of


def _make_half_scale_of(source: ElementFormat, element: ElementFormat, rule: ScaleRule) -> Callable[..., Any]:
    """Return `half_scale_of(high, low)`, which returns the scale code for half a block's range.

    `high` and `low` represent the largest and the smallest finite element of the block. They are
    integers that sort like the numbers (see `make_to_ordered`).
    """
    word, plain = words(word_bits(source, element))
    from_ordered, half_range_scale = make_from_ordered(source), make_half_range_scale(source, element, rule)

    @dialect
    def half_scale_of(high, low):
        if low <= high:
            return int(plain(half_range_scale(from_ordered(word(high)), from_ordered(word(low)))))
        return 0

    return half_scale_of


# Moving and comparing


@cache
def copy_elements() -> Any:
    """Return a kernel that copies every element of an array to another array."""

    @dialect
    def same(x, scale, offset, random):
        return x

    return _elements(same, NOWHERE, 0)


@cache
def first_difference() -> Any:
    """Return a kernel that finds the least C-order index at which two arrays of integers differ.

    The kernel stores the index in `found[0]`, unless `found[0]` already holds a lower index.
    """

    def run(count, shape, a, a_at, a_by, b, b_at, b_by, found):
        index, step = cuda.grid(1), cuda.gridsize(1)
        while index < count:
            rest, of_a, of_b = index, a_at, b_at
            for back in range(len(shape)):
                axis = len(shape) - 1 - back
                whole = rest // shape[axis]
                of_a += (rest - whole * shape[axis]) * a_by[axis]
                of_b += (rest - whole * shape[axis]) * b_by[axis]
                rest = whole
            if a[of_a] != b[of_b]:
                cuda.atomic.min(found, 0, index)
            index += step

    return compile_kernel(run)


@cache
def pack_rows(bits: int) -> Any:
    """Return `pack(count, length, row_bytes, codes, packed)`, a kernel that packs rows of codes.

    A row has `length` codes and `row_bytes` bytes. `count` is the number of bytes of all rows. A
    thread computes one byte at a time.
    """

    def pack(count, length, row_bytes, codes, packed):
        index, step = cuda.grid(1), cuda.gridsize(1)
        while index < count:
            row = index // row_bytes
            first = (index - row * row_bytes) * 8  # The index of the byte's first bit in the row.
            byte = 0
            code = first // bits
            while code * bits < first + 8 and code < length:
                value, shift = int(codes[row * length + code]), code * bits - first
                byte |= value << shift if shift >= 0 else value >> -shift
                code += 1
            packed[index] = byte & 0xFF
            index += step

    return compile_kernel(pack)


@cache
def unpack_rows(bits: int) -> Any:
    """Return `unpack(count, row_bytes, length, packed, codes)`, a kernel that unpacks rows.

    A row has `row_bytes` bytes and `length` codes. `count` is the number of codes of all rows. A
    thread computes one code at a time.
    """
    MASK = (1 << bits) - 1

    def unpack(count, row_bytes, length, packed, codes):
        index, step = cuda.grid(1), cuda.gridsize(1)
        while index < count:
            row = index // length
            first = (index - row * length) * bits
            byte = first >> 3
            value = int(packed[row * row_bytes + byte])
            if (first & 7) + bits > 8:
                value |= int(packed[row * row_bytes + byte + 1]) << 8
            codes[index] = (value >> (first & 7)) & MASK
            index += step

    return compile_kernel(unpack)
