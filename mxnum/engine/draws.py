"""Where loops take the random bits of each element: nowhere, from an array of words, or from Philox."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from mxnum.engine.jit import compile_loop
from mxnum.engine.lanes import lane, load, store
from mxnum.scalar.random import make_align_random, philox4x32
from mxnum.scalar.word import dialect


class Draw(NamedTuple):
    """The two steps of drawing random bits.

    `words` is an array in C order, or a Philox key with the index of the first element: (seed low, seed high, stream
    low, stream high, first).
    """

    #: (words, buffer, index, count) -> offset: gets the bits of `count` elements from C-order `index` on.
    prepare: Callable[..., Any]
    #: (words, buffer, offset + i) -> the bits of element index + i.
    at: Callable[..., Any]
    #: Whether `prepare` writes to the buffer, which then needs room for `count` + 6 elements.
    buffered: bool


@dialect
def _nothing(words, buffer, index, count):
    return 0


@dialect
def _zero(words, buffer, place):
    return 0


NO_DRAW = Draw(_nothing, _zero, buffered=False)


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

    return Draw(prepare, at, buffered=False)


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

    return Draw(prepare, at, buffered=True)


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
