"""Loops that redo what is marked, along rows and columns: scales by the definition, and conversions.

The array is seen as in `columns`, as bands of rows in panels of columns, each with a mark; along
rows a band is one row, and a panel is what `rows` calls a group.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from mxnum.definition.word import select
from mxnum.engine.loops.random_bits import SPARE, Draw
from mxnum.engine.machine.jit import compile_loop
from mxnum.engine.machine.lanes import integer, load, store
from mxnum.engine.rounding.per_element import Definition, numbers_given
from mxnum.engine.traversal.block_walk import FINITE, MIXED, panel_of, rows_of
from mxnum.formats import E8M0, ElementFormat

NAN_SCALE = E8M0.nan_code


@cache
def find_scales(definition: Definition, source: ElementFormat) -> Any:
    """(x, _, scales, shape, bounds, marks, nan_blocks, numbers): scales of the marked panels, by the definition.

    With `nan_blocks` a block that holds a NaN or an infinity gets the scale NaN; without, only
    finite elements count.
    """
    MAGNITUDE, MAX = (1 << (source.bits - 1)) - 1, source.max_code
    scale_of, word = definition.function, definition.word
    Magnitude: Any = np.int32 if source.bits <= 32 else np.int64

    def loop(x, unused, scales, shape, bounds, marks, nan_blocks, numbers):
        bias, first_bumped = int(numbers[0]), int(numbers[1])
        _, columns, _, run, panel = shape
        first, last, begin, end = bounds
        per_row = (columns + run - 1) // run
        by_column, specials = np.empty(panel, Magnitude), np.empty(panel, np.uint8)
        for band in range(first, last):
            first_row, last_row = rows_of(band, shape)
            next_column = begin
            while next_column < end:
                number, width = panel_of(band, next_column, shape)
                column, next_column = next_column, next_column + width
                if marks[number] == 0:
                    continue
                most = Magnitude(0)
                for j in range(width):
                    by_column[j], specials[j] = Magnitude(0), 0
                for row in range(first_row, last_row):
                    base = row * columns + column
                    for j in range(width):
                        by_column[j] = max(by_column[j], Magnitude(integer(load(x, base + j) & MAGNITUDE)))
                for j in range(width):
                    most = Magnitude(max(most, by_column[j]))
                marks[number] = FINITE
                if most > MAX:
                    marks[number] = MIXED
                    for j in range(width):
                        specials[j] = by_column[j] > MAX
                        by_column[j] = Magnitude(0)
                    for row in range(first_row, last_row):
                        base = row * columns + column
                        for j in range(width):
                            magnitude = Magnitude(integer(load(x, base + j) & MAGNITUDE))
                            by_column[j] = max(by_column[j], magnitude if magnitude <= MAX else Magnitude(0))
                place = band * per_row + column // run
                for b in range((width + run - 1) // run):
                    largest, is_nan = Magnitude(0), False
                    for j in range(b * run, min((b + 1) * run, width)):
                        largest = Magnitude(max(largest, by_column[j]))
                        is_nan |= specials[j] != 0
                    scale = integer(scale_of(word(largest), word(integer(load(scales, place + b))), bias, first_bumped))
                    store(scales, place + b, NAN_SCALE if nan_blocks and is_nan else scale)

    return compile_loop(loop)


@cache
def convert(definition: Definition, draw: Draw, greatest: int | None) -> Any:
    """(x, out, scales, shape, bounds, marks, words, nan, numbers) -> panels left: a conversion of the marked panels.

    `nan` is the result under the scale NaN. With `greatest` this is for x up to that magnitude
    only: panels that hold a greater one in a block with another scale stay marked, and untouched.
    """
    function, word = definition.function, definition.word
    prepare, random_at, BUFFERED = draw.prepare, draw.at, draw.buffered
    HAS_LIMIT, GREATEST = greatest is not None, greatest or 0
    MAGNITUDE = (1 << GREATEST.bit_length()) - 1

    def loop(x, out, scales, shape, bounds, marks, words, nan, numbers):
        _, e = numbers_given(numbers)
        _, columns, _, run, panel = shape
        first, last, begin, end = bounds
        per_row = (columns + run - 1) // run
        spread = np.empty(panel + run, np.int32)
        buffer = np.empty(panel + SPARE if BUFFERED else 1, np.int32)
        skipped = 0
        for band in range(first, last):
            first_row, last_row = rows_of(band, shape)
            next_column = begin
            while next_column < end:
                number, width = panel_of(band, next_column, shape)
                column, next_column = next_column, next_column + width
                if marks[number] == 0:
                    continue
                place = band * per_row + column // run
                for b in range((width + run - 1) // run):
                    for j in range(run):
                        store(spread, b * run + j, integer(load(scales, place + b)))
                if HAS_LIMIT and marks[number] == MIXED:
                    largest = np.int32(0)
                    for row in range(first_row, last_row):
                        base = row * columns + column
                        for j in range(width):
                            magnitude = integer(select(load(spread, j) == NAN_SCALE, 0, load(x, base + j) & MAGNITUDE))
                            largest = np.int32(max(largest, magnitude))
                    if largest > GREATEST:
                        skipped += 1
                        continue
                marks[number] = 0
                for row in range(first_row, last_row):
                    base = row * columns + column
                    random = prepare(words, buffer, base, width)
                    for j in range(width):
                        bits, scale = word(random_at(words, buffer, random + j)), word(integer(load(spread, j)))
                        result = function(word(load(x, base + j)), scale, bits, e)
                        store(out, base + j, select(scale == NAN_SCALE, word(nan), result))
        return skipped

    return compile_loop(loop)
