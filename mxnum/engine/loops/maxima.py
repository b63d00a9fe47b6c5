"""Largest magnitudes: of blocks along a row, of the columns of a panel, and of whole arrays."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from mxnum.definition.word import dialect
from mxnum.engine.machine.jit import compile_loop
from mxnum.engine.machine.kernels import Kernel
from mxnum.engine.machine.lanes import greatest_of, integer, load, store
from mxnum.engine.traversal.block_walk import USUAL_RUN
from mxnum.formats import ElementFormat


def magnitude_type(source: ElementFormat) -> Any:
    """Return the integer type that holds magnitudes of a float type as bit patterns."""
    return np.int64 if source.bits > 32 else np.int32


@cache
def of_blocks(source: ElementFormat, constant_run: int) -> Kernel:
    """Return the kernel that finds the largest magnitude of each block of a row.

    It is `(x, maxima, _, _, _, (first element, blocks, width, ...))`. `constant_run` is the width
    if that is compiled in, else 0.
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
    """Return a function that fills `high` with the maxima of a panel's columns.

    It is `column_maxima(x, high, panel, columns, run)`.

    If `finite_only`, NaN and infinities do not count. Columns that a short last block lacks get 0.
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
    """Return a function that fills `amax` with the maxima of the blocks of a panel.

    It is `panel_maxima(x, high, amax, panel, columns, run)`.

    `high` is scratch for `make_column_maxima`.
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

    It returns the greatest of all. Magnitudes are bit patterns.
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
