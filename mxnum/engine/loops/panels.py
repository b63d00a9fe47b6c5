"""Code that loops share: panels, largest magnitudes of blocks, and the conversion of a panel."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from mxnum.definition.word import dialect
from mxnum.engine.machine.jit import Kernel, call_kernel, compile_loop
from mxnum.engine.machine.lanes import greatest_of, integer, load, store
from mxnum.engine.traversal.block_walk import USUAL_RUN
from mxnum.formats import ElementFormat

#: The kernel that draws random bits, or None if no bits are drawn. The kernel is called as `(words,
#: buffer, offset, _, _, (index, count, ...))`. It writes the random bits of `count` elements to
#: `buffer`; `index` is the C-order index of the first element. It stores in `offset` the index in
#: `buffer` at which the bits begin. The buffer must have `count` + `SPARE` items. `words` is an
#: array of random words in C order, or the result of `words_of_key`.
Draw = Kernel | None
SPARE = 8
#: The array of random words that a loop receives if it draws no random bits.
NO_WORDS = np.zeros(1, np.uint32)


@dialect
def rows_of(band, shape):
    """Return the first row of a band, and the row after the last row of the band."""
    rows, _, k, _, _ = shape
    bands = (rows + k - 1) // k
    begin = band % bands * k
    return band // bands * rows + begin, band // bands * rows + min(begin + k, rows)


class Panel(NamedTuple):
    """A panel: columns of a band that a loop processes together."""

    #: The index of the panel in the array `marks`, in which loops mark the panels that they skip.
    number: int
    #: The first row of the band, and the row after the last row of the band.
    first_row: int
    last_row: int
    #: The first column of the panel, and the number of its columns.
    column: int
    width: int
    #: The index of the panel's first block among all blocks, and the number of the panel's blocks.
    place: int
    blocks: int


class Panels(NamedTuple):
    """Numbers that a loop computes once for all panels of its share.

    A share is the part of an array that one call of a loop processes.
    """

    total: int
    #: The number of panels of each band that belong to the share, and of all panels of a band.
    in_share: int
    in_band: int
    #: The number of blocks of a band, and the number of columns that its whole blocks cover.
    blocks: int
    full: int


@dialect
def panels(share):
    """Return the `Panels` of a share, which is given as (shape, bounds)."""
    shape, bounds = share
    _, columns, _, run, panel = shape
    first, last, begin, end = bounds
    full = columns // run * run
    of_share = min(end, full) - begin
    in_share = (of_share + panel - 1) // panel + (1 if of_share < end - begin else 0)
    in_band = (full + panel - 1) // panel + (1 if full < columns else 0)
    return Panels((last - first) * in_share, in_share, in_band, (columns + run - 1) // run, full)


@dialect
def panel_at(i, share, all_panels):
    """Return panel `i` of the part of an array that `share` describes.

    A short block at the end of a row is a panel by itself.
    """
    shape, bounds = share
    _, columns, _, run, panel = shape
    first, _, begin, _ = bounds
    _, in_share, in_band, blocks, full = all_panels
    of_bands = i // in_share
    band, column = first + of_bands, min(begin + (i - of_bands * in_share) * panel, full)
    is_short = column >= full
    number = band * in_band + (in_band - 1 if is_short else column // panel)
    width = columns - full if is_short else min(panel, full - column)
    first_row, last_row = rows_of(band, shape)
    place = band * blocks + column // run
    return Panel(number, first_row, last_row, column, width, place, (width + run - 1) // run)


def magnitude_type(source: ElementFormat) -> Any:
    """Return the integer type that holds magnitudes of a float type as bit patterns."""
    return np.int64 if source.bits > 32 else np.int32


@cache
def of_blocks(source: ElementFormat, constant_run: int) -> Kernel:
    """Return the kernel that finds the largest magnitude of each block of a row.

    The kernel is called as `(x, maxima, _, _, _, (first element, blocks, width, ...))`. If
    `constant_run` is not 0, the kernel is compiled for blocks of this length; otherwise, the
    argument `width` is the block length.
    """
    MAGNITUDE, Magnitude = (1 << (source.bits - 1)) - 1, magnitude_type(source)

    @dialect
    def kernel(x, maxima, unused, unused_too, numbers, where):
        first, blocks, width, _, _, _, _, _ = where
        if constant_run > 0:
            for b in range(blocks):
                store(maxima, b, greatest_of(x, first + b * constant_run, constant_run, MAGNITUDE))
        else:
            for b in range(blocks):
                start, stop = first + b * width, first + (b + 1) * width
                largest = Magnitude(0)
                while start + USUAL_RUN <= stop:
                    some = Magnitude(greatest_of(x, start, USUAL_RUN, MAGNITUDE))
                    largest, start = Magnitude(max(largest, some)), start + USUAL_RUN
                for i in range(start, stop):
                    largest = Magnitude(max(largest, integer(load(x, i) & MAGNITUDE)))
                store(maxima, b, largest)

    return Kernel(kernel)


@cache
def make_column_maxima(source: ElementFormat, finite_only: bool) -> Callable[..., Any]:
    """Return `column_maxima(x, high, panel, columns, run)`, which finds maxima of columns.

    `column_maxima` stores the largest magnitude of each column of a panel in `high`. If
    `finite_only`, it ignores NaN and infinities. If the last block is short, it stores 0 for each
    column by which this block is shorter than the others.
    """
    MAGNITUDE, Magnitude, LIMIT = (1 << (source.bits - 1)) - 1, magnitude_type(source), source.max_code

    @dialect
    def column_maxima(x, high, panel, columns, run):
        for j in range(panel.blocks * run):
            store(high, j, 0)
        for row in range(panel.first_row, panel.last_row):
            base = row * columns + panel.column
            for j in range(panel.width):
                magnitude = Magnitude(integer(load(x, base + j) & MAGNITUDE))
                if finite_only:
                    magnitude = magnitude if magnitude <= LIMIT else Magnitude(0)
                store(high, j, Magnitude(max(Magnitude(integer(load(high, j))), magnitude)))

    return column_maxima


@cache
def make_panel_maxima(source: ElementFormat, finite_only: bool) -> Callable[..., Any]:
    """Return `panel_maxima(x, high, amax, panel, columns, run)`, which finds maxima of blocks.

    `panel_maxima` stores the largest magnitude of each block of a panel in `amax`. `high` is a
    temporary buffer for the largest magnitudes of columns.
    """
    column_maxima, Magnitude = make_column_maxima(source, finite_only), magnitude_type(source)

    @dialect
    def panel_maxima(x, high, amax, panel, columns, run):
        column_maxima(x, high, panel, columns, run)
        if run == 1:  # Fast path: compilers vectorize this copy.
            for b in range(panel.blocks):
                amax[b] = high[b]
            return
        for b in range(panel.blocks):
            largest = Magnitude(0)
            for j in range(b * run, (b + 1) * run):
                largest = Magnitude(max(largest, Magnitude(integer(load(high, j)))))
            amax[b] = largest

    return panel_maxima


@cache
def greatest_magnitude(source: ElementFormat) -> Any:
    """Return `loop(x)`, which returns the greatest magnitude of an array as a bit pattern."""
    MAGNITUDE, Magnitude = (1 << (source.bits - 1)) - 1, magnitude_type(source)

    def loop(x):
        greatest = Magnitude(0)
        for i in range(x.size):
            greatest = Magnitude(max(greatest, Magnitude(integer(load(x, i) & MAGNITUDE))))
        return greatest

    return compile_loop(loop)


@cache
def block_maxima(source: ElementFormat, run: int) -> Any:
    """Return `loop(x, maxima)`, which stores the greatest magnitude of each block of `run` numbers.

    The loop returns the greatest magnitude of the whole array. Magnitudes are bit patterns.
    """
    RUN, MAGNITUDE, Magnitude = run, (1 << (source.bits - 1)) - 1, magnitude_type(source)

    def loop(x, maxima):
        greatest = Magnitude(0)
        for b in range(maxima.size):
            found = Magnitude(greatest_of(x, b * RUN, RUN, MAGNITUDE))
            store(maxima, b, found)
            greatest = max(greatest, found)
        return greatest

    return compile_loop(loop)


def address_of(draw: Draw) -> Any:
    """Return the address with which `call_kernel` calls `draw`, or 0 if `draw` is None."""
    return 0 if draw is None else draw.for_types(np.uint32, np.int32, np.int64)


@dialect
def convert_panel(kernels, x, out, tables, numbers, words, buffer, offset, panel, share, at):
    """Convert the rows of a panel by a kernel, and draw their random bits row by row.

    `kernels` holds the kernel that converts elements, and the result of `address_of`. `tables`
    holds the numbers that the converting kernel reads for each column or block. `words`, `buffer`
    and `offset` are arguments of the kernel that draws random bits. The converting kernel receives
    the integers (first element, width, rows, columns, run, *at, offset of random bits), where `at`
    holds two integers. The arrays are separate arguments, because numba counts references to the
    arrays of a tuple. This counting would take 5 percent of the time to quantize to NVFP4.
    """
    elements, fill = kernels
    shape, _ = share
    _, columns, _, run, _ = shape
    base, rows, width = panel.first_row * columns + panel.column, panel.last_row - panel.first_row, panel.width
    if fill == 0:
        where = base, width, rows, columns, run, at[0], at[1], 0
        call_kernel(elements, x, out, tables, buffer, numbers, where)
    else:
        for row in range(rows):
            first = base + row * columns
            call_kernel(fill, words, buffer, offset, buffer, buffer, (first, width, 0, 0, 0, 0, 0, 0))
            where = first, width, 1, columns, run, at[0], at[1], offset[0]
            call_kernel(elements, x, out, tables, buffer, numbers, where)
