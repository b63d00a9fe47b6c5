"""Fast loops that quantize and decode with scales that are floats, for blocks of any shape.

As in `columns`, a loop processes an array as bands of k rows, and each band in panels of columns.
If blocks lie along rows, a band is one row. For each panel, a loop finds the scales, computes the
*constants* of each block (the numbers that the formulation needs), and then converts the elements.
A loop marks each panel for which its formulation is not right, and the loops of `marked` redo the
marked panels.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import Any

import numpy as np

from mxnum.definition.word import dialect
from mxnum.engine.loops.marked import Converter, Finder
from mxnum.engine.loops.panels import (
    SPARE,
    Draw,
    address_of,
    convert_panel,
    magnitude_type,
    make_column_maxima,
    make_panel_maxima,
    of_blocks,
    panel_at,
    panels,
)
from mxnum.engine.machine import vectors
from mxnum.engine.machine.jit import READ_AHEAD, WRITE_AHEAD, Kernel, ask_for, call_kernel, compile_loop
from mxnum.engine.machine.lanes import integer, lane, load, store, wide
from mxnum.engine.machine.vectors import LENGTH, load_nibbles, many, store_nibbles
from mxnum.engine.rounding.by_factors import Formulation
from mxnum.engine.traversal.block_walk import MIXED
from mxnum.formats import ElementFormat
from mxnum.memory.dtypes import Array

#: The lengths of blocks along rows that kernels can have as compile-time constants.
RUNS = (1, 16, 32, 128)


def find_by(find_scale: Callable[..., Any] | None, source: ElementFormat, nan_code: int) -> Finder:
    """Return the `Finder` for scales that are floats.

    `find_scale(amax, tensor scale)` returns the scale code of a block. `find_scale` is None if the
    caller gives the scales.
    """
    return Finder(source, None if find_scale is None else _scales(find_scale), nan_code, np.zeros(2, np.int64))


def convert_by(formulation: Formulation, draw: Draw) -> Converter:
    """Return the `Converter` of marked panels for scales that are floats.

    `formulation` must be right for all inputs, for example the definition's formulation.
    """
    elements = _elements(formulation, draw is not None, 0, False, False)
    return Converter(_preparing(formulation), elements, _constant(formulation), formulation.constants)


@cache
def quantize(
    formulation: Formulation,
    source: ElementFormat,
    find_scale: Callable[..., Any] | None,
    draw: Draw,
    run: int,
    packed: bool,
) -> Callable[..., Any]:
    """Return a function that returns the quantizing loop for arrays of given types.

    The returned function is called as `bind(x, out, scales, tensor, maxima)`. The loop is called as
    `loop(arrays, (shape, bounds), marks, words, numbers)`, and returns the number of panels that it
    marked. The loop marks panels that hold a NaN or an infinity, and panels with a scale for which
    the formulation is not right. `find_scale(amax, tensor scale)` returns the scale code of a
    block; `find_scale` is None if the caller gives the scales. `run` is the block length if that
    length is in `RUNS`, else 0. If `packed`, the loop writes two codes of four bits to each byte.
    Packing needs vector instructions, and rows of whole blocks. If `maxima` has several items, it
    holds the largest magnitudes of the blocks; otherwise, the loop computes these magnitudes.
    """
    row_maxima, magnitude = of_blocks(source, run), magnitude_type(source)
    elements = _elements(formulation, draw is not None, run, False, packed)

    def bind(x: Array, out: Array, scales: Array, tensor: Array, maxima: Array) -> Callable[..., int]:
        find: Any = 0
        if find_scale is not None:
            find = _scales(find_scale).for_types(magnitude, scales.dtype, tensor.dtype, np.int32, np.int32)
        in_rows = run > 1
        kernels = (
            row_maxima.for_types(x.dtype, magnitude) if in_rows else 0,
            row_maxima.for_types(magnitude, magnitude) if in_rows else 0,
            find,
            _preparing(formulation).for_types(scales.dtype, _constant(formulation), tensor.dtype),
            elements.for_types(x.dtype, out.dtype, _constant(formulation)),
            address_of(draw),
        )
        return partial(_quantize(source, _constant(formulation)), (kernels, formulation.constants))

    return bind


@cache
def _quantize(source: ElementFormat, constant: Any) -> Any:
    """Return the loop of `quantize` for formulations whose constants have the type `constant`."""
    Constant, Magnitude, LIMIT = constant, magnitude_type(source), source.max_code
    panel_maxima, column_maxima = make_panel_maxima(source, False), make_column_maxima(source, False)
    MAGNITUDE = (1 << (source.bits - 1)) - 1

    @dialect
    def find_maxima(kernels, unused, x, high, amax, panel, columns, run):
        """Store the largest magnitudes of the blocks of a panel in `amax`."""
        of_row, of_columns = kernels
        if of_row != 0 and panel.last_row - panel.first_row == 1:
            start, whole = panel.first_row * columns + panel.column, panel.width // run
            call_kernel(of_row, x, amax, unused, unused, unused, (start, whole, run, 0, 0, 0, 0, 0))
            if whole < panel.blocks:
                greatest = Magnitude(0)
                for i in range(start + whole * run, start + panel.width):
                    greatest = Magnitude(max(greatest, Magnitude(integer(load(x, i) & MAGNITUDE))))
                amax[whole] = greatest
        elif of_columns != 0:
            column_maxima(x, high, panel, columns, run)
            call_kernel(of_columns, high, amax, unused, unused, unused, (0, panel.blocks, run, 0, 0, 0, 0, 0))
        else:
            panel_maxima(x, high, amax, panel, columns, run)

    def loop(settings, arrays, share, marks, words, numbers):
        (of_row, of_columns, find, prepare, elements, fill), constants = settings
        x, out, scales, tensor, maxima = arrays
        shape, _ = share
        _, columns, _, run, width = shape
        step, stride, unused = 1 if tensor.size > 1 else 0, width // run + 1, np.zeros(1, np.int32)
        high, amax = np.empty(width + run, Magnitude), np.empty(stride, Magnitude)
        is_right, tables = np.zeros(1, np.int32), np.empty(constants * stride, Constant)
        buffer, offset = np.empty(width + SPARE if fill != 0 else 1, np.int32), np.zeros(1, np.int64)
        skipped = 0
        all_panels = panels(share)
        for i in range(all_panels.total):
            panel = panel_at(i, share, all_panels)
            if maxima.size > 1:
                for b in range(panel.blocks):
                    amax[b] = Magnitude(integer(load(maxima, panel.place + b)))
            else:
                find_maxima((of_row, of_columns), unused, x, high, amax, panel, columns, run)
            most = Magnitude(0)
            for b in range(panel.blocks):
                most = max(most, amax[b])
            is_right[0] = 0
            if most <= LIMIT:
                where = panel.place, panel.blocks, step, stride, 0, 0, 0, 0
                if find != 0:
                    call_kernel(find, amax, scales, tensor, unused, unused, where)
                call_kernel(prepare, scales, tables, tensor, is_right, unused, where)
            if is_right[0] == 0:
                marks[panel.number] = MIXED
                skipped += 1
                continue
            at = stride, 0
            convert_panel((elements, fill), x, out, tables, unused, words, buffer, offset, panel, share, at)
        return skipped

    return compile_loop(loop)


@cache
def decode(formulation: Formulation, run: int, packed: bool) -> Callable[..., Any]:
    """Return a function that returns the decoding loop for arrays of given types.

    The returned function is called as `bind(codes, out, scales, tensor, unused)`. The loop takes
    the same arguments as the loop of `quantize`. If `packed`, each byte holds two codes of four
    bits.
    """
    elements, prepare = _elements(formulation, False, run, packed, False), _preparing(formulation)
    constant = _constant(formulation)

    def bind(codes: Array, out: Array, scales: Array, tensor: Array, unused: Array) -> Callable[..., int]:
        kernels = (
            prepare.for_types(scales.dtype, constant, tensor.dtype),
            elements.for_types(codes.dtype, out.dtype, constant),
        )
        return partial(_decode(constant), (*kernels, formulation.constants))

    return bind


@cache
def _decode(constant: Any) -> Any:
    """Return the loop of `decode` for formulations whose constants have the type `constant`."""
    Constant = constant

    def loop(settings, arrays, share, marks, words, numbers):
        prepare, elements, constants = settings
        codes, out, scales, tensor, _ = arrays
        shape, _ = share
        _, _, _, run, width = shape
        step, stride, unused = 1 if tensor.size > 1 else 0, width // run + 1, np.zeros(1, np.int32)
        is_right, tables = np.zeros(1, np.int32), np.empty(constants * stride, Constant)
        offset = np.zeros(1, np.int64)
        skipped = 0
        all_panels = panels(share)
        for i in range(all_panels.total):
            panel = panel_at(i, share, all_panels)
            where = panel.place, panel.blocks, step, stride, 0, 0, 0, 0
            call_kernel(prepare, scales, tables, tensor, is_right, unused, where)
            if is_right[0] == 0:
                marks[panel.number] = MIXED
                skipped += 1
                continue
            at = stride, 0
            convert_panel((elements, 0), codes, out, tables, unused, words, unused, offset, panel, share, at)
        return skipped

    return compile_loop(loop)


def _constant(formulation: Formulation) -> Any:
    """Return the integer type of a formulation's constants."""
    return np.int64 if formulation.is_wide else np.int32


@cache
def _scales(find_scale: Any) -> Kernel:
    """Return the kernel that computes scales, for `Finder.kernel`."""

    def kernel(maxima, scales, tensor, unused, unused_too, where):
        place, blocks, step, _, _, _, _, _ = where
        # If blocks share a tensor scale, load it once. One load for each block would compile to a
        # slow gather instruction.
        common = wide(load(tensor, place * step))
        for b in range(blocks):
            t = common if step == 0 else wide(load(tensor, place + b))
            store(scales, place + b, wide(find_scale(wide(load(maxima, b)), t)))

    return Kernel(kernel)


@cache
def _preparing(formulation: Formulation) -> Kernel:
    """Return the kernel that computes the constants of blocks, for `Converter.prepare`.

    The kernel stores 1 in its argument `all_right` if the formulation is right for all scales, else
    0.
    """
    prepare, prepare_more = formulation.prepare, formulation.prepare_more
    more: Any = prepare_more
    PREPARES_MORE = prepare_more is not None

    def kernel(scales, tables, tensor, all_right, unused, where):
        place, blocks, step, stride, _, _, _, _ = where
        is_right = True
        common = wide(load(tensor, place * step))
        for b in range(blocks):  # Two loops, because compilers vectorize a loop only if it writes to few arrays.
            scale, t = wide(load(scales, place + b)), common if step == 0 else wide(load(tensor, place + b))
            is_right &= prepare(scale, t, tables, b, stride)
        if PREPARES_MORE:
            for b in range(blocks):
                scale, t = wide(load(scales, place + b)), common if step == 0 else wide(load(tensor, place + b))
                more(scale, t, tables, b, stride)
        store(all_right, 0, 1 if is_right else 0)

    return Kernel(kernel)


@cache
def _elements(formulation: Formulation, draws: bool, run: int, reads_packed: bool, writes_packed: bool) -> Kernel:
    """Return the kernel that converts the rows of a panel, for `Converter.elements`."""
    kinds = formulation, draws, reads_packed, writes_packed
    one, whole = _of_columns(formulation, draws), _whole_blocks(*kinds, run)
    at, element, RUN, IS_PACKED = formulation.at, formulation.element, run, reads_packed or writes_packed
    word: Any = wide if formulation.in_wide_words else lane

    def kernel(x, out, tables, drawn, unused, where):
        first, width, rows, columns, run, stride, _, random = where
        blocks = (width + run - 1) // run
        for row in range(rows):
            base = first + row * columns
            shift = random - base
            if RUN == 1:
                one(x, out, tables, drawn, base, width, stride, random)
            else:
                done = 0
                if RUN > 1:
                    done = blocks if IS_PACKED else width // run
                    whole(x, out, tables, drawn, base, done, stride, shift)
                for b in range(done, blocks):
                    constants = at(tables, b, stride)
                    for i in range(base + b * run, base + min((b + 1) * run, width)):
                        taken = word(load(drawn, shift + i)) if draws else word(0)
                        store(out, i, element(word(load(x, i)), constants, taken))

    return Kernel(kernel)


def _of_columns(formulation: Formulation, draws: bool) -> Callable[..., Any]:
    """Return the function that converts a row whose blocks are one column wide."""
    word: Any = wide if formulation.in_wide_words else lane
    at, element = formulation.at, formulation.element
    IN_VECTORS = formulation.in_vectors and vectors.available()

    @dialect
    def of_columns(x, out, tables, drawn, base, width, stride, random):
        by_vectors = width // LENGTH * LENGTH if IN_VECTORS else 0
        for j in range(0, by_vectors, LENGTH):
            if IN_VECTORS:
                constants, here = at(tables, many(j), stride), many(base + j)
                taken = load(drawn, many(random + j)) if draws else 0
                store(out, here, element(load(x, here), constants, taken))
        for j in range(by_vectors, width):
            taken = word(load(drawn, random + j)) if draws else word(0)
            store(out, base + j, element(word(load(x, base + j)), at(tables, j, stride), taken))

    return of_columns


def _whole_blocks(
    formulation: Formulation, draws: bool, reads_packed: bool, writes_packed: bool, run: int
) -> Callable[..., Any]:
    """Return the function that converts whole blocks of a row, with `run` elements each."""
    word: Any = wide if formulation.in_wide_words else lane
    at, element = formulation.at, formulation.element
    RUN, READS_PACKED, WRITES_PACKED = run, reads_packed, writes_packed
    IN_VECTORS = formulation.in_vectors and vectors.available()

    @dialect
    def whole_blocks(x, out, tables, drawn, base, blocks, stride, shift):
        for b in range(blocks):
            constants, start = at(tables, b, stride), base + b * RUN
            ask_for(x, start >> READS_PACKED, RUN, READ_AHEAD)
            ask_for(out, start >> WRITES_PACKED, RUN, WRITE_AHEAD)
            if IN_VECTORS:
                for i in range(start, start + RUN, LENGTH):
                    if READS_PACKED:
                        store(out, many(i), element(load_nibbles(x, i >> 1), constants, 0))
                    else:
                        taken = load(drawn, many(shift + i)) if draws else 0
                        made = element(load(x, many(i)), constants, taken)
                        if WRITES_PACKED:
                            store_nibbles(out, i >> 1, made)
                        else:
                            store(out, many(i), made)
            else:
                for i in range(start, start + RUN):
                    taken = word(load(drawn, shift + i)) if draws else word(0)
                    store(out, i, element(word(load(x, i)), constants, taken))

    return whole_blocks
