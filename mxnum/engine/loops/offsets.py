"""Loops for asymmetric scaling, whatever the blocks: what makes an ordinary quantization of it, and back.

The array is seen as in `columns`: bands of k rows, taken in panels of columns. Quantizing, a first loop finds the
offset of each block and writes the differences from it, which the loops of `rows` and `columns` then quantize.
Dequantizing, those make the values, and a last loop adds the offsets.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from mxnum.dtypes import Array
from mxnum.engine.loops.columns import rows_of
from mxnum.engine.machine.jit import compile_loop
from mxnum.engine.machine.lanes import integer, lane, load, store, wide
from mxnum.engine.rounding.float_additions import decoding_domain, make_widen
from mxnum.engine.rounding.formulation import Definition
from mxnum.engine.rounding.offset_additions import fast_sum, make_fast_difference, make_finite_difference
from mxnum.formats import E8M0, ElementFormat
from mxnum.modes import ScaleRule
from mxnum.scalar.offset import (
    OFFSET,
    difference_format,
    make_decode_offset,
    make_difference,
    make_from_ordered,
    make_half_range_scale,
    make_midpoint,
    make_to_ordered,
)
from mxnum.scalar.word import dialect, select, word_bits


def may_add(scales: Array, offsets: Array, element: ElementFormat) -> bool:
    """Whether all values are exact in float32, or NaN, and all offsets finite (float16 bits): what `fast_sum` needs."""
    return bool(_beyond()(scales, offsets, *decoding_domain(element)) == 0)


@cache
def _beyond() -> Any:
    """(scales, offsets, least, greatest) -> how many blocks `fast_sum` is not right for."""
    NAN_SCALE, LARGEST_OFFSET = E8M0.nan_code, OFFSET.max_code

    def loop(scales, offsets, least, greatest):
        count = 0
        for b in range(scales.size):
            scale, offset = integer(load(scales, b)), integer(load(offsets, b) & 0x7FFF)
            inside = ((scale >= least) & (scale <= greatest)) | (scale == NAN_SCALE)
            count += 0 if inside & (offset <= LARGEST_OFFSET) else 1
        return count

    return compile_loop(loop)


@cache
def clear_offsets() -> Any:
    """(scales, offsets): blocks whose scale is NaN get the offset zero."""
    NAN_SCALE = E8M0.nan_code

    def loop(scales, offsets):
        for b in range(scales.size):
            store(offsets, b, select(load(scales, b) == NAN_SCALE, 0, load(offsets, b)))

    return compile_loop(loop)


@cache
def subtract_offsets(source: ElementFormat, by_floats: bool) -> Any:
    """(x, differences, offsets, (rows, columns, k, run, panel), (first, last, begin, end), largest, smallest).

    Offsets of all blocks as float16 bits, x less the offset of its block in `difference_format`, and the finite ends of
    each block in the order of `make_to_ordered`; those of a block without any are zeros. `by_floats` says whether
    float additions may take the offsets away.
    """
    find_ends, from_ordered = _make_ends(source), make_from_ordered(source)
    middle = Definition(make_midpoint(source), word_bits(source, OFFSET) == 32)
    if by_floats:
        subtract, subtract_finite = make_fast_difference(source), make_finite_difference(source)
    else:
        subtract = subtract_finite = make_difference(source)
    in_lanes = by_floats or word_bits(source, difference_format(source)) == 32
    midpoint_of, word_of_middle, word = middle.function, middle.word, lane if in_lanes else wide
    widen_offset: Any = make_widen(OFFSET) if by_floats else _unchanged
    Ordered = ordered_type(source)

    def loop(x, out, offsets, shape, bounds, largest, smallest):
        _, columns, _, run, panel = shape
        first, last, begin, end = bounds
        per_row = (columns + run - 1) // run
        high, low = np.empty(panel + run, Ordered), np.empty(panel + run, Ordered)
        spread = np.empty(panel + run, np.int32)
        for band in range(first, last):
            first_row, last_row = rows_of(band, shape)
            for column in range(begin, end, panel):
                width = min(panel, end - column)
                blocks = (width + run - 1) // run
                all_finite = find_ends(x, first_row, last_row, columns, column, width, run, high, low)
                place = band * per_row + column // run
                for b in range(blocks):
                    a, z = Ordered(integer(load(high, b))), Ordered(integer(load(low, b)))
                    is_empty = z > a
                    a, z = Ordered(0) if is_empty else a, Ordered(0) if is_empty else z
                    bits = midpoint_of(from_ordered(word_of_middle(a)), from_ordered(word_of_middle(z)))
                    store(offsets, place + b, bits)
                    store(largest, place + b, a)
                    store(smallest, place + b, z)
                for b in range(blocks):
                    offset = integer(widen_offset(load(offsets, place + b)))
                    for j in range(b * run, (b + 1) * run):
                        store(spread, j, offset)
                for row in range(first_row, last_row):
                    base = row * columns + column
                    if all_finite:
                        for j in range(width):
                            offset = word(integer(load(spread, j)))
                            store(out, base + j, subtract_finite(word(load(x, base + j)), offset))
                    else:
                        for j in range(width):
                            offset = word(integer(load(spread, j)))
                            store(out, base + j, subtract(word(load(x, base + j)), offset))

    return compile_loop(loop)


@cache
def half_range_scales(source: ElementFormat, element: ElementFormat, rule: ScaleRule) -> Any:
    """(largest, smallest, scales): the scale of half the range of each block, from its ends as ordered."""
    from_ordered, scale_of = make_from_ordered(source), make_half_range_scale(source, element, rule)
    word: Any = lane if word_bits(source, element) == 32 else wide

    def loop(largest, smallest, scales):
        for b in range(scales.size):
            a, z = word(integer(load(largest, b))), word(integer(load(smallest, b)))
            store(scales, b, scale_of(from_ordered(a), from_ordered(z)))

    return compile_loop(loop)


def ordered_type(source: ElementFormat) -> Any:
    """The integer type that holds ordered bit patterns."""
    return np.int32 if source.bits <= 32 else np.int64


@cache
def _make_ends(source: ElementFormat) -> Callable[..., Any]:
    """(x, first_row, last_row, columns, column, width, run, high, low) -> whether all is finite: the ends of blocks.

    They are of the finite elements, in order; a block without any has a low end above the high one.
    """
    MAX, to_ordered, Ordered = source.max_code, make_to_ordered(source), ordered_type(source)

    @dialect
    def ends(x, first_row, last_row, columns, column, width, run, high, low):
        blocks = (width + run - 1) // run
        all_finite = True
        for j in range(blocks * run):
            store(high, j, Ordered(-1 - MAX))
            store(low, j, Ordered(MAX + 1))
        for row in range(first_row, last_row):
            base = row * columns + column
            for j in range(width):
                ordered = Ordered(integer(to_ordered(load(x, base + j))))
                store(high, j, Ordered(max(Ordered(integer(load(high, j))), ordered)))
                store(low, j, Ordered(min(Ordered(integer(load(low, j))), ordered)))
        for j in range(width):
            all_finite &= (integer(load(high, j)) <= MAX) & (integer(load(low, j)) >= -MAX)
        if not all_finite:
            for j in range(width):
                store(high, j, Ordered(-1 - MAX))
                store(low, j, Ordered(MAX + 1))
            for row in range(first_row, last_row):
                base = row * columns + column
                for j in range(width):
                    ordered = Ordered(integer(to_ordered(load(x, base + j))))
                    is_finite = (ordered >= -MAX) & (ordered <= MAX)
                    greatest, least = Ordered(integer(load(high, j))), Ordered(integer(load(low, j)))
                    store(high, j, Ordered(max(greatest, ordered if is_finite else Ordered(-1 - MAX))))
                    store(low, j, Ordered(min(least, ordered if is_finite else Ordered(MAX + 1))))
        for b in range(blocks):
            greatest, least = Ordered(-1 - MAX), Ordered(MAX + 1)
            for j in range(b * run, (b + 1) * run):
                greatest = Ordered(max(greatest, Ordered(integer(load(high, j)))))
                least = Ordered(min(least, Ordered(integer(load(low, j)))))
            store(high, b, greatest)
            store(low, b, least)
        return all_finite

    return ends


@cache
def add_offsets() -> Any:
    """(values, offsets, shape, bounds): to float32 values the offset of their block."""
    widen_offset = make_widen(OFFSET)

    def loop(values, offsets, shape, bounds):
        _, columns, _, run, panel = shape
        first, last, begin, end = bounds
        per_row = (columns + run - 1) // run
        spread = np.empty(panel + run, np.int32)
        for band in range(first, last):
            first_row, last_row = rows_of(band, shape)
            for column in range(begin, end, panel):
                width = min(panel, end - column)
                place = band * per_row + column // run
                for b in range((width + run - 1) // run):
                    offset = integer(widen_offset(load(offsets, place + b)))
                    for j in range(b * run, (b + 1) * run):
                        store(spread, j, offset)
                for row in range(first_row, last_row):
                    base = row * columns + column
                    for j in range(width):
                        store(values, base + j, fast_sum(load(values, base + j), load(spread, j)))

    return compile_loop(loop)


@cache
def decode_with_offsets(element: ElementFormat, target: ElementFormat) -> Any:
    """(codes, out, scales, shape, bounds, offsets): values in any float type, by the definition."""
    decode = make_decode_offset(element, target)
    word: Any = lane if word_bits(element, target) == 32 else wide

    def loop(codes, out, scales, shape, bounds, offsets):
        _, columns, _, run, panel = shape
        first, last, begin, end = bounds
        per_row = (columns + run - 1) // run
        scale_at, offset_at = np.empty(panel + run, np.int32), np.empty(panel + run, np.int32)
        for band in range(first, last):
            first_row, last_row = rows_of(band, shape)
            for column in range(begin, end, panel):
                width = min(panel, end - column)
                place = band * per_row + column // run
                for b in range((width + run - 1) // run):
                    for j in range(b * run, (b + 1) * run):
                        store(scale_at, j, integer(load(scales, place + b)))
                        store(offset_at, j, integer(load(offsets, place + b)))
                for row in range(first_row, last_row):
                    base = row * columns + column
                    for j in range(width):
                        scale, offset = word(integer(load(scale_at, j))), word(integer(load(offset_at, j)))
                        store(out, base + j, decode(word(load(codes, base + j)), scale, offset))

    return compile_loop(loop)


@dialect
def _unchanged(x):
    return x
