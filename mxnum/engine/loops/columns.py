"""Loops for blocks that span several rows, such as columns and tiles.

A loop sees a flat, contiguous array as (planes, rows, columns), with blocks of the shape (1, k,
run). A band consists of the k rows that one row of blocks spans. A loop processes a band in panels,
which are groups of columns that fit the caches. Before a loop converts a panel, it copies the scale
of each block to all columns of the block. So one inner loop along the columns serves every block
width `run`. A loop marks each panel for which its fast formulation is not right, and the loops of
`marked` redo the marked panels.

One call of a loop processes the bands from `first` to `last`, numbered across all planes. In each
band, the call processes the columns from `begin` to `end`. `begin` is a multiple of the panel
width, and the panel width is a multiple of `run`. If `constant_run` is not 0, the compiler uses it
as a constant in place of `run`, and so unrolls short loops.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import Any

import numpy as np

from mxnum.engine.loops.panels import (
    SPARE,
    Draw,
    address_of,
    convert_panel,
    magnitude_type,
    make_panel_maxima,
    panel_at,
    panels,
)
from mxnum.engine.loops.rows import NAN_SCALE, make_fast_scales
from mxnum.engine.machine.jit import LONG_PART, PART, Kernel, ask_for, compile_loop, others_apart
from mxnum.engine.machine.lanes import integer, lane, load, store
from mxnum.engine.rounding.formulation import numbers_given
from mxnum.engine.traversal.block_walk import MIXED
from mxnum.formats import ElementFormat
from mxnum.memory.dtypes import Array


@cache
def quantize(
    function: Callable[..., Any], source: ElementFormat, scales_given: bool, draw: Draw, constant_run: int
) -> Callable[..., Any]:
    """Return a function that returns the quantizing loop for arrays of given types.

    The returned function is called as `bind(x, out, *others)`. The loop is called as
    `loop(arrays, (shape, bounds), marks, words, numbers)`, where the shape is (rows, columns, k,
    run, panel). For each panel, the loop computes the scales and the results by a fast formulation,
    or marks the panel if the formulation is not right for it. The loop returns the number of panels
    that it marked.
    """
    kernel, loop = _quantizing_kernel(function, draw is not None), _quantize(source, constant_run)

    def bind(x: Array, out: Array, *others: Array) -> Callable[..., int]:
        return partial(loop, (kernel.for_types(x.dtype, out.dtype), address_of(draw), int(scales_given)))

    return bind


@cache
def _quantize(source: ElementFormat, constant_run: int) -> Any:
    """Return the compiled loop of `quantize`; one loop serves all conversion functions.

    The loop's first argument is a tuple of three entries: the kernel, the result of `address_of`,
    and 1 if the caller gives the scales (0 if the loop finds them).
    """
    Magnitude = magnitude_type(source)
    panel_maxima, fast_scales = make_panel_maxima(source, False), make_fast_scales(source)

    def loop(settings, arrays, share, marks, words, numbers):
        kernel, fill, scales_given = settings
        x, out, scales = arrays
        shape, (_, _, _, end) = share
        limits, e = numbers_given(numbers)
        _, columns, k, run, width = shape
        run = constant_run if constant_run > 0 else run
        high, amax = np.empty(width + run, Magnitude), np.empty(width, Magnitude)
        used, spread = np.empty(width, np.int32), np.empty(width + run, np.int32)
        buffer, offset = np.empty(width + SPARE if fill != 0 else 1, np.int32), np.zeros(1, np.int64)
        skipped = 0
        all_panels = panels(share)
        for i in range(all_panels.total):
            panel = panel_at(i, share, all_panels)
            panel_maxima(x, high, amax, panel, columns, run)
            if not fast_scales(amax, used, scales, panel.place, panel.blocks, scales_given, limits, e):
                marks[panel.number] = MIXED
                skipped += 1
                continue
            for b in range(panel.blocks):
                for j in range(run):
                    store(spread, b * run + j, used[b])
            # While the kernel converts this panel, it prefetches the next panel, and the next row
            # of the result.
            is_last = panel.column + panel.width >= end
            following = k * columns - panel.column if is_last else width
            at = following, 0
            convert_panel((kernel, fill), x, out, spread, numbers, words, buffer, offset, panel, share, at)
        return skipped

    return compile_loop(loop)


@cache
def _quantizing_kernel(function: Callable[..., Any], draws: bool) -> Kernel:
    """Return the kernel that converts the rows of a panel.

    The kernel's arguments are (x, out, scales of columns, random bits, numbers, where). `where` is
    a tuple (first element, width, rows, columns, _, distance to the next panel, _, offset of random
    bits). The kernel ignores the entries that are written `_`.
    """

    def kernel(x, out, spread, drawn, numbers, where):
        others_apart()
        _, e = numbers_given(numbers)
        first, width, rows, columns, _, following, _, random = where
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
def decode(function: Callable[..., Any], constant_run: int) -> Callable[..., Any]:
    """Return a function that returns the decoding loop for arrays of given types.

    The returned function is called as `bind(codes, out, *others)`. The loop takes the same
    arguments as the loop of `quantize`. For each panel, the loop computes the values by a fast
    formulation, or marks the panel if the formulation is not right for it. The loop returns the
    number of panels that it marked.
    """
    kernel, loop = _decoding_kernel(function), _decode(constant_run)

    def bind(codes: Array, out: Array, *others: Array) -> Callable[..., int]:
        return partial(loop, (kernel.for_types(codes.dtype, out.dtype), 0))

    return bind


@cache
def _decode(constant_run: int) -> Any:
    """Return the compiled loop of `decode`; one loop serves all conversion functions.

    The loop's first argument is (kernel, 0), where 0 means that no random bits are drawn.
    """

    def loop(kernels, arrays, share, marks, words, numbers):
        codes, out, scales = arrays
        shape, _ = share
        limits, _ = numbers_given(numbers)
        _, _, _, run, width = shape
        run = constant_run if constant_run > 0 else run
        spread, offset = np.empty(width + run, np.int32), np.zeros(1, np.int64)
        skipped = 0
        all_panels = panels(share)
        for i in range(all_panels.total):
            panel = panel_at(i, share, all_panels)
            least, greatest = np.int32(NAN_SCALE), np.int32(0)
            for b in range(panel.blocks):
                scale = np.int32(integer(load(scales, panel.place + b)))
                least, greatest = np.int32(min(least, scale)), np.int32(max(greatest, scale))
                for j in range(run):
                    store(spread, b * run + j, scale)
            if least < limits.least_scale or greatest > limits.greatest_scale:
                marks[panel.number] = MIXED
                skipped += 1
                continue
            convert_panel(kernels, codes, out, spread, numbers, words, spread, offset, panel, share, (0, 0))
        return skipped

    return compile_loop(loop)


@cache
def _decoding_kernel(function: Callable[..., Any]) -> Kernel:
    """Return the kernel that decodes the rows of a panel.

    The kernel's arguments are (codes, out, scales of columns, _, numbers, where). `where` is a
    tuple (first code, width, rows, columns, ...). The kernel ignores the argument `_` and the other
    entries of `where`.
    """

    def kernel(codes, out, spread, unused, numbers, where):
        others_apart()
        _, e = numbers_given(numbers)
        first, width, rows, columns, _, _, _, _ = where
        for row in range(rows):
            base = first + row * columns
            for part in range(0, width, LONG_PART):
                ask_for(out, base + part + columns, LONG_PART, 0)
                for j in range(part, min(part + LONG_PART, width)):
                    store(out, base + j, function(load(codes, base + j), load(spread, j), 0, e))

    return Kernel(kernel)
