"""Fast loops for blocks that span several rows: columns and tiles.

The array is seen as (planes, rows, columns) with blocks (1, k, run), flat and contiguous, but what is read may be of
rows that begin every `step` elements. A band is the k rows that share blocks; it is taken in panels of columns that fit
the caches. The scales of a panel are spread over its columns, so that elements have one loop along them whatever `run`
is. Panels are to these loops what groups are to those in `rows`: `left` marks the ones still to be done.

A call does the bands `first` to `last`, counted over all planes, and in each the columns `begin` to `end`, where
`begin` is a multiple of the panel, and the panel one of run. A `constant_run` other than 0 is what run is known to be
when compiling: short loops are then unrolled.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from mxnum.engine import magic
from mxnum.engine.draws import SPARE, Draw
from mxnum.engine.formulation import Definition, numbers_given
from mxnum.engine.jit import compile_loop
from mxnum.engine.lanes import integer, lane, load, store, wide
from mxnum.engine.prefetch import LONG_PART, PART, ask_for
from mxnum.engine.rows import FINITE, MIXED, NAN_SCALE
from mxnum.formats import ElementFormat
from mxnum.scalar.word import dialect, select

#: Elements of several short rows that are taken as one, at most.
FOLDED = 128


@dialect
def rows_of(band, shape):
    """First and last row of a band."""
    rows, _, k, _, _, _ = shape
    bands = (rows + k - 1) // k
    begin = band % bands * k
    return band // bands * rows + begin, band // bands * rows + min(begin + k, rows)


@dialect
def rows_at_once(height, shape):
    """How many rows of a band that high are taken as one: where they are short and whole, so many that they are not."""
    _, columns, _, _, panel, step = shape
    together = 1
    while step == columns <= panel and 2 * together * columns <= FOLDED and height % (2 * together) == 0:
        together *= 2
    return together


@dialect
def repeat(line, width, together):
    """The first `width` numbers of an array again and again, so often in all; a power of two."""
    length = width
    while length < together * width:
        for j in range(length):
            store(line, length + j, load(line, j))
        length *= 2


@cache
def quantize_columns(
    function: Callable[..., Any], source: ElementFormat, scales_given: bool, draw: Draw, constant_run: int
) -> Any:
    """(x, out, scales, shape, (first, last, begin, end), left, words, numbers) -> panels left.

    The shape is (rows, columns, k, run, panel, step). Scales and results of all panels, by a fast formulation; those
    that it is not right for are marked.
    """
    MAGNITUDE = (1 << (source.bits - 1)) - 1
    widen, fast_scale = magic.make_widen(source), magic.fast_scale
    prepare, random_at, DRAWN, TURNED = draw.prepare, draw.at, draw.rows, draw.rows > 1
    i32 = np.int32
    Magnitude: Any = np.int64 if source.bits > 32 else np.int32
    word = wide if source.bits > 32 else lane

    def loop(x, out, scales, shape, bounds, left, words, numbers):
        limits, e = numbers_given(numbers)
        rows, columns, k, run, panel, step = shape
        run = constant_run if constant_run > 0 else run
        first, last, begin, end = bounds
        per_row, panels = (columns + run - 1) // run, (columns + panel - 1) // panel
        usual = 1 if TURNED else rows_at_once(k, shape)
        at_end = 1 if TURNED else rows_at_once(rows % k, shape)
        longest = max(panel + run, FOLDED)
        by_column, amax = np.empty(longest, Magnitude), np.empty(panel, Magnitude)
        spread = np.empty(longest, np.int32)
        buffer = np.empty(max(1, DRAWN * (max(panel, FOLDED) + SPARE)), np.int32)
        buffer[0] = -1
        skipped = 0
        for band in range(first, last):
            first_row, last_row = rows_of(band, shape)
            for column in range(begin, end, panel):
                width = min(panel, end - column)
                blocks = (width + run - 1) // run
                together = usual if last_row - first_row == k else at_end
                for j in range(max(blocks * run, together * width)):
                    store(by_column, j, 0)
                for row in range(first_row, last_row, together):
                    base = row * step + column
                    for j in range(together * width):
                        magnitude = Magnitude(integer(load(x, base + j) & MAGNITUDE))
                        store(by_column, j, Magnitude(max(Magnitude(integer(load(by_column, j))), magnitude)))
                half = together * width // 2
                while half >= width:
                    for j in range(half):
                        magnitude = Magnitude(integer(load(by_column, half + j)))
                        store(by_column, j, Magnitude(max(Magnitude(integer(load(by_column, j))), magnitude)))
                    half //= 2
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
                    # Any scale gives the same zeros: one that is too small is replaced by the least allowed.
                    scale = i32(limits.least_scale) if integer(magnitude) == 0 and scale < NAN_SCALE else scale
                    least, greatest = i32(min(least, scale)), i32(max(greatest, scale))
                    for j in range(run):
                        store(spread, b * run + j, scale)
                is_right = least >= limits.least_scale and greatest <= limits.greatest_scale
                if not is_right or integer(widen(word(most))) > limits.greatest_x:
                    left[band * panels + column // panel] = MIXED
                    skipped += 1
                    continue
                if not scales_given:
                    for b in range(blocks):
                        store(scales, place + b, amax[b])
                repeat(spread, width, together)
                # While this panel is done the next is asked for, and room for the next row.
                following = panel if column + panel < end else k * step - (column - begin)
                for row in range(first_row, last_row, together):
                    base, ahead = row * columns + column, row * (step - columns)
                    random = prepare(words, buffer, base, together * width)
                    for part in range(0, together * width, PART):
                        ask_for(x, base + ahead + part + following, PART, 0)
                        ask_for(out, base + part + columns * together, PART, 0)
                        for j in range(part, min(part + PART, together * width)):
                            bits = lane(random_at(words, buffer, random + j))
                            store(out, base + j, function(load(x, base + ahead + j), load(spread, j), bits, e))
        return skipped

    return compile_loop(loop)


@cache
def scale_columns(definition: Definition, source: ElementFormat) -> Any:
    """(x, _, scales, shape, bounds, left, nan_blocks): scales of the marked panels, by the definition.

    With `nan_blocks` a block that holds a NaN or an infinity gets the scale NaN; without, only finite elements count.
    """
    MAGNITUDE, MAX = (1 << (source.bits - 1)) - 1, source.max_code
    scale_of, word = definition.function, definition.word
    Magnitude: Any = np.int32 if source.bits <= 32 else np.int64

    def loop(x, unused, scales, shape, bounds, left, nan_blocks):
        _, columns, _, run, panel, step = shape
        first, last, begin, end = bounds
        per_row, panels = (columns + run - 1) // run, (columns + panel - 1) // panel
        by_column, specials = np.empty(panel, Magnitude), np.empty(panel, np.uint8)
        for band in range(first, last):
            first_row, last_row = rows_of(band, shape)
            for column in range(begin, end, panel):
                number = band * panels + column // panel
                if left[number] == 0:
                    continue
                width = min(panel, end - column)
                most = Magnitude(0)
                for j in range(width):
                    by_column[j], specials[j] = Magnitude(0), 0
                for row in range(first_row, last_row):
                    base = row * step + column
                    for j in range(width):
                        by_column[j] = max(by_column[j], Magnitude(integer(load(x, base + j) & MAGNITUDE)))
                for j in range(width):
                    most = Magnitude(max(most, by_column[j]))
                left[number] = FINITE
                if most > MAX:
                    left[number] = MIXED
                    for j in range(width):
                        specials[j] = by_column[j] > MAX
                        by_column[j] = Magnitude(0)
                    for row in range(first_row, last_row):
                        base = row * step + column
                        for j in range(width):
                            magnitude = Magnitude(integer(load(x, base + j) & MAGNITUDE))
                            by_column[j] = max(by_column[j], magnitude if magnitude <= MAX else Magnitude(0))
                place = band * per_row + column // run
                for b in range((width + run - 1) // run):
                    largest, is_nan = Magnitude(0), False
                    for j in range(b * run, min((b + 1) * run, width)):
                        largest = Magnitude(max(largest, by_column[j]))
                        is_nan |= specials[j] != 0
                    scale = integer(scale_of(word(largest), word(integer(load(scales, place + b))), 0))
                    store(scales, place + b, NAN_SCALE if nan_blocks and is_nan else scale)

    return compile_loop(loop)


@cache
def convert_columns(definition: Definition, draw: Draw, greatest: int | None) -> Any:
    """(x, out, scales, shape, bounds, left, words, nan) -> panels left: a conversion of all of the marked panels.

    `nan` and `greatest` are as in `rows.convert_rows`.
    """
    function, word = definition.function, definition.word
    prepare, random_at, DRAWN = draw.prepare, draw.at, draw.rows
    HAS_LIMIT, GREATEST = greatest is not None, greatest or 0
    MAGNITUDE = (1 << GREATEST.bit_length()) - 1

    def loop(x, out, scales, shape, bounds, left, words, nan):
        _, columns, _, run, panel, step = shape
        first, last, begin, end = bounds
        per_row, panels = (columns + run - 1) // run, (columns + panel - 1) // panel
        spread = np.empty(panel + run, np.int32)
        buffer = np.empty(max(1, DRAWN * (panel + SPARE)), np.int32)
        buffer[0] = -1
        skipped = 0
        for band in range(first, last):
            first_row, last_row = rows_of(band, shape)
            for column in range(begin, end, panel):
                number = band * panels + column // panel
                if left[number] == 0:
                    continue
                width = min(panel, end - column)
                place = band * per_row + column // run
                for b in range((width + run - 1) // run):
                    for j in range(run):
                        store(spread, b * run + j, integer(load(scales, place + b)))
                if HAS_LIMIT and left[number] == MIXED:
                    largest = np.int32(0)
                    for row in range(first_row, last_row):
                        base = row * step + column
                        for j in range(width):
                            magnitude = integer(select(load(spread, j) == NAN_SCALE, 0, load(x, base + j) & MAGNITUDE))
                            largest = np.int32(max(largest, magnitude))
                    if largest > GREATEST:
                        skipped += 1
                        continue
                left[number] = 0
                for row in range(first_row, last_row):
                    base, ahead = row * columns + column, row * (step - columns)
                    random = prepare(words, buffer, base, width)
                    for j in range(width):
                        bits, scale = word(random_at(words, buffer, random + j)), word(integer(load(spread, j)))
                        result = function(word(load(x, base + ahead + j)), scale, bits)
                        store(out, base + j, select(scale == NAN_SCALE, word(nan), result))
        return skipped

    return compile_loop(loop)


@cache
def decode_columns(function: Callable[..., Any], constant_run: int) -> Any:
    """(codes, out, scales, shape, bounds, left, numbers) -> panels left: values, by a fast formulation."""

    def loop(codes, out, scales, shape, bounds, left, numbers):
        limits, e = numbers_given(numbers)
        rows, columns, k, run, panel, step = shape
        run = constant_run if constant_run > 0 else run
        first, last, begin, end = bounds
        per_row, panels = (columns + run - 1) // run, (columns + panel - 1) // panel
        usual, at_end = rows_at_once(k, shape), rows_at_once(rows % k, shape)
        spread = np.empty(max(panel + run, FOLDED), np.int32)
        skipped = 0
        for band in range(first, last):
            first_row, last_row = rows_of(band, shape)
            for column in range(begin, end, panel):
                width = min(panel, end - column)
                place = band * per_row + column // run
                least, greatest = np.int32(NAN_SCALE), np.int32(0)
                for b in range((width + run - 1) // run):
                    scale = np.int32(integer(load(scales, place + b)))
                    least, greatest = np.int32(min(least, scale)), np.int32(max(greatest, scale))
                    for j in range(run):
                        store(spread, b * run + j, scale)
                if least < limits.least_scale or greatest > limits.greatest_scale:
                    left[band * panels + column // panel] = MIXED
                    skipped += 1
                    continue
                together = usual if last_row - first_row == k else at_end
                repeat(spread, width, together)
                for row in range(first_row, last_row, together):
                    base, ahead = row * columns + column, row * (step - columns)
                    for part in range(0, together * width, LONG_PART):
                        ask_for(out, base + part + columns * together, LONG_PART, 0)
                        for j in range(part, min(part + LONG_PART, together * width)):
                            store(out, base + j, function(load(codes, base + ahead + j), load(spread, j), 0, e))
        return skipped

    return compile_loop(loop)
