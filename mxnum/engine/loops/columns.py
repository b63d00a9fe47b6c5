"""Loops for blocks that span several rows: columns and tiles.

The array is seen as (planes, rows, columns) with blocks (1, k, run), flat and contiguous. A band is
the k rows that share blocks; it is taken in panels of columns that fit the caches. The scales of a
panel are spread over its columns, so that elements have one loop along them whatever `run` is.
Panels are to these loops what groups are to those in `rows`: `marks` says which are still to be
done, and `marked` has the loops that do them.

A call does the bands `first` to `last`, counted over all planes, and in each the columns `begin` to
`end`, where `begin` is a multiple of the panel, and the panel one of run. A `constant_run` other
than 0 is what run is known to be when compiling: short loops are then unrolled.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from mxnum.engine.loops.random_bits import NO_DRAW, SPARE, Draw
from mxnum.engine.machine.jit import compile_loop
from mxnum.engine.machine.kernels import Kernel, LoopOfKernel, call_kernel, others_apart
from mxnum.engine.machine.lanes import integer, lane, load, store, wide
from mxnum.engine.machine.prefetch import LONG_PART, PART, ask_for
from mxnum.engine.rounding import as_float32, float_additions
from mxnum.engine.rounding.per_element import numbers_given
from mxnum.engine.traversal.block_walk import MIXED, panel_of, rows_of
from mxnum.formats import E8M0, ElementFormat

NAN_SCALE = E8M0.nan_code


@cache
def quantize(
    function: Callable[..., Any], source: ElementFormat, scales_given: bool, draw: Draw, constant_run: int
) -> LoopOfKernel:
    """(x, out, scales, shape, (first, last, begin, end), marks, words, numbers) -> panels left.

    The shape is (rows, columns, k, run, panel). Scales and results of all panels, by a fast
    formulation; those that it is not right for are marked.
    """
    loop = _quantize(source, draw, constant_run)
    return LoopOfKernel(loop, _quantizing_kernel(function, draw is not NO_DRAW), scales_given)


@cache
def _quantize(source: ElementFormat, draw: Draw, constant_run: int) -> Any:
    """`quantize` for every function, whose kernel comes first, and then whether scales are given."""
    MAGNITUDE = (1 << (source.bits - 1)) - 1
    widen, fast_scale = as_float32.make_widen(source), float_additions.fast_scale
    fill, DRAWS = draw.fill or NO_DRAW.prepare, draw is not NO_DRAW
    i32 = np.int32
    Magnitude: Any = np.int64 if source.bits > 32 else np.int32
    word = wide if source.bits > 32 else lane

    def loop(kernel, scales_given, x, out, scales, shape, bounds, marks, words, numbers):
        limits, e = numbers_given(numbers)
        _, columns, k, run, panel = shape
        run = constant_run if constant_run > 0 else run
        first, last, begin, end = bounds
        per_row = (columns + run - 1) // run
        by_column, amax = np.empty(panel + run, Magnitude), np.empty(panel, Magnitude)
        spread = np.empty(panel + run, np.int32)
        buffer = np.empty(panel + SPARE if DRAWS else 1, np.int32)
        skipped = 0
        for band in range(first, last):
            first_row, last_row = rows_of(band, shape)
            next_column = begin
            while next_column < end:
                number, width = panel_of(band, next_column, shape)
                column, next_column = next_column, next_column + width
                blocks = (width + run - 1) // run
                for j in range(blocks * run):
                    store(by_column, j, 0)
                for row in range(first_row, last_row):
                    base = row * columns + column
                    for j in range(width):
                        magnitude = Magnitude(integer(load(x, base + j) & MAGNITUDE))
                        store(by_column, j, Magnitude(max(Magnitude(integer(load(by_column, j))), magnitude)))
                most = Magnitude(0)
                for b in range(blocks):
                    largest = Magnitude(0)
                    for j in range(run):
                        largest = Magnitude(max(largest, Magnitude(integer(load(by_column, b * run + j)))))
                    amax[b] = largest
                for b in range(blocks):
                    most = Magnitude(max(most, amax[b]))
                place = band * per_row + column // run
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
                    least, greatest = i32(min(least, scale)), i32(max(greatest, scale))
                    for j in range(run):
                        store(spread, b * run + j, scale)
                is_right = least >= limits.least_scale and greatest <= limits.greatest_scale
                if not is_right or integer(widen(word(most))) > limits.greatest_x:
                    marks[number] = MIXED
                    skipped += 1
                    continue
                if not scales_given:
                    for b in range(blocks):
                        store(scales, place + b, amax[b])
                # While this panel is done the next is asked for, and room for the next row.
                following = panel if next_column < end else k * columns - (column - begin)
                base, count = first_row * columns + column, last_row - first_row
                if DRAWS:
                    for row in range(count):
                        drawn = fill(words, buffer, base + row * columns, width)
                        where = base + row * columns, width, 1, columns, following, drawn, 0
                        call_kernel(kernel, x, out, spread, buffer, numbers, where)
                else:
                    where = base, width, count, columns, following, 0, 0
                    call_kernel(kernel, x, out, spread, buffer, numbers, where)
        return skipped

    return compile_loop(loop)


@cache
def _quantizing_kernel(function: Callable[..., Any], draws: bool) -> Kernel:
    """The rows of a panel: (x, out, scales of columns, random bits, numbers, (first element, width, rows, ...))."""

    def kernel(x, out, spread, drawn, numbers, where):
        others_apart()
        _, e = numbers_given(numbers)
        first, width, rows, columns, following, random, _ = where
        for row in range(rows):
            base = first + row * columns
            for part in range(0, width, PART):
                ask_for(x, base + part + following, PART, 0)
                ask_for(out, base + part + columns, PART, 0)
                for j in range(part, min(part + PART, width)):
                    bits = lane(load(drawn, random + j)) if draws else lane(0)
                    store(out, base + j, function(load(x, base + j), load(spread, j), bits, e))

    return Kernel(kernel)


@cache
def decode(function: Callable[..., Any], constant_run: int) -> LoopOfKernel:
    """(codes, out, scales, shape, bounds, marks, _, numbers) -> panels left: values, by a fast formulation."""
    return LoopOfKernel(_decode(constant_run), _decoding_kernel(function))


@cache
def _decode(constant_run: int) -> Any:
    """`decode` for every function, whose kernel comes first."""

    def loop(kernel, codes, out, scales, shape, bounds, marks, unused, numbers):
        limits, _ = numbers_given(numbers)
        _, columns, _, run, panel = shape
        run = constant_run if constant_run > 0 else run
        first, last, begin, end = bounds
        per_row = (columns + run - 1) // run
        spread = np.empty(panel + run, np.int32)
        skipped = 0
        for band in range(first, last):
            first_row, last_row = rows_of(band, shape)
            next_column = begin
            while next_column < end:
                number, width = panel_of(band, next_column, shape)
                column, next_column = next_column, next_column + width
                place = band * per_row + column // run
                least, greatest = np.int32(NAN_SCALE), np.int32(0)
                for b in range((width + run - 1) // run):
                    scale = np.int32(integer(load(scales, place + b)))
                    least, greatest = np.int32(min(least, scale)), np.int32(max(greatest, scale))
                    for j in range(run):
                        store(spread, b * run + j, scale)
                if least < limits.least_scale or greatest > limits.greatest_scale:
                    marks[number] = MIXED
                    skipped += 1
                    continue
                where = first_row * columns + column, width, last_row - first_row, columns, 0, 0, 0
                call_kernel(kernel, codes, out, spread, spread, numbers, where)
        return skipped

    return compile_loop(loop)


@cache
def _decoding_kernel(function: Callable[..., Any]) -> Kernel:
    """The rows of a panel: (codes, out, scales of columns, _, numbers, (first code, width, rows, columns, ...))."""

    def kernel(codes, out, spread, unused, numbers, where):
        others_apart()
        _, e = numbers_given(numbers)
        first, width, rows, columns, _, _, _ = where
        for row in range(rows):
            base = first + row * columns
            for part in range(0, width, LONG_PART):
                ask_for(out, base + part + columns, LONG_PART, 0)
                for j in range(part, min(part + LONG_PART, width)):
                    store(out, base + j, function(load(codes, base + j), load(spread, j), 0, e))

    return Kernel(kernel)
