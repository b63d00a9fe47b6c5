"""Loops for asymmetric scaling, for blocks of any shape.

The loops reduce asymmetric scaling to quantization without offsets. To quantize, a first loop finds
the offset of each block, and a loop made by `convert` subtracts the offsets. The loops of the
modules `rows` and `columns` then quantize the differences between numbers and offsets. To
dequantize, the loops of `rows` and `columns` compute values, and a loop made by `convert` adds the
offsets. As in `columns`, each loop processes bands of k rows in panels of columns.
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
from mxnum.engine.loops.panels import panel_at, panels
from mxnum.engine.machine.jit import Kernel, call_kernel, compile_loop, others_apart
from mxnum.engine.machine.lanes import integer, lane, load, store, wide
from mxnum.engine.rounding.as_float32 import make_widen
from mxnum.engine.rounding.float_additions import decoding_domain
from mxnum.engine.rounding.formulation import Definition
from mxnum.engine.rounding.offset_additions import fast_sum, make_fast_difference
from mxnum.formats import E8M0, ElementFormat
from mxnum.memory.dtypes import Array
from mxnum.modes import ScaleRule


def may_add(scales: Array, offsets: Array, element: ElementFormat) -> bool:
    """Return True if `fast_sum` gives the right sums for these scales and offsets.

    The sums are right if all offsets are finite, and if each decoded value is NaN, zero or a normal
    float32 number. `offsets` holds float16 bits.
    """
    least, greatest = decoding_domain(element)
    inside = ((scales >= least) & (scales <= greatest)) | (scales == E8M0.nan_code)
    return bool(inside.all() and ((offsets & 0x7FFF) <= OFFSET.max_code).all())


def ordered_type(source: ElementFormat) -> Any:
    """Return the type of the integers to which the function from `make_to_ordered` maps numbers.

    The integers have the same order as the numbers.
    """
    return np.int32 if source.bits <= 32 else np.int64


@cache
def find_offsets(source: ElementFormat) -> Any:
    """Return `loop((x, offsets, largest, smallest), (shape, bounds))`, which finds offsets.

    `shape` is (rows, columns, k, run, panel), and `bounds` is (first, last, begin, end). The loop
    stores the offset of each block as float16 bits. In `largest` and `smallest`, the loop stores
    the largest and the smallest finite element of each block, as integers that sort like the
    numbers (`make_to_ordered`). If a block has no finite element, the loop stores 0 in `largest`
    and `smallest`.
    """
    MAX, Ordered = source.max_code, ordered_type(source)
    find_ends, from_ordered = _make_find_ends(source), make_from_ordered(source)
    middle = Definition(make_midpoint(source), word_bits(source, OFFSET) == 32)
    midpoint_of, word_of_middle = middle.function, middle.word

    def loop(arrays, share):
        x, offsets, largest, smallest = arrays
        shape, _ = share
        _, columns, _, run, width = shape
        high, low = np.empty(width + run, Ordered), np.empty(width + run, Ordered)
        all_panels = panels(share)
        for i in range(all_panels.total):
            panel = panel_at(i, share, all_panels)
            find_ends(x, high, low, panel, columns, run)
            for b in range(panel.blocks):
                a, z = Ordered(-1 - MAX), Ordered(MAX + 1)
                for j in range(b * run, (b + 1) * run):
                    a = Ordered(max(a, Ordered(integer(load(high, j)))))
                    z = Ordered(min(z, Ordered(integer(load(low, j)))))
                store(high, b, a)
                store(low, b, z)
            for b in range(panel.blocks):  # A separate loop, so that compilers vectorize it.
                a, z = Ordered(integer(load(high, b))), Ordered(integer(load(low, b)))
                is_empty = z > a
                a, z = Ordered(0) if is_empty else a, Ordered(0) if is_empty else z
                bits = midpoint_of(from_ordered(word_of_middle(a)), from_ordered(word_of_middle(z)))
                store(offsets, panel.place + b, bits)
                store(largest, panel.place + b, a)
                store(smallest, panel.place + b, z)

    return compile_loop(loop)


@cache
def _make_find_ends(source: ElementFormat) -> Callable[..., Any]:
    """Return `find_ends(x, high, low, panel, columns, run)`, which finds extremes of columns.

    For each column of a panel, `find_ends` stores the largest finite element in `high`, and the
    smallest finite element in `low`. Elements are stored as integers that sort like the numbers
    (`make_to_ordered`).
    """
    MAX, Ordered, to_ordered = source.max_code, ordered_type(source), make_to_ordered(source)

    @dialect
    def clear(high, low, count):
        for j in range(count):
            store(high, j, Ordered(-1 - MAX))
            store(low, j, Ordered(MAX + 1))

    @dialect
    def find_ends(x, high, low, panel, columns, run):
        clear(high, low, panel.blocks * run)
        for row in range(panel.first_row, panel.last_row):
            base = row * columns + panel.column
            for j in range(panel.width):
                ordered = Ordered(integer(to_ordered(load(x, base + j))))
                store(high, j, Ordered(max(Ordered(integer(load(high, j))), ordered)))
                store(low, j, Ordered(min(Ordered(integer(load(low, j))), ordered)))
        all_finite = True
        for j in range(panel.width):
            all_finite &= (integer(load(high, j)) <= MAX) & (integer(load(low, j)) >= -MAX)
        if not all_finite:
            clear(high, low, panel.blocks * run)
            for row in range(panel.first_row, panel.last_row):
                base = row * columns + panel.column
                for j in range(panel.width):
                    ordered = Ordered(integer(to_ordered(load(x, base + j))))
                    if -MAX <= ordered <= MAX:
                        high[j], low[j] = max(high[j], ordered), min(low[j], ordered)

    return find_ends


@cache
def half_range_scales(source: ElementFormat, element: ElementFormat, rule: ScaleRule) -> Any:
    """Return `loop(largest, smallest, scales)`, which computes the scale of each block.

    The loop computes the scale from half the difference between the largest and the smallest
    element of the block. `largest` and `smallest` hold these elements, as the integers that the
    loop of `find_offsets` stores.
    """
    from_ordered, scale_of = make_from_ordered(source), make_half_range_scale(source, element, rule)
    word: Any = lane if word_bits(source, element) == 32 else wide

    def loop(largest, smallest, scales):
        for b in range(scales.size):
            a, z = word(integer(load(largest, b))), word(integer(load(smallest, b)))
            store(scales, b, scale_of(from_ordered(a), from_ordered(z)))

    return compile_loop(loop)


@cache
def subtract_offsets(source: ElementFormat, by_floats: bool) -> Any:
    """Return the loop, made by `convert`, that subtracts offsets from numbers.

    The differences are in the format `difference_format(source)`. If `by_floats`, the loop computes
    them by float operations; otherwise, it uses the integer operations of the definition.
    """
    if not by_floats:
        return convert(_of_offset(make_difference(source), None), word_bits(source, difference_format(source)) == 32)
    return convert(_of_offset(make_fast_difference(source), make_widen(OFFSET)), True)


@cache
def add_offsets() -> Any:
    """Return the loop, made by `convert`, that adds offsets to float32 values in place."""
    return convert(_of_offset(fast_sum, make_widen(OFFSET)), True, in_place=True)


@cache
def decode_with_offsets(element: ElementFormat, target: ElementFormat) -> Any:
    """Return the loop, made by `convert`, that decodes codes and adds the offsets to the values.

    The loop computes by the integer operations of the definition. The results are in the format
    `target`.
    """
    return convert(make_decode_offset(element, target), word_bits(element, target) == 32)


def _of_offset(function: Callable[..., Any], widen: Callable[..., Any] | None) -> Callable[..., Any]:
    """Return a function of `(x, scale, offset)` that calls `function(x, offset)`.

    If `widen` is given, the returned function first converts the offset to float32 by `widen`.
    """
    if widen is None:

        @dialect
        def with_offset(x, scale, offset):
            return function(x, offset)

        return with_offset

    @dialect
    def with_wide_offset(x, scale, offset):
        return function(x, widen(offset))

    return with_wide_offset


def convert(function: Callable[..., Any], in_lanes: bool, in_place: bool = False) -> Callable[..., Any]:
    """Return `loop((x, out, scales, offsets), (shape, bounds))`, which converts elements.

    The loop stores `function(x, scale, offset)` in `out`. If `in_place`, `x` and `out` are the same
    array, and the loop reads only `out`, so that the compiler sees a single array.
    """
    kernel, loop = _converting(function, in_lanes, in_place), _convert()

    def run(arrays: tuple[Array, ...], share: Any) -> None:
        x, out = arrays[:2]
        loop(kernel.for_types(x.dtype, out.dtype), arrays, share)

    return run


@cache
def _convert() -> Any:
    """Return `loop(kernel, arrays, share)`, which every function made by `convert` calls."""

    def loop(kernel, arrays, share):
        x, out, scales, offsets = arrays
        shape, _ = share
        _, columns, _, run, width = shape
        scale_at, offset_at = np.empty(width + run, np.int32), np.empty(width + run, np.int32)
        all_panels = panels(share)
        for i in range(all_panels.total):
            panel = panel_at(i, share, all_panels)
            for b in range(panel.blocks):
                for j in range(b * run, (b + 1) * run):
                    store(scale_at, j, integer(load(scales, panel.place + b)))
                    store(offset_at, j, integer(load(offsets, panel.place + b)))
            first, rows = panel.first_row * columns + panel.column, panel.last_row - panel.first_row
            call_kernel(kernel, x, out, scale_at, offset_at, scale_at, (first, panel.width, rows, columns, 0, 0, 0, 0))

    return compile_loop(loop)


def _converting(function: Callable[..., Any], in_lanes: bool, in_place: bool) -> Kernel:
    """Return the kernel that converts the rows of a panel.

    The kernel's arguments are (x, out, scales of columns, offsets of columns, _, where). `where`
    holds (first element, width, rows, columns, ...).
    """
    word: Any = lane if in_lanes else wide

    def kernel(x, out, scale_at, offset_at, numbers, where):
        others_apart()
        first, width, rows, columns, _, _, _, _ = where
        read = out if in_place else x
        for row in range(rows):
            base = first + row * columns
            for j in range(width):
                scale, offset = word(integer(load(scale_at, j))), word(integer(load(offset_at, j)))
                store(out, base + j, function(word(load(read, base + j)), scale, offset))

    return Kernel(kernel)
