"""Loops for asymmetric scaling, whatever the blocks: what makes an ordinary quantization of it, and back.

The array is seen as in `columns`: bands of k rows, taken in panels of columns. Quantizing, a first loop finds the
offset of each block, and `convert` makes the differences from it, which the loops of `rows` and `columns` then
quantize. Dequantizing, those make the values, and `convert` adds the offsets.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from mxnum.definition.offset import (
    OFFSET,
    difference_format,
    make_decode_offset,
    make_difference,
    make_from_ordered,
    make_half_range_scale,
    make_midpoint,
    make_to_ordered,
)
from mxnum.definition.word import dialect, word_bits
from mxnum.engine.machine.jit import compile_loop
from mxnum.engine.machine.lanes import integer, lane, load, store, wide
from mxnum.engine.rounding.as_float32 import make_widen
from mxnum.engine.rounding.float_additions import decoding_domain
from mxnum.engine.rounding.offset_additions import fast_sum, make_fast_difference
from mxnum.engine.rounding.per_element import Definition
from mxnum.engine.traversal.block_walk import panel_of, rows_of
from mxnum.formats import E8M0, ElementFormat
from mxnum.memory.dtypes import Array
from mxnum.modes import ScaleRule


def may_add(scales: Array, offsets: Array, element: ElementFormat) -> bool:
    """Whether all values are exact in float32, or NaN, and all offsets finite (float16 bits): what `fast_sum` needs."""
    least, greatest = decoding_domain(element)
    inside = ((scales >= least) & (scales <= greatest)) | (scales == E8M0.nan_code)
    return bool(inside.all() and ((offsets & 0x7FFF) <= OFFSET.max_code).all())


def ordered_type(source: ElementFormat) -> Any:
    """The integer type that holds ordered bit patterns."""
    return np.int32 if source.bits <= 32 else np.int64


@cache
def find_offsets(source: ElementFormat) -> Any:
    """(x, offsets, (rows, columns, k, run, panel), (first, last, begin, end), largest, smallest).

    Offsets of all blocks as float16 bits, and the finite ends of each block in the order of `make_to_ordered`; those of
    a block without any are zeros.
    """
    MAX, Ordered = source.max_code, ordered_type(source)
    to_ordered, from_ordered = make_to_ordered(source), make_from_ordered(source)
    middle = Definition(make_midpoint(source), word_bits(source, OFFSET) == 32)
    midpoint_of, word_of_middle = middle.function, middle.word

    @dialect
    def clear(high, low, count):
        for j in range(count):
            store(high, j, Ordered(-1 - MAX))
            store(low, j, Ordered(MAX + 1))

    def loop(x, offsets, shape, bounds, largest, smallest):
        _, columns, _, run, panel = shape
        first, last, begin, end = bounds
        per_row = (columns + run - 1) // run
        high, low = np.empty(panel + run, Ordered), np.empty(panel + run, Ordered)
        for band in range(first, last):
            first_row, last_row = rows_of(band, shape)
            next_column = begin
            while next_column < end:
                _, width = panel_of(band, next_column, shape)
                column, next_column = next_column, next_column + width
                blocks, place = (width + run - 1) // run, band * per_row + column // run
                clear(high, low, blocks * run)
                for row in range(first_row, last_row):
                    base = row * columns + column
                    for j in range(width):
                        ordered = Ordered(integer(to_ordered(load(x, base + j))))
                        store(high, j, Ordered(max(Ordered(integer(load(high, j))), ordered)))
                        store(low, j, Ordered(min(Ordered(integer(load(low, j))), ordered)))
                all_finite = True
                for j in range(width):
                    all_finite &= (integer(load(high, j)) <= MAX) & (integer(load(low, j)) >= -MAX)
                if not all_finite:
                    clear(high, low, blocks * run)
                    for row in range(first_row, last_row):
                        base = row * columns + column
                        for j in range(width):
                            ordered = Ordered(integer(to_ordered(load(x, base + j))))
                            if -MAX <= ordered <= MAX:
                                high[j], low[j] = max(high[j], ordered), min(low[j], ordered)
                for b in range(blocks):
                    a, z = Ordered(-1 - MAX), Ordered(MAX + 1)
                    for j in range(b * run, (b + 1) * run):
                        a = Ordered(max(a, Ordered(integer(load(high, j)))))
                        z = Ordered(min(z, Ordered(integer(load(low, j)))))
                    store(high, b, a)
                    store(low, b, z)
                for b in range(blocks):  # (apart, since compilers make vectors of that)
                    a, z = Ordered(integer(load(high, b))), Ordered(integer(load(low, b)))
                    is_empty = z > a
                    a, z = Ordered(0) if is_empty else a, Ordered(0) if is_empty else z
                    bits = midpoint_of(from_ordered(word_of_middle(a)), from_ordered(word_of_middle(z)))
                    store(offsets, place + b, bits)
                    store(largest, place + b, a)
                    store(smallest, place + b, z)

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


@cache
def subtract_offsets(source: ElementFormat, by_floats: bool) -> Any:
    """`convert` of numbers to their differences from offsets, in `difference_format`."""
    if not by_floats:
        return convert(_of_offset(make_difference(source), None), word_bits(source, difference_format(source)) == 32)
    return convert(_of_offset(make_fast_difference(source), make_widen(OFFSET)), True)


@cache
def add_offsets() -> Any:
    """`convert` of float32 values, in place, to their sums with offsets."""
    return convert(_of_offset(fast_sum, make_widen(OFFSET)), True, in_place=True)


@cache
def decode_with_offsets(element: ElementFormat, target: ElementFormat) -> Any:
    """`convert` of codes to values in any float type, by the definition."""
    return convert(make_decode_offset(element, target), word_bits(element, target) == 32)


def _of_offset(function: Callable[..., Any], widen: Callable[..., Any] | None) -> Callable[..., Any]:
    """A function of a number and an offset, perhaps in float32, where scales do not count."""
    if widen is None:

        @dialect
        def with_offset(x, scale, offset):
            return function(x, offset)

        return with_offset

    @dialect
    def with_wide_offset(x, scale, offset):
        return function(x, widen(offset))

    return with_wide_offset


def convert(function: Callable[..., Any], in_lanes: bool, in_place: bool = False) -> Any:
    """(x, out, scales, offsets, shape, bounds): (x, scale, offset) -> what is written, of each element.

    `in_place` says that x is what is written, which compilers have to know.
    """
    word: Any = lane if in_lanes else wide

    def loop(x, out, scales, offsets, shape, bounds):
        _, columns, _, run, panel = shape
        first, last, begin, end = bounds
        per_row = (columns + run - 1) // run
        scale_at, offset_at = np.empty(panel + run, np.int32), np.empty(panel + run, np.int32)
        read = out if in_place else x
        for band in range(first, last):
            first_row, last_row = rows_of(band, shape)
            next_column = begin
            while next_column < end:
                _, width = panel_of(band, next_column, shape)
                column, next_column = next_column, next_column + width
                place = band * per_row + column // run
                for b in range((width + run - 1) // run):
                    for j in range(b * run, (b + 1) * run):
                        store(scale_at, j, integer(load(scales, place + b)))
                        store(offset_at, j, integer(load(offsets, place + b)))
                for row in range(first_row, last_row):
                    base = row * columns + column
                    for j in range(width):
                        scale, offset = word(integer(load(scale_at, j))), word(integer(load(offset_at, j)))
                        store(out, base + j, function(word(load(read, base + j)), scale, offset))

    return compile_loop(loop)
