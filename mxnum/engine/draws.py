"""Where loops take the random bits of each element: nowhere, from an array of words, turned or not, or from Philox."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from mxnum.engine.jit import compile_loop
from mxnum.engine.lanes import integer, lane, load, store
from mxnum.engine.turning import SQUARE, expect_square, turn_square
from mxnum.scalar.random import make_align_random, philox4x32
from mxnum.scalar.word import dialect

#: Elements of the buffer in each row beyond those that are asked for.
SPARE = 2 * SQUARE
#: Rows of words that are turned together, at most.
TALLEST = 4 * SQUARE


class Draw(NamedTuple):
    """The two steps of drawing random bits.

    `words` is an array in C order, or a Philox key with the index of the first element: (seed low, seed high, stream
    low, stream high, first). Or it is what `draw_from_turned_words` takes.
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
    align_random = make_align_random(sr_bits)

    @dialect
    def turn(flat, length, first, column, tall, count, buffer, step):
        columns = flat.size // length
        source = flat.reshape((1, columns, length)).transpose((0, 2, 1))[:, first:, column:]
        target = buffer[SQUARE : SQUARE + TALLEST * step].reshape((1, TALLEST, step))
        in_squares, wide = tall // SQUARE * SQUARE, count // SQUARE * SQUARE
        for j in range(0, wide, SQUARE):
            for i in range(0, in_squares, SQUARE):
                expect_square(source, 0, i, j + SQUARE)
            for i in range(0, in_squares, SQUARE):
                turn_square(source, target, 0, i, j)
        for j in range(count):
            for i in range(in_squares if j < wide else 0, tall):
                store(buffer, SQUARE + i * step + j, load(flat, (column + j) * length + first + i))

    @dialect
    def prepare(words, buffer, index, count):
        flat, length, rows, phase = words
        columns, step = flat.size // length, buffer.size // TALLEST - SQUARE
        row = index // columns
        after = (row + phase) // rows * rows - phase
        first, column = max(after, 0), index - row * columns
        if integer(load(buffer, 0)) != first or integer(load(buffer, 1)) != column:
            store(buffer, 0, first)
            store(buffer, 1, column)
            turn(flat, length, first, column, min(after + rows, length) - first, count, buffer, step)
        return SQUARE + (row - first) * step

    @dialect
    def at(words, buffer, place):
        return align_random(load(buffer, place))

    return Draw(prepare, at, rows=TALLEST)


@cache
def draw_from_seed(sr_bits: int) -> Draw:
    """Philox words: element i in C order takes word i mod 4 of counter i // 4."""
    align_random = make_align_random(sr_bits)

    @dialect
    def fill(buffer, place, w0, w1, w2, w3):
        store(buffer, place, align_random(w0))
        store(buffer, place + 1, align_random(w1))
        store(buffer, place + 2, align_random(w2))
        store(buffer, place + 3, align_random(w3))

    @dialect
    def prepare(key, buffer, index, count):
        seed_low, seed_high = lane(key[0]), lane(key[1])
        stream_low, stream_high = lane(key[2]), lane(key[3])
        index += key[4]
        first = index >> 2
        counters = ((index + count + 3) >> 2) - first
        half = counters >> 1
        for i in range(half):  # two at a time, so that one's products are made while the other's are waited for
            low, high = lane(first + i), lane((first + i) >> 32)
            v0, v1, v2, v3 = philox4x32(low, high, stream_low, stream_high, seed_low, seed_high)
            low, high = lane(first + half + i), lane((first + half + i) >> 32)
            w0, w1, w2, w3 = philox4x32(low, high, stream_low, stream_high, seed_low, seed_high)
            fill(buffer, 4 * i, v0, v1, v2, v3)
            fill(buffer, 4 * (half + i), w0, w1, w2, w3)
        if counters & 1:
            low, high = lane(first + counters - 1), lane((first + counters - 1) >> 32)
            w0, w1, w2, w3 = philox4x32(low, high, stream_low, stream_high, seed_low, seed_high)
            fill(buffer, 4 * (counters - 1), w0, w1, w2, w3)
        return index & 3

    @dialect
    def at(key, buffer, place):
        return load(buffer, place)

    return Draw(prepare, at, rows=1)


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
