"""Where loops take the random bits of each element: nowhere, from an array of words, or from Philox; turned or not."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from mxnum.engine.jit import apart, compile_loop, keep_apart
from mxnum.engine.lanes import integer, lane, load, store
from mxnum.engine.philox import counters_at_once, words_in_line, words_in_rows
from mxnum.engine.turning import SQUARE, turn_square
from mxnum.scalar.random import make_align_random, philox4x32
from mxnum.scalar.word import dialect

#: Elements of the buffer in each row beyond those that are asked for.
SPARE = 2 * SQUARE
#: Rows of words that are turned together, at most.
TALLEST = 4 * SQUARE


class Draw(NamedTuple):
    """The two steps of drawing random bits.

    `words` is an array in C order, or a Philox key with the index of the first element: (seed low, seed high, stream
    low, stream high, first). Or it is what `draw_from_turned_words` or `draw_from_turned_seed` takes.
    """

    #: (words, buffer, index, count) -> offset: gets the bits of `count` elements from C-order `index` on.
    prepare: Callable[..., Any]
    #: (words, buffer, offset + i) -> the bits of element index + i.
    at: Callable[..., Any]
    #: How many rows of `count` + `SPARE` elements the buffer needs that `prepare` writes to. Before the first time its
    #: first element has to be -1.
    rows: int

    @property
    def buffered(self) -> bool:
        """Whether there is a buffer."""
        return self.rows > 0


@dialect
def _nothing(words, buffer, index, count):
    return 0


@dialect
def _zero(words, buffer, place):
    return 0


NO_DRAW = Draw(_nothing, _zero, rows=0)


@cache
def draw_from_words(sr_bits: int) -> Draw:
    """Of each word in an array its low `sr_bits` bits."""
    align_random = make_align_random(sr_bits)

    @dialect
    def prepare(words, buffer, index, count):
        return index

    @dialect
    def at(words, buffer, place):
        return align_random(load(words, place))

    return Draw(prepare, at, rows=0)


@cache
def draw_from_turned_words(sr_bits: int) -> Draw:
    """The same of a matrix whose columns are contiguous: (all words, length of a column, rows at a time, phase).

    Words of several rows share lines of the cache, and pages. They are turned into the buffer together, best a multiple
    of `SQUARE` and at most `TALLEST` rows, which are best asked for one after the other, the same part of each. The
    first time there are `phase` fewer, so that each time they begin where a line does.
    """
    align_random, ROWS = make_align_random(sr_bits), TALLEST + SQUARE

    @dialect
    def turn(flat, length, first, column, tall, count, buffer, step):
        columns = flat.size // length
        source = flat.reshape((1, columns, length)).transpose((0, 2, 1))[:, first:, column:]
        target = buffer[SQUARE : SQUARE + ROWS * step].reshape((1, ROWS, step))
        wide = count // SQUARE * SQUARE if tall >= SQUARE else 0
        for j in range(0, wide, SQUARE):
            for i in range(0, tall, SQUARE):  # in the last are rows of the one before, where it would be too long
                turn_square(source, target, 0, min(i, tall - SQUARE), j)
        for j in range(wide, count):
            for i in range(tall):
                store(buffer, SQUARE + i * step + j, load(flat, (column + j) * length + first + i))

    @dialect
    def prepare(words, buffer, index, count):
        flat, length, rows, phase = words
        columns, step = flat.size // length, buffer.size // ROWS - SQUARE
        row = index // columns
        after = (row + phase) // rows * rows - phase
        after -= rows if after > 0 and length - after < SQUARE else 0  # too few for a square go with those before
        stop = min(after + rows, length)
        stop = length if length - stop < SQUARE else stop
        first, column = max(after, 0), index - row * columns
        if integer(load(buffer, 0)) != first or integer(load(buffer, 1)) != column:
            store(buffer, 0, first)
            store(buffer, 1, column)
            turn(flat, length, first, column, stop - first, count, buffer, step)
        return SQUARE + (row - first) * step

    @dialect
    def at(words, buffer, place):
        return align_random(load(buffer, place))

    return Draw(prepare, at, rows=ROWS)


@dialect
def _load_made(words, buffer, place):
    """Bits that are in the buffer as they are wanted."""
    return load(buffer, place)


@cache
def _make_words(sr_bits: int, is_turned: bool) -> Callable[..., None]:
    """(key, first, each, count, buffer, place, row): the Philox words of `count` counters, each `each` further.

    Those of a counter follow each other, and those of the next follow them. Or, turned, those of a counter are one
    below the other in rows of that length, and those of the next beside them.
    """
    align_random, TOGETHER = make_align_random(sr_bits), counters_at_once()

    @apart
    def make(key, first, each, count, buffer, place, row):
        keep_apart()
        together = count // TOGETHER * TOGETHER
        for i in range(0, together, TOGETHER):
            if is_turned:
                words_in_rows(buffer, place + i, row, first + i * each, each, key, sr_bits, TOGETHER)
            else:
                words_in_line(buffer, place + 4 * i, first + i * each, each, key, sr_bits, TOGETHER)
        seed_low, seed_high = lane(key[0]), lane(key[1])
        stream_low, stream_high = lane(key[2]), lane(key[3])
        for i in range(together, count):
            counter = first + i * each
            low, high = lane(counter), lane(counter >> 32)
            w0, w1, w2, w3 = philox4x32(low, high, stream_low, stream_high, seed_low, seed_high)
            at, along = (place + i, row) if is_turned else (place + 4 * i, 1)
            store(buffer, at, align_random(w0))
            store(buffer, at + along, align_random(w1))
            store(buffer, at + 2 * along, align_random(w2))
            store(buffer, at + 3 * along, align_random(w3))

    return make


@cache
def draw_from_seed(sr_bits: int) -> Draw:
    """Philox words: element i in C order takes word i mod 4 of counter i // 4."""
    make = _make_words(sr_bits, is_turned=False)

    @dialect
    def prepare(key, buffer, index, count):
        index += key[4]
        first = index >> 2
        make(key, first, 1, ((index + count + 3) >> 2) - first, buffer, 0, 0)
        return index & 3

    return Draw(prepare, _load_made, rows=1)


@cache
def draw_from_turned_seed(sr_bits: int) -> Draw:
    """The same of the transpose of a matrix: (seed low, seed high, stream low, stream high, its rows, its columns).

    The four words of a counter are in as many of its rows, which are made together and best asked for one after the
    other, the same part of each. Their number is a multiple of four.
    """
    make = _make_words(sr_bits, is_turned=True)

    @dialect
    def prepare(words, buffer, index, count):
        rows, columns, step = words[4], words[5], (buffer.size - SQUARE) >> 2
        row = index // columns
        column = index - row * columns
        if integer(load(buffer, 0)) != row >> 2 or integer(load(buffer, 1)) != column:
            store(buffer, 0, row >> 2)
            store(buffer, 1, column)
            make(words, (column * rows + row) >> 2, rows >> 2, count, buffer, SQUARE, step)
        return SQUARE + (row & 3) * step

    return Draw(prepare, _load_made, rows=4)


#: Words that `draw_words` makes at a time, at most.
_PIECE = 4096


@cache
def draw_words(sr_bits: int) -> Any:
    """(key, firsts, words): rows of words, each from a C-order index on, as `draw_from_words(30)` takes them."""
    prepare = draw_from_seed(sr_bits).prepare

    def loop(key, firsts, words):
        length = words.size // firsts.size
        buffer = np.empty(_PIECE + 8, np.int32)
        for row in range(firsts.size):
            for begin in range(0, length, _PIECE):
                count = min(_PIECE, length - begin)
                place = prepare(key, buffer, firsts[row] + begin, count)
                for i in range(count):
                    store(words, row * length + begin + i, load(buffer, place + i))

    return compile_loop(loop)
