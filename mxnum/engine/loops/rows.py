"""Loops for blocks along contiguous rows.

A row is taken in groups of blocks. Quantizing a group has two phases, first all scales and then all
elements, which is what lets the compiler vectorize both. Each loop leaves alone the groups that its
formulation is not right for, or that it is not asked for: `marks` has one for every group that is
still to be done.

Arrays are flat and contiguous. A call does the rows `first` to `last`, and in each the blocks
`begin` to `end`, where `begin` is a multiple of the group. The functions here have the names and
arguments of those in `columns`; `marked` has the loops that redo what is marked.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from mxnum.definition.word import dialect, select
from mxnum.engine.loops.random_bits import NO_DRAW, SPARE, Draw
from mxnum.engine.machine.jit import compile_loop
from mxnum.engine.machine.kernels import Kernel, LoopOfKernel, call_kernel, others_apart
from mxnum.engine.machine.lanes import greatest_of, integer, lane, load, store, wide
from mxnum.engine.machine.prefetch import LONG_PART, PART, READ_AHEAD, WRITE_AHEAD, ask_for
from mxnum.engine.packing.bit_stream import make_pack_run, make_unpack_run
from mxnum.engine.rounding import as_float32, float_additions
from mxnum.engine.rounding.per_element import numbers_given
from mxnum.engine.traversal.block_walk import MIXED, PIECE, SHORT_RUN, USUAL_RUN
from mxnum.formats import E8M0, ElementFormat

NAN_SCALE = E8M0.nan_code


@dialect
def group_of(row, at, shape):
    """Number of the group that begins at a block of a row, and how many blocks it has, of what width."""
    length, run, group = shape
    full = length // run
    per_row = (full + group - 1) // group + (1 if full * run < length else 0)
    if at >= full:  # what is left of the row
        return row * per_row + per_row - 1, 1, length - full * run
    return row * per_row + at // group, min(group, full - at), run


@dialect
def scales_lie(scales, place, count, limits):
    """Whether so many scales lie within the limits."""
    least, greatest = lane(NAN_SCALE), lane(0)
    for b in range(place, place + count):
        scale = load(scales, b)
        least, greatest = select(scale < least, scale, least), select(scale > greatest, scale, greatest)
    return least >= limits.least_scale and greatest <= limits.greatest_scale


@cache
def quantize(
    function: Callable[..., Any],
    source: ElementFormat,
    scales_given: bool,
    draw: Draw,
    constant_run: int,
    bits: int = 8,
    inlined: bool = False,
) -> LoopOfKernel:
    """(x, out, scales, (length, run, group), (first, last, begin, end), marks, words, numbers) -> groups left.

    Scales and results of all groups, by a fast formulation; those that it is not right for are
    marked. With `constant_run`, which run then is, the rest of a row is left as well. Codes of
    fewer than eight bits are packed, and blocks begin at a byte: those of a group stay in the first
    cache until all are there. An `inlined` kernel makes a
    loop of its own, which takes longer to compile and a twentieth less to run.
    """
    kernel = _quantizing_kernel(function, draw is not NO_DRAW, constant_run, bits == 8)
    loop = _quantize(source, draw, constant_run, bits, kernel.function if inlined else None)
    return LoopOfKernel(loop, None if inlined else kernel, scales_given)


@cache
def _quantize(
    source: ElementFormat, draw: Draw, constant_run: int, bits: int, kernel_within: Callable[..., Any] | None
) -> Any:
    """`quantize` for every function, whose kernel comes first, and then whether scales are given."""
    MAGNITUDE = (1 << (source.bits - 1)) - 1
    widen, fast_scale = as_float32.make_widen(source), float_additions.fast_scale
    fill, DRAWS = draw.fill or NO_DRAW.prepare, draw is not NO_DRAW
    i32 = np.int32
    Magnitude: Any = np.int64 if source.bits > 32 else np.int32
    word = wide if source.bits > 32 else lane
    pack_run, PACKED = make_pack_run(bits), bits < 8
    elements: Any = kernel_within
    INLINED = kernel_within is not None

    def loop(kernel, scales_given, x, out, scales, shape, bounds, marks, words, numbers):
        limits, e = numbers_given(numbers)
        length, run, group = shape
        first, last, begin, end = bounds
        per_row = (length + run - 1) // run
        amax, used = np.empty(group, Magnitude), np.empty(group, np.int32)
        buffer = np.empty(PIECE + SPARE if DRAWS else 1, np.int32)
        room = np.empty(group * run, np.uint8) if PACKED else out
        skipped = 0
        for row in range(first, last):
            at = begin
            while at < end:
                number, blocks, width = group_of(row, at, shape)
                base, place = row * length + at * run, row * per_row + at
                at += blocks
                most = Magnitude(0)
                if constant_run > 0:
                    if width != constant_run:
                        marks[number] = MIXED
                        skipped += 1
                        continue
                    for b in range(blocks):
                        largest = Magnitude(greatest_of(x, base + b * constant_run, constant_run, MAGNITUDE))
                        amax[b] = largest
                        most = Magnitude(max(most, largest))
                else:
                    for b in range(blocks):
                        start, stop = base + b * width, base + (b + 1) * width
                        largest = Magnitude(0)
                        while start + USUAL_RUN <= stop:
                            some = Magnitude(greatest_of(x, start, USUAL_RUN, MAGNITUDE))
                            largest, start = Magnitude(max(largest, some)), start + USUAL_RUN
                        for i in range(start, stop):
                            largest = Magnitude(max(largest, integer(load(x, i) & MAGNITUDE)))
                        amax[b] = largest
                        most = Magnitude(max(most, largest))
                least, greatest = i32(NAN_SCALE), i32(0)
                for b in range(blocks):
                    magnitude = widen(word(amax[b]))
                    if scales_given:
                        scale = i32(integer(load(scales, place + b)))
                    else:
                        scale = i32(integer(fast_scale(magnitude, e)))
                        amax[b] = scale
                    # Any scale gives the same zeros: one that is too small is replaced by the least
                    # allowed.
                    scale = i32(limits.least_scale) if integer(magnitude) == 0 and scale < NAN_SCALE else scale
                    used[b] = scale
                    least, greatest = i32(min(least, scale)), i32(max(greatest, scale))
                is_right = least >= limits.least_scale and greatest <= limits.greatest_scale
                is_right = is_right and integer(widen(word(most))) <= limits.greatest_x
                if not is_right:
                    marks[number] = MIXED
                    skipped += 1
                    continue
                if not scales_given:
                    for b in range(blocks):
                        store(scales, place + b, amax[b])
                stop, room_base = base + blocks * width, base if PACKED else 0
                if PACKED:
                    for part in range(base, stop, PART):
                        ask_for(out, part * bits // 8, PART, WRITE_AHEAD)
                for piece in range(base, stop, blocks * width if blocks > 1 else PIECE):
                    size = min(width, stop - piece, PIECE)  # of a block, or of part of a long one
                    drawn = fill(words, buffer, piece, blocks * size) - piece
                    where = piece, blocks, size, room_base, drawn, 0, 0
                    if INLINED:
                        elements(x, room, used, buffer, numbers, where)
                    else:
                        call_kernel(kernel, x, room, used, buffer, numbers, where)
                if PACKED:
                    pack_run(room, 0, blocks * width, out, base * bits // 8)
        return skipped

    return compile_loop(loop)


@cache
def _quantizing_kernel(function: Callable[..., Any], draws: bool, constant_run: int, asks_for_room: bool) -> Kernel:
    """The elements of blocks: (x, out, scales, random bits, numbers, (first element, blocks, width, ...))."""

    @dialect
    def kernel(x, out, scales, drawn, numbers, where):
        others_apart()
        _, e = numbers_given(numbers)
        first, blocks, width, out_base, random, _, _ = where
        for b in range(blocks):
            scale = lane(load(scales, b))
            if constant_run > 0:
                start = first + b * constant_run
                ask_for(x, start, constant_run, READ_AHEAD)
                if asks_for_room:
                    ask_for(out, start, constant_run, WRITE_AHEAD)
                for i in range(start, start + constant_run):
                    bits = lane(load(drawn, random + i)) if draws else lane(0)
                    store(out, i - out_base, function(load(x, i), scale, bits, e))
            else:
                start = first + b * width
                for part in range(start, start + width, PART):
                    ask_for(x, part, PART, READ_AHEAD)
                    if asks_for_room:
                        ask_for(out, part, PART, WRITE_AHEAD)
                    for i in range(part, min(part + PART, start + width)):
                        bits = lane(load(drawn, random + i)) if draws else lane(0)
                        store(out, i - out_base, function(load(x, i), scale, bits, e))

    return Kernel(kernel)


@cache
def decode(function: Callable[..., Any], constant_run: int, bits: int = 8) -> LoopOfKernel:
    """(codes, out, scales, shape, bounds, marks, _, numbers) -> groups left: values, by a fast formulation.

    Codes of fewer than eight bits are packed, and blocks begin at a byte: some at a time are
    unpacked to a buffer. An `inlined` kernel makes a
    loop of its own, which takes longer to compile and a twentieth less to run.
    """
    kernel = _decoding_kernel(function, constant_run)
    return LoopOfKernel(_decode(constant_run > 0, bits), kernel, scales=np.uint8)


@cache
def _decode(leaves_rest: bool, bits: int) -> Any:
    """`decode` for every function, whose kernel comes first."""
    unpack_run, PACKED = make_unpack_run(bits), bits < 8

    def loop(kernel, codes, out, scales, shape, bounds, marks, unused, numbers):
        limits, _ = numbers_given(numbers)
        length, run, _ = shape
        first, last, begin, end = bounds
        per_row, full = (length + run - 1) // run, length // run
        most = max(1, PIECE // run) if PACKED else full
        unpacked = np.empty(most * run if PACKED else 1, np.uint8)
        skipped = 0
        for row in range(first, last):
            at = begin
            all_right = scales_lie(scales, row * per_row + begin, end - begin, limits)
            while at < end:
                number, blocks, width = group_of(row, at, shape)
                if all_right and at < full:  # marks are for groups, and there are none
                    blocks = min(min(end, full) - at, most)
                base, place = row * length + at * run, row * per_row + at
                at += blocks
                is_right = all_right or scales_lie(scales, place, blocks, limits)
                if not is_right or (leaves_rest and width != run):
                    marks[number] = MIXED
                    skipped += 1
                    continue
                if PACKED:
                    unpack_run(codes, base * bits // 8, blocks * width, unpacked, 0)
                    where = place, 0, base, blocks, width, 0, 0
                    call_kernel(kernel, unpacked, out, scales, numbers, numbers, where)
                else:
                    where = place, base, base, blocks, width, 0, 0
                    call_kernel(kernel, codes, out, scales, numbers, numbers, where)
        return skipped

    return compile_loop(loop)


@cache
def _decoding_kernel(function: Callable[..., Any], constant_run: int) -> Kernel:
    """The values of blocks one after the other: (codes, out, scales, _, numbers, (first scale, first code, ...))."""
    PAIR = 2 * SHORT_RUN

    def kernel(codes, out, scales, unused, numbers, where):
        others_apart()
        _, e = numbers_given(numbers)
        place, first_code, first, blocks, width, _, _ = where
        back = first_code - first
        alone = 0
        if constant_run == SHORT_RUN:  # two blocks at a time: compilers make scalars of so short a function in a loop
            alone = blocks & ~1  # of the shorter length
            for b in range(0, alone, 2):
                one, other = load(scales, place + b), load(scales, place + b + 1)
                start = first + b * SHORT_RUN
                ask_for(out, start, PAIR, WRITE_AHEAD)
                for i in range(PAIR):
                    scale = select((i & SHORT_RUN) == 0, one, other)
                    store(out, start + i, function(load(codes, back + start + i), scale, 0, e))
        for b in range(alone, blocks):
            scale = load(scales, place + b)
            if constant_run > 0:
                start = first + b * constant_run
                ask_for(out, start, constant_run, WRITE_AHEAD)
                for i in range(start, start + constant_run):
                    store(out, i, function(load(codes, back + i), scale, 0, e))
            elif width < LONG_PART:
                for i in range(first + b * width, first + (b + 1) * width):
                    store(out, i, function(load(codes, back + i), scale, 0, e))
            else:
                stop = first + (b + 1) * width
                for part in range(first + b * width, stop, LONG_PART):
                    ask_for(out, part, LONG_PART, WRITE_AHEAD)
                    for i in range(part, min(part + LONG_PART, stop)):
                        store(out, i, function(load(codes, back + i), scale, 0, e))

    return Kernel(kernel)


@cache
def greatest_magnitude(source: ElementFormat) -> Any:
    """(x) -> the greatest magnitude as a bit pattern."""
    MAGNITUDE = (1 << (source.bits - 1)) - 1
    Magnitude: Any = np.int64 if source.bits > 32 else np.int32

    def loop(x):
        greatest = Magnitude(0)
        for i in range(x.size):
            greatest = Magnitude(max(greatest, Magnitude(integer(load(x, i) & MAGNITUDE))))
        return greatest

    return compile_loop(loop)
