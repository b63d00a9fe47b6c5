"""Loops for scales that are floats, whatever the blocks: quantizing and decoding.

The array is seen as in `columns`: bands of k rows, taken in panels of columns; along rows a band is
one row. What a formulation needs to know of each block (its *constants*) is made for all blocks of
a panel first, then its elements are gone through. Marks are for panels, as in `columns`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from mxnum.engine.loops.random_bits import SPARE, Draw
from mxnum.engine.machine import vectors
from mxnum.engine.machine.jit import compile_loop
from mxnum.engine.machine.lanes import greatest_of, integer, lane, load, store, wide
from mxnum.engine.machine.prefetch import READ_AHEAD, WRITE_AHEAD, ask_for
from mxnum.engine.machine.vectors import LENGTH, load_nibbles, many, store_nibbles
from mxnum.engine.rounding.float_scales import Formulation
from mxnum.engine.traversal.block_walk import panel_of, rows_of
from mxnum.formats import ElementFormat

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
) -> Any:
    """(x, out, scales, tensor scales, maxima, shape, bounds, marks, words) -> panels left.

    With a `source` floats are read, else codes. `find_scale`: (amax, tensor scale) -> code, where
    scales are not there already. A panel is left, and marked, if a magnitude is above `limit` or
    the formulation is not right for a scale. The definition has the limit -1: it takes all panels
    that are marked, and with `nan_code` (not 0) gives that scale to blocks that hold a NaN or an
    infinity. `run` is the length of blocks along rows, or 0 for any. With `packed` codes of four
    bits are read or written two in a byte, by vectors, along rows of whole blocks of a length in
    `RUNS`. If it `knows_maxima`, the largest magnitude of each such block is in `maxima`, and not
    looked for.
    """
    READS_FLOATS, FINDS = source is not None, find_scale is not None
    IS_DEFINITION, NAN_CODE, RUN = limit < 0, nan_code, run
    bits, largest_code = (source.bits, source.max_code) if source is not None else (8, 0)
    MAGNITUDE, LIMIT = (1 << (bits - 1)) - 1, largest_code if limit < 0 else limit
    Magnitude: Any = np.int64 if bits > 32 else np.int32
    COUNT = formulation.constants
    Constant: Any = np.int64 if formulation.is_wide else np.int32
    word: Any = wide if formulation.in_wide_words else lane
    prepare, at, element = formulation[:3]
    prepare_more: Any = formulation.prepare_more
    find_code: Any = find_scale
    PREPARES_MORE = prepare_more is not None
    prepare_random, random_at, BUFFERED = draw.prepare, draw.at, draw.buffered
    READS_PACKED, WRITES_PACKED = packed and source is None, packed and source is not None
    IN_VECTORS = formulation.in_vectors and vectors.available()
    KNOWS_MAXIMA = knows_maxima

    def loop(x, out, scales, tensor, maxima, shape, bounds, marks, words):
        _, columns, _, run, panel = shape
        run = RUN if RUN > 0 else run
        first, last, begin, end = bounds
        per_row = (columns + run - 1) // run
        step, room = 1 if tensor.size > 1 else 0, panel // run + 1
        high, amax = np.empty(panel + run, Magnitude), np.empty(room, Magnitude)
        specials = np.empty(room, np.uint8)
        tables = np.empty(max(1, COUNT * room), Constant)
        buffer = np.empty(panel + SPARE if BUFFERED else 1, np.int32)
        skipped = 0
        for band in range(first, last):
            first_row, last_row = rows_of(band, shape)
            next_column = begin
            while next_column < end:
                number, width = panel_of(band, next_column, shape)
                column, next_column = next_column, next_column + width
                if IS_DEFINITION and marks[number] == 0:
                    continue
                blocks, whole = (width + run - 1) // run, width // run
                place = band * per_row + column // run
                most = Magnitude(0)
                if READS_FLOATS:
                    if KNOWS_MAXIMA:
                        for b in range(blocks):
                            amax[b] = Magnitude(integer(load(maxima, place + b)))
                    elif RUN > 1 and last_row - first_row == 1:
                        start = first_row * columns + column
                        for b in range(whole):
                            amax[b] = Magnitude(greatest_of(x, start + b * RUN, RUN, MAGNITUDE))
                        if whole < blocks:
                            greatest = Magnitude(0)
                            for i in range(start + whole * RUN, start + width):
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
                        for b in range(blocks):
                            greatest = Magnitude(0)
                            for j in range(b * run, (b + 1) * run):
                                greatest = max(greatest, high[j])
                            amax[b] = greatest
                    for b in range(blocks):
                        most = max(most, amax[b])
                    if IS_DEFINITION:
                        for b in range(blocks):
                            specials[b] = amax[b] > LIMIT
                            if amax[b] > LIMIT:
                                greatest = Magnitude(0)
                                for row in range(first_row, last_row):
                                    base = row * columns + column
                                    for j in range(base + b * run, base + min((b + 1) * run, width)):
                                        magnitude = Magnitude(integer(load(x, j) & MAGNITUDE))
                                        greatest = max(greatest, magnitude if magnitude <= LIMIT else Magnitude(0))
                                amax[b] = greatest
                    elif most > LIMIT:
                        marks[number] = LEFT
                        skipped += 1
                        continue
                is_right = True
                common = wide(load(tensor, place * step))  # (one load for each block would be a gather)
                for b in range(blocks):
                    t = common if step == 0 else wide(load(tensor, place + b))
                    scale = wide(find_code(wide(amax[b]), t)) if FINDS else wide(load(scales, place + b))
                    if READS_FLOATS and IS_DEFINITION and NAN_CODE > 0:
                        scale = wide(NAN_CODE) if specials[b] != 0 else scale
                    if READS_FLOATS:
                        store(scales, place + b, scale)
                for b in range(blocks):  # (loops apart, since compilers make vectors of few streams alone)
                    scale, t = wide(load(scales, place + b)), common if step == 0 else wide(load(tensor, place + b))
                    is_right &= prepare(scale, t, tables, b, room)
                if PREPARES_MORE:
                    for b in range(blocks):
                        scale, t = wide(load(scales, place + b)), common if step == 0 else wide(load(tensor, place + b))
                        prepare_more(scale, t, tables, b, room)
                if IS_DEFINITION:
                    marks[number] = 0
                elif not is_right:
                    marks[number] = LEFT
                    skipped += 1
                    continue
                for row in range(first_row, last_row):
                    base = row * columns + column
                    random = prepare_random(words, buffer, base, width) - base
                    if RUN == 1:
                        by_vectors = width // LENGTH * LENGTH if IN_VECTORS else 0
                        for j in range(0, by_vectors, LENGTH):
                            if IN_VECTORS:
                                constants, here = at(tables, many(j), room), many(base + j)
                                taken = random_at(words, buffer, random + here)
                                store(out, here, element(load(x, here), constants, taken))
                        for j in range(by_vectors, width):
                            taken = word(random_at(words, buffer, random + base + j))
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
                                        taken = random_at(words, buffer, random + many(i))
                                        made = element(load(x, many(i)), constants, taken)
                                        if WRITES_PACKED:
                                            store_nibbles(out, i >> 1, made)
                                        else:
                                            store(out, many(i), made)
                            else:
                                for i in range(start, start + RUN):
                                    taken = word(random_at(words, buffer, random + i))
                                    store(out, i, element(word(load(x, i)), constants, taken))
                    for b in range(blocks if READS_PACKED or WRITES_PACKED else whole if RUN > 1 else 0, blocks):
                        constants = at(tables, b, room)
                        for i in range(base + b * run, base + min((b + 1) * run, width)):
                            taken = word(random_at(words, buffer, random + i))
                            store(out, i, element(word(load(x, i)), constants, taken))
        return skipped

    return compile_loop(loop)


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
