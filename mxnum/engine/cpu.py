"""Array loops on the CPU: they walk the layout and call the scalar definition.

Integers only, so that the floating-point environment of the process cannot change a bit. Every loop takes arrays of at
least two axes and one full-rank tuple `blocks`; what belongs to blocks (scales, maxima, offsets) is passed flat, and
`strides` are the element strides of its unflattened shape. A row is a run along the last axis.

Each function here is a cached factory: from formats and modes to a compiled loop.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from mxnum.engine.jit import compile_loop
from mxnum.formats import ElementFormat
from mxnum.modes import Overflow, Rounding, ScaleRule
from mxnum.scalar.convert import make_decode, make_encode
from mxnum.scalar.offset import (
    difference_format,
    make_decode_offset,
    make_difference,
    make_from_ordered,
    make_half_range_scale,
    make_midpoint,
    make_to_ordered,
)
from mxnum.scalar.random import make_align_random, philox4x32
from mxnum.scalar.scale import make_shared_scale
from mxnum.scalar.word import dialect

#: Bits of a block's state.
HAS_INFINITY, HAS_NAN = 1, 2


@dialect
def first_block(index, blocks, strides):
    """Flat number of the block that holds the first element of the row at `index`."""
    block = 0
    for axis in range(len(blocks) - 1):
        block += index[axis] // blocks[axis] * strides[axis]
    return block


@cache
def block_extents(source: ElementFormat) -> Any:
    """(bits, blocks, strides, amax, state): the largest finite magnitude of each block, and what else it holds."""
    MAGNITUDE_MASK = (1 << (source.bits - 1)) - 1
    MAX = source.max_code

    def extents(bits, blocks, strides, amax, state):
        length, run = bits.shape[-1], blocks[-1]
        for index in np.ndindex(bits.shape[:-1]):
            block = first_block(index, blocks, strides)
            row = bits[index]
            for start in range(0, length, run):
                largest, seen = int(amax[block]), int(state[block])
                for i in range(start, min(start + run, length)):
                    magnitude = int(row[i]) & MAGNITUDE_MASK
                    if magnitude <= MAX:
                        largest = max(largest, magnitude)
                    elif magnitude == MAX + 1:
                        seen |= HAS_INFINITY
                    else:
                        seen |= HAS_NAN
                amax[block], state[block] = largest, seen
                block += 1

    return compile_loop(extents)


@cache
def block_range(source: ElementFormat) -> Any:
    """(bits, blocks, strides, largest, smallest): the finite extremes of each block, as ordered integers.

    The arrays come in holding -1 - infinity and infinity + 1; a block without finite elements leaves them so.
    """
    MAX = source.max_code
    to_ordered = make_to_ordered(source)

    def extremes(bits, blocks, strides, largest, smallest):
        length, run = bits.shape[-1], blocks[-1]
        for index in np.ndindex(bits.shape[:-1]):
            block = first_block(index, blocks, strides)
            row = bits[index]
            for start in range(0, length, run):
                high, low = int(largest[block]), int(smallest[block])
                for i in range(start, min(start + run, length)):
                    ordered = to_ordered(int(row[i]))
                    if -MAX <= ordered <= MAX:
                        high, low = max(high, ordered), min(low, ordered)
                largest[block], smallest[block] = high, low
                block += 1

    return compile_loop(extremes)


@cache
def scales_from_amax(source: ElementFormat, element: ElementFormat, rule: ScaleRule) -> Any:
    """(amax, scales): the E8M0 code of each block."""
    shared_scale = make_shared_scale(source, element, rule)

    def fill(amax, scales):
        for block in range(amax.size):
            scales[block] = shared_scale(int(amax[block]))

    return compile_loop(fill)


@cache
def offsets_from_range(source: ElementFormat) -> Any:
    """(largest, smallest, offsets): float16 bit patterns of the midpoints, 0 where no element is finite."""
    return _from_range(source, make_midpoint(source))


@cache
def scales_from_half_range(source: ElementFormat, element: ElementFormat, rule: ScaleRule) -> Any:
    """(largest, smallest, scales): the E8M0 code of (max - min) / 2 of each block, 0 where no element is finite."""
    return _from_range(source, make_half_range_scale(source, element, rule))


def _from_range(source: ElementFormat, function: Callable[..., Any]) -> Any:
    from_ordered = make_from_ordered(source)

    def fill(largest, smallest, out):
        for block in range(largest.size):
            out[block] = 0
            if smallest[block] <= largest[block]:
                value = function(from_ordered(int(largest[block])), from_ordered(int(smallest[block])))
                out[block] = value & 0xFFFF

    return compile_loop(fill)


@cache
def encode_elements(
    source: ElementFormat, target: ElementFormat, rounding: Rounding, overflow: Overflow, sr_bits: int | None
) -> Any:
    """(bits, blocks, strides, scales, codes, words): every element encoded with the scale of its block.

    `words` are the random words of stochastic rounding, of which `sr_bits` bits are used; without `sr_bits` they are
    not looked at.
    """
    encode = make_encode(source, target, rounding, overflow)
    if sr_bits is None:
        return _map_with_block(encode, target)
    align_random = make_align_random(sr_bits)
    STORED = _stored(target)

    def encode_all(bits, blocks, strides, scales, codes, words):
        length, run = bits.shape[-1], blocks[-1]
        for index in np.ndindex(bits.shape[:-1]):
            block = first_block(index, blocks, strides)
            row, out, row_words = bits[index], codes[index], words[index]
            for start in range(0, length, run):
                for i in range(start, min(start + run, length)):
                    random = align_random(int(row_words[i]))
                    out[i] = encode(int(row[i]), int(scales[block]), random) & STORED
                block += 1

    return compile_loop(encode_all)


@cache
def encode_elements_seeded(
    source: ElementFormat, target: ElementFormat, rounding: Rounding, overflow: Overflow, sr_bits: int
) -> Any:
    """(bits, blocks, strides, scales, codes, key): as `encode_elements`, with Philox words.

    `key` is (seed low, seed high, stream low, stream high); element i in C order takes word i mod 4 of counter i // 4.
    """
    encode = make_encode(source, target, rounding, overflow)
    align_random = make_align_random(sr_bits)
    STORED = _stored(target)

    def encode_all(bits, blocks, strides, scales, codes, key):
        length, run = bits.shape[-1], blocks[-1]
        first = 0
        for index in np.ndindex(bits.shape[:-1]):
            block = first_block(index, blocks, strides)
            row, out = bits[index], codes[index]
            w0 = w1 = w2 = w3 = np.int64(0)
            for start in range(0, length, run):
                for i in range(start, min(start + run, length)):
                    place = (first + i) & 3
                    if i == 0 or place == 0:
                        counter = (first + i) >> 2
                        w0, w1, w2, w3 = philox4x32(counter & 0xFFFFFFFF, counter >> 32, key[2], key[3], key[0], key[1])
                    word = w0 if place == 0 else w1 if place == 1 else w2 if place == 2 else w3
                    out[i] = encode(int(row[i]), int(scales[block]), align_random(word)) & STORED
                block += 1
            first += length

    return compile_loop(encode_all)


@cache
def differences(source: ElementFormat) -> Any:
    """(bits, blocks, strides, offsets, out, 0): bit patterns of x - O, the offsets given as bit patterns."""
    difference = make_difference(source)

    @dialect
    def subtract(x, offset, _):
        return difference(x, offset)

    return _map_with_block(subtract, difference_format(source))


@cache
def decode_elements(element: ElementFormat, target: ElementFormat) -> Any:
    """(codes, blocks, strides, scales, out, 0): bit patterns of the values."""
    decode = make_decode(element, target)

    @dialect
    def expand(code, scale, _):
        return decode(code, scale)

    return _map_with_block(expand, target)


def _stored(target: ElementFormat) -> int:
    """The mask that turns a signed bit pattern into what a loop stores; a pattern of 64 bits stays signed."""
    return -1 if target.bits > 32 else (1 << target.bits) - 1


def _map_with_block(function: Callable[..., Any], target: ElementFormat) -> Any:
    """(bits, blocks, strides, per_block, out, _): out = function(element, what its block has, 0) for every element."""
    STORED = _stored(target)

    def run_all(bits, blocks, strides, per_block, out, _):
        length, run = bits.shape[-1], blocks[-1]
        for index in np.ndindex(bits.shape[:-1]):
            block = first_block(index, blocks, strides)
            row, result = bits[index], out[index]
            for start in range(0, length, run):
                shared = int(per_block[block])
                for i in range(start, min(start + run, length)):
                    result[i] = function(int(row[i]), shared, 0) & STORED
                block += 1

    return compile_loop(run_all)


@cache
def decode_elements_offset(element: ElementFormat, target: ElementFormat) -> Any:
    """(codes, blocks, strides, scales, out, offsets): bit patterns of value + offset, offsets as bit patterns."""
    decode_offset = make_decode_offset(element, target)
    STORED = _stored(target)

    def expand(codes, blocks, strides, scales, out, offsets):
        length, run = codes.shape[-1], blocks[-1]
        for index in np.ndindex(codes.shape[:-1]):
            block = first_block(index, blocks, strides)
            row, result = codes[index], out[index]
            for start in range(0, length, run):
                for i in range(start, min(start + run, length)):
                    result[i] = decode_offset(int(row[i]), int(scales[block]), int(offsets[block])) & STORED
                block += 1

    return compile_loop(expand)
