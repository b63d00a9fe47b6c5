"""Fast loops for asymmetric scaling of blocks along contiguous rows: offsets, differences and results in one go.

They are to `rows` what asymmetric scaling is to symmetric: a group of blocks at a time, scales before elements, and a
mark in `left` for every group that is still to be done. Of such a group the differences are written to memory, where
the loops of `rows` find them. Arrays, bounds and groups are as there; no block is longer than `rows.PIECE`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from mxnum.engine.draws import Draw
from mxnum.engine.formulation import Definition, numbers_given
from mxnum.engine.jit import compile_loop
from mxnum.engine.lanes import integer, lane, load, store, subtract_float32, wide
from mxnum.engine.magic import fast_scale, make_widen
from mxnum.engine.offsets import fast_sum, make_fast_difference, make_finite_difference, midpoint
from mxnum.engine.prefetch import READ_AHEAD, WRITE_AHEAD, ask_for
from mxnum.engine.rows import MIXED, NAN_SCALE, PIECE, group_of, make_values_of, scales_lie
from mxnum.formats import ElementFormat
from mxnum.scalar.offset import OFFSET, make_decode_offset, make_from_ordered, make_to_ordered
from mxnum.scalar.word import dialect, select, word_bits

_LARGEST_OFFSET = OFFSET.max_code


@cache
def quantize_rows_with_offsets(
    function: Callable[..., Any],
    source: ElementFormat,
    half_range: Definition | None,
    scales_given: bool,
    adds: bool,
    draw: Draw,
    constant_run: int,
) -> Any:
    """(x, out, scales, (length, run, group, step), bounds, left, words, numbers, offsets, differences) -> groups left.

    Offsets (float16 bits) of all groups, and results of those that the fast formulation of x less its offset is right
    for: codes, or values to which with `adds` the offset is added. With `half_range` all scales are made of the ends
    of blocks by it. With `constant_run`, which run then is, the rest of a row is left as well.
    """
    find_ends, from_ordered, middle = _ends(source), make_from_ordered(source), midpoint(source)
    midpoint_of, word_of_middle = middle.function, middle.word
    widen, widen_offset = make_widen(source), make_widen(OFFSET)
    subtract, subtract_finite = make_fast_difference(source), make_finite_difference(source)
    prepare, random_at, BUFFERED = draw.prepare, draw.at, draw.buffered
    IN_HALVES = half_range is not None
    scale_of, word_of_scale = (half_range.function, half_range.word) if half_range is not None else (fast_sum, lane)
    i32 = np.int32

    def loop(x, out, scales, shape, bounds, left, words, numbers, offsets, differences):
        limits, e = numbers_given(numbers)
        length, run, group, _ = shape
        first, last, begin, end = bounds
        per_row = (length + run - 1) // run
        high, low = np.empty(group, np.int32), np.empty(group, np.int32)
        middles, found, used = np.empty(group, np.int32), np.empty(group, np.int32), np.empty(group, np.int32)
        buffer = np.empty(PIECE + 8 if BUFFERED else 1, np.int32)
        skipped = 0
        for row in range(first, last):
            at = begin
            while at < end:
                number, blocks, width = group_of(row, at, shape)
                base, place = row * length + at * run, row * per_row + at
                at += blocks
                if constant_run > 0 and width == constant_run:
                    all_finite = find_ends(x, base, blocks, constant_run, high, low)
                else:
                    all_finite = find_ends(x, base, blocks, width, high, low)
                for b in range(blocks):
                    a, z = from_ordered(word_of_middle(high[b])), from_ordered(word_of_middle(low[b]))
                    store(middles, b, midpoint_of(a, z))
                if IN_HALVES:
                    for b in range(blocks):
                        a, z = from_ordered(word_of_scale(high[b])), from_ordered(word_of_scale(low[b]))
                        store(scales, place + b, scale_of(a, z))
                most, least, greatest = i32(0), i32(NAN_SCALE), i32(0)
                for b in range(blocks):
                    offset = widen_offset(load(middles, b))
                    store(offsets, place + b, load(middles, b))
                    store(middles, b, offset)
                    # Differences are in the order of x: the largest magnitude is at one of the ends.
                    above = integer(subtract_float32(widen(from_ordered(lane(high[b]))), offset) & 0x7FFFFFFF)
                    below = integer(subtract_float32(widen(from_ordered(lane(low[b]))), offset) & 0x7FFFFFFF)
                    magnitude = i32(max(above, below))
                    most = i32(max(most, magnitude))
                    if scales_given or IN_HALVES:
                        scale = i32(integer(load(scales, place + b)))
                    else:
                        scale = i32(integer(fast_scale(lane(magnitude), e)))
                        found[b] = scale
                    # Any scale gives the same zeros: one that is too small is replaced by the least allowed.
                    scale = i32(limits.least_scale) if magnitude == 0 and scale < NAN_SCALE else scale
                    used[b] = scale
                    least, greatest = i32(min(least, scale)), i32(max(greatest, scale))
                is_right = least >= limits.least_scale and greatest <= limits.greatest_scale
                is_right = is_right and all_finite and most <= limits.greatest_x
                if not is_right or (constant_run > 0 and width != constant_run):
                    for b in range(blocks):
                        offset = load(middles, b)
                        for i in range(base + b * width, base + (b + 1) * width):
                            store(differences, i, subtract(load(x, i), offset))
                    left[number] = MIXED
                    skipped += 1
                    continue
                if not (scales_given or IN_HALVES):
                    for b in range(blocks):
                        store(scales, place + b, found[b])
                random = prepare(words, buffer, base, blocks * width) - base
                for b in range(blocks):
                    scale, offset = lane(used[b]), load(middles, b)
                    if constant_run > 0:
                        start = base + b * constant_run
                        ask_for(x, start, constant_run, READ_AHEAD)
                        ask_for(out, start, constant_run, WRITE_AHEAD)
                        for i in range(start, start + constant_run):
                            bits = lane(random_at(words, buffer, random + i))
                            result = function(subtract_finite(load(x, i), offset), scale, bits, e)
                            store(out, i, fast_sum(result, offset) if adds else result)
                    else:
                        for i in range(base + b * width, base + (b + 1) * width):
                            bits = lane(random_at(words, buffer, random + i))
                            result = function(subtract_finite(load(x, i), offset), scale, bits, e)
                            store(out, i, fast_sum(result, offset) if adds else result)
        return skipped

    return compile_loop(loop)


@cache
def add_offsets_to_rows() -> Any:
    """(values, scales, offsets, shape, bounds, marked, least, greatest) -> how many blocks are left without.

    To the float32 values of the marked groups the offset of their block, unless the scale is outside of these bounds,
    where values may not be exact; a block whose scale is NaN has no offset.
    """
    widen_offset = make_widen(OFFSET)

    def loop(values, scales, offsets, shape, bounds, marked, least, greatest):
        length, run, _, _ = shape
        first, last, begin, end = bounds
        per_row = (length + run - 1) // run
        skipped = 0
        for row in range(first, last):
            at = begin
            while at < end:
                number, blocks, width = group_of(row, at, shape)
                base, place = row * length + at * run, row * per_row + at
                at += blocks
                if marked[number] == 0:
                    continue
                for b in range(blocks):
                    scale = integer(load(scales, place + b))
                    if scale == NAN_SCALE:
                        continue
                    if scale < least or scale > greatest:
                        skipped += 1
                        continue
                    offset = widen_offset(load(offsets, place + b))
                    for i in range(base + b * width, base + (b + 1) * width):
                        store(values, i, fast_sum(load(values, i), offset))
        return skipped

    return compile_loop(loop)


@cache
def decode_rows_with_offsets(function: Callable[..., Any], constant_run: int) -> Any:
    """(codes, out, scales, shape, bounds, numbers, offsets, left, nan) -> blocks left: float32 values with offsets.

    A block is marked and left where the formulation or the sum is not right; one whose scale is NaN is filled with
    `nan`.
    """
    widen_offset = make_widen(OFFSET)

    @dialect
    def offset_at(offsets, place):
        return widen_offset(load(offsets, place))

    @dialect
    def value_and_offset(code, scale, offset, e):
        return fast_sum(function(code, scale, 0, e), offset)

    values_of = make_values_of(value_and_offset, constant_run, offset_at)
    values_of_any = make_values_of(value_and_offset, 0, offset_at)

    def loop(codes, out, scales, shape, bounds, numbers, offsets, left, nan):
        limits, e = numbers_given(numbers)
        length, run, _, _ = shape
        first, last, begin, end = bounds
        per_row = (length + run - 1) // run
        skipped = 0
        for row in range(first, last):
            at = begin
            while at < end:
                _, blocks, width = group_of(row, at, shape)
                base, place = row * length + at * run, row * per_row + at
                at += blocks
                if scales_lie(scales, place, blocks, limits) and _are_finite(offsets, place, blocks):
                    if constant_run == 0 or width == constant_run:
                        values_of(codes, out, scales, offsets, place, base, 0, blocks, width, e)
                    else:
                        values_of_any(codes, out, scales, offsets, place, base, 0, blocks, width, e)
                    continue
                for b in range(blocks):
                    start = base + b * width
                    if integer(load(scales, place + b)) == NAN_SCALE:
                        for i in range(start, start + width):
                            store(out, i, nan)
                    elif scales_lie(scales, place + b, 1, limits) and _are_finite(offsets, place + b, 1):
                        values_of_any(codes, out, scales, offsets, place + b, start, 0, 1, width, e)
                    else:
                        left[place + b] = MIXED
                        skipped += 1
        return skipped

    return compile_loop(loop)


@cache
def decode_left_with_offsets(element: ElementFormat, target: ElementFormat) -> Any:
    """(codes, out, scales, shape, bounds, offsets, left): the marked blocks, by the definition."""
    decode = make_decode_offset(element, target)
    word: Any = lane if word_bits(element, target) == 32 else wide

    def loop(codes, out, scales, shape, bounds, offsets, left):
        length, run, _, _ = shape
        first, last, begin, end = bounds
        per_row = (length + run - 1) // run
        for row in range(first, last):
            for at in range(begin, end):
                place, start = row * per_row + at, row * length + at * run
                if left[place] != 0:
                    scale, offset = word(integer(load(scales, place))), word(integer(load(offsets, place)))
                    for i in range(start, start + min(run, length - at * run)):
                        store(out, i, decode(word(integer(load(codes, i))), scale, offset))

    return compile_loop(loop)


@dialect
def _are_finite(offsets, place, count):
    """Whether so many offsets, float16 bits, are finite."""
    largest = lane(0)
    for b in range(place, place + count):
        magnitude = load(offsets, b) & 0x7FFF
        largest = select(magnitude > largest, magnitude, largest)
    return largest <= _LARGEST_OFFSET


@cache
def _ends(source: ElementFormat) -> Callable[..., Any]:
    """(x, base, blocks, width, high, low) -> whether all is finite: the ends of so many blocks in a row.

    They are of the finite elements, in the order of `make_to_ordered`; zeros where there are none.
    """
    MAX, to_ordered, i32 = source.max_code, make_to_ordered(source), np.int32

    @dialect
    def ends(x, base, blocks, width, high, low):
        top, bottom = i32(-1 - MAX), i32(MAX + 1)
        for b in range(blocks):
            greatest, least = i32(-1 - MAX), i32(MAX + 1)
            start = base + b * width
            for i in range(start, start + width):
                ordered = i32(integer(to_ordered(load(x, i))))
                greatest, least = i32(max(greatest, ordered)), i32(min(least, ordered))
            high[b], low[b] = greatest, least
            top, bottom = i32(max(top, greatest)), i32(min(bottom, least))
        if top <= MAX and bottom >= -MAX:
            return True
        for b in range(blocks):
            greatest, least = i32(-1 - MAX), i32(MAX + 1)
            start = base + b * width
            for i in range(start, start + width):
                ordered = i32(integer(to_ordered(load(x, i))))
                is_finite = (ordered >= -MAX) & (ordered <= MAX)
                greatest = i32(max(greatest, ordered if is_finite else i32(-1 - MAX)))
                least = i32(min(least, ordered if is_finite else i32(MAX + 1)))
            is_empty = least > greatest
            high[b], low[b] = i32(0) if is_empty else greatest, i32(0) if is_empty else least
        return False

    return ends
