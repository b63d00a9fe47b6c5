"""Loops for scales that are floats, whatever the blocks: quantizing and decoding.

The array is seen as in `columns`: bands of k rows, taken in panels of columns; along rows a band is
one row. What a formulation needs to know of each block (its *constants*) is made for all blocks of
a panel first, then its elements are gone through. Marks are for panels, as in `columns`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import Any

import numpy as np

from mxnum.engine.loops.random_bits import NO_DRAW, SPARE, Draw
from mxnum.engine.machine import vectors
from mxnum.engine.machine.jit import compile_loop
from mxnum.engine.machine.kernels import Kernel, call_kernel
from mxnum.engine.machine.lanes import greatest_of, integer, lane, load, store, wide
from mxnum.engine.machine.prefetch import READ_AHEAD, WRITE_AHEAD, ask_for
from mxnum.engine.machine.vectors import LENGTH, load_nibbles, many, store_nibbles
from mxnum.engine.rounding.float_scales import Formulation
from mxnum.engine.traversal.block_walk import panel_of, rows_of
from mxnum.formats import ElementFormat
from mxnum.memory.dtypes import Array

#: The mark of a panel that is still to be done.
LEFT = 1
#: Block lengths along rows that have a loop of their own.
RUNS = (1, 16, 32, 128)


@cache
def convert(
    formulation: Formulation,
    source: ElementFormat | None,
    find_scale: Callable[..., Any] | None,
    draw: Draw,
    limit: int,
    nan_code: int,
    run: int,
    packed: bool = False,
    knows_maxima: bool = False,
) -> Callable[[Array, Array, Array, Array], Callable[..., int]]:
    """Arrays like x, out, scales and tensor scales -> the loop for arrays of their types.

    (x, out, scales, tensor scales, maxima, shape, bounds, marks, words) -> panels left.

    With a `source` floats are read, else codes. `find_scale`: (amax, tensor scale) -> code, where
    scales are not there already. A panel is left, and marked, if a magnitude is above `limit` or
    the formulation is not right for a scale. The definition has the limit -1: it takes all panels
    that are marked, and with `nan_code` (not 0) gives that scale to blocks that hold a NaN or an
    infinity. `run` is the length of blocks along rows, or 0 for any. With `packed` codes of four
    bits are read or written two in a byte, by vectors, along rows of whole blocks of a length in
    `RUNS`. If it `knows_maxima`, the largest magnitude of each such block is in `maxima`, and not
    looked for.
    """
    reads_packed, writes_packed = packed and source is None, packed and source is not None
    bits, largest = (0, 0) if source is None else (source.bits, source.max_code)
    magnitude, constant = np.int64 if bits > 32 else np.int32, np.int64 if formulation.is_wide else np.int32
    loop, has_run, finds = _convert(bits, constant, draw), bits > 0 and run > 1, find_scale is not None
    settings = largest if limit < 0 else limit, nan_code, formulation.constants, int(limit < 0), int(knows_maxima)

    def bound_to(x: Array, out: Array, scales: Array, tensor: Array) -> Callable[..., int]:
        elements = _elements(formulation, draw is not NO_DRAW, run, reads_packed, writes_packed)
        kernels = (
            _maxima(bits, run).for_types(x.dtype, magnitude) if has_run else 0,
            _maxima(bits, run).for_types(magnitude, magnitude) if has_run else 0,
            _scales(find_scale).for_types(magnitude, scales.dtype, tensor.dtype) if finds else 0,
            _preparing(formulation).for_types(scales.dtype, constant, tensor.dtype),
            elements.for_types(x.dtype, out.dtype, constant),
        )
        return partial(loop, kernels, (*settings, int(has_run), int(finds)))

    return bound_to


@cache
def _convert(bits: int, constant: Any, draw: Draw) -> Any:
    """`convert` of floats of so many bits, or of codes (0), for all formulations with constants of that type.

    The kernels come first.
    """
    READS_FLOATS, MAGNITUDE, Constant = bits > 0, (1 << max(bits - 1, 0)) - 1, constant
    Magnitude: Any = np.int64 if bits > 32 else np.int32
    fill, DRAWS = draw.fill or NO_DRAW.prepare, draw is not NO_DRAW

    def loop(kernels, settings, x, out, scales, tensor, maxima, shape, bounds, marks, words):
        find_maxima, maxima_of_rows, find_scales, prepare, elements = kernels
        limit, nan_code, constants, is_definition, knows_maxima, has_run, finds = settings
        _, columns, _, run, panel = shape
        first, last, begin, end = bounds
        per_row = (columns + run - 1) // run
        step, room = 1 if tensor.size > 1 else 0, panel // run + 1
        high, amax = np.empty(panel + run, Magnitude), np.empty(room, Magnitude)
        specials, is_right = np.empty(room, np.uint8), np.zeros(1, np.int32)
        tables = np.empty(max(1, constants * room), Constant)
        buffer = np.empty(panel + SPARE if DRAWS else 1, np.int32)
        skipped = 0
        for band in range(first, last):
            first_row, last_row = rows_of(band, shape)
            next_column = begin
            while next_column < end:
                number, width = panel_of(band, next_column, shape)
                column, next_column = next_column, next_column + width
                if is_definition and marks[number] == 0:
                    continue
                blocks, whole = (width + run - 1) // run, width // run
                place = band * per_row + column // run
                most = Magnitude(0)
                if READS_FLOATS:
                    if knows_maxima:
                        for b in range(blocks):
                            amax[b] = Magnitude(integer(load(maxima, place + b)))
                    elif has_run and last_row - first_row == 1:
                        start = first_row * columns + column
                        call_kernel(find_maxima, x, amax, is_right, is_right, is_right, (start, whole, 0, 0, 0, 0, 0))
                        if whole < blocks:
                            greatest = Magnitude(0)
                            for i in range(start + whole * run, start + width):
                                greatest = Magnitude(max(greatest, Magnitude(integer(load(x, i) & MAGNITUDE))))
                            amax[whole] = greatest
                    else:
                        for j in range(blocks * run):
                            high[j] = 0
                        for row in range(first_row, last_row):
                            base = row * columns + column
                            for j in range(width):
                                magnitude = Magnitude(integer(load(x, base + j) & MAGNITUDE))
                                high[j] = max(high[j], magnitude)
                        if run == 1:
                            for b in range(blocks):
                                amax[b] = high[b]
                        elif has_run:
                            where = 0, blocks, 0, 0, 0, 0, 0
                            call_kernel(maxima_of_rows, high, amax, is_right, is_right, is_right, where)
                        else:
                            for b in range(blocks):
                                greatest = Magnitude(0)
                                for j in range(b * run, (b + 1) * run):
                                    greatest = max(greatest, high[j])
                                amax[b] = greatest
                    for b in range(blocks):
                        most = max(most, amax[b])
                    if is_definition:
                        for b in range(blocks):
                            specials[b] = amax[b] > limit
                            if amax[b] > limit:
                                greatest = Magnitude(0)
                                for row in range(first_row, last_row):
                                    base = row * columns + column
                                    for j in range(base + b * run, base + min((b + 1) * run, width)):
                                        magnitude = Magnitude(integer(load(x, j) & MAGNITUDE))
                                        greatest = max(greatest, magnitude if magnitude <= limit else Magnitude(0))
                                amax[b] = greatest
                    elif most > limit:
                        marks[number] = LEFT
                        skipped += 1
                        continue
                    if finds:
                        where = place, blocks, step, 0, 0, 0, 0
                        call_kernel(find_scales, amax, scales, tensor, is_right, is_right, where)
                    if is_definition and nan_code > 0:
                        for b in range(blocks):
                            if specials[b] != 0:
                                store(scales, place + b, nan_code)
                where = place, blocks, step, room, 0, 0, 0
                call_kernel(prepare, scales, tables, tensor, is_right, is_right, where)
                if is_definition:
                    marks[number] = 0
                elif is_right[0] == 0:
                    marks[number] = LEFT
                    skipped += 1
                    continue
                base, count = first_row * columns + column, last_row - first_row
                if DRAWS:
                    for row in range(count):
                        random = fill(words, buffer, base + row * columns, width)
                        where = base + row * columns, width, 1, columns, run, room, random
                        call_kernel(elements, x, out, tables, buffer, buffer, where)
                else:
                    where = base, width, count, columns, run, room, 0
                    call_kernel(elements, x, out, tables, buffer, buffer, where)
        return skipped

    return compile_loop(loop)


@cache
def _maxima(bits: int, run: int) -> Kernel:
    """Largest magnitudes of blocks of a row: (x, maxima, _, _, _, (first element, blocks, ...))."""
    RUN, MAGNITUDE = run, (1 << (bits - 1)) - 1

    def kernel(x, maxima, unused, unused_too, nor_this, where):
        start, blocks, _, _, _, _, _ = where
        for b in range(blocks):
            store(maxima, b, greatest_of(x, start + b * RUN, RUN, MAGNITUDE))

    return Kernel(kernel)


@cache
def _scales(find_scale: Any) -> Kernel:
    """Scales of blocks by their maxima: (maxima, scales, tensor scales, _, _, (first scale, blocks, step, ...))."""

    def kernel(maxima, scales, tensor, unused, unused_too, where):
        place, blocks, step, _, _, _, _ = where
        common = wide(load(tensor, place * step))  # (one load for each block would be a gather)
        for b in range(blocks):
            t = common if step == 0 else wide(load(tensor, place + b))
            store(scales, place + b, wide(find_scale(wide(load(maxima, b)), t)))

    return Kernel(kernel)


@cache
def _preparing(formulation: Formulation) -> Kernel:
    """Constants of blocks: (scales, tables, tensor scales, is_right, _, (first scale, blocks, step, room, ...))."""
    prepare, prepare_more = formulation.prepare, formulation.prepare_more
    more: Any = prepare_more
    PREPARES_MORE = prepare_more is not None

    def kernel(scales, tables, tensor, all_right, unused, where):
        place, blocks, step, room, _, _, _ = where
        is_right = True
        common = wide(load(tensor, place * step))
        for b in range(blocks):  # (loops apart, since compilers make vectors of few streams alone)
            scale, t = wide(load(scales, place + b)), common if step == 0 else wide(load(tensor, place + b))
            is_right &= prepare(scale, t, tables, b, room)
        if PREPARES_MORE:
            for b in range(blocks):
                scale, t = wide(load(scales, place + b)), common if step == 0 else wide(load(tensor, place + b))
                more(scale, t, tables, b, room)
        store(all_right, 0, 1 if is_right else 0)

    return Kernel(kernel)


@cache
def _elements(formulation: Formulation, draws: bool, run: int, reads_packed: bool, writes_packed: bool) -> Kernel:
    """The rows of a panel: (x, out, tables, random bits, _, (first element, width, rows, columns, run, room, ...))."""
    word: Any = wide if formulation.in_wide_words else lane
    at, element = formulation.at, formulation.element
    RUN, READS_PACKED, WRITES_PACKED = run, reads_packed, writes_packed
    IN_VECTORS = formulation.in_vectors and vectors.available()

    def kernel(x, out, tables, drawn, unused, where):
        first, width, rows, columns, run, room, random = where
        blocks, whole = (width + run - 1) // run, width // run
        for row in range(rows):
            base = first + row * columns
            shift = random - base
            if RUN == 1:
                by_vectors = width // LENGTH * LENGTH if IN_VECTORS else 0
                for j in range(0, by_vectors, LENGTH):
                    if IN_VECTORS:
                        constants, here = at(tables, many(j), room), many(base + j)
                        taken = load(drawn, many(random + j)) if draws else 0
                        store(out, here, element(load(x, here), constants, taken))
                for j in range(by_vectors, width):
                    taken = word(load(drawn, random + j)) if draws else word(0)
                    store(out, base + j, element(word(load(x, base + j)), at(tables, j, room), taken))
                continue
            if RUN > 1:
                for b in range(whole):
                    constants, start = at(tables, b, room), base + b * RUN
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
            for b in range(blocks if READS_PACKED or WRITES_PACKED else whole if RUN > 1 else 0, blocks):
                constants = at(tables, b, room)
                for i in range(base + b * run, base + min((b + 1) * run, width)):
                    taken = word(load(drawn, shift + i)) if draws else word(0)
                    store(out, i, element(word(load(x, i)), constants, taken))

    return Kernel(kernel)


@cache
def block_maxima(source: ElementFormat, run: int) -> Any:
    """(x, maxima) -> the greatest magnitude as a bit pattern; of each block of `run` numbers it goes to `maxima`."""
    RUN, MAGNITUDE = run, (1 << (source.bits - 1)) - 1
    Magnitude: Any = np.int64 if source.bits > 32 else np.int32

    def loop(x, maxima):
        greatest = Magnitude(0)
        for b in range(maxima.size):
            found = Magnitude(greatest_of(x, b * RUN, RUN, MAGNITUDE))
            store(maxima, b, found)
            greatest = max(greatest, found)
        return greatest

    return compile_loop(loop)
