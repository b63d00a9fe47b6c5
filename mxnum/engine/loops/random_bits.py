"""Where loops take the random bits of each element: nowhere, from an array of words, or from Philox."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from mxnum.definition.random import make_align_random, philox4x32
from mxnum.definition.word import dialect
from mxnum.engine.loops.philox import counters_at_once, words_in_line
from mxnum.engine.machine.jit import compile_loop, forbid_inlining, not_inlined
from mxnum.engine.machine.lanes import lane, load, store
from mxnum.layout import element_strides
from mxnum.memory.dtypes import Array

#: Words that `draw_words` makes at a time, at most; and that a buffer needs beyond those that are
#: asked for.
_PIECE, SPARE = 4096, 8


class Draw(NamedTuple):
    """The two steps of drawing random bits.

    `words` is an array in C order, or a Philox key with the index of the first element: (seed low,
    seed high, stream low, stream high, first).
    """

    #: (words, buffer, index, count) -> offset: gets the bits of `count` elements from C-order
    #: `index` on.
    prepare: Callable[..., Any]
    #: (words, buffer, offset + i) -> the bits of element index + i.
    at: Callable[..., Any]
    #: Whether `prepare` writes to the buffer, which then needs room for `count` + `SPARE` elements.
    buffered: bool
    #: As `prepare`, but writes the bits to the buffer in any case, from the offset on; None where
    #: there are none.
    fill: Callable[..., Any] | None


@dialect
def _nothing(words, buffer, index, count):
    return 0


@dialect
def _zero(words, buffer, place):
    return 0


NO_DRAW = Draw(_nothing, _zero, buffered=False, fill=None)


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

    @dialect
    def fill(words, buffer, index, count):
        for i in range(count):
            store(buffer, i, align_random(load(words, index + i)))
        return 0

    return Draw(prepare, at, buffered=False, fill=fill)


@dialect
def _load_made(words, buffer, place):
    """Bits that are in the buffer as they are wanted."""
    return load(buffer, place)


@cache
def draw_from_seed(sr_bits: int) -> Draw:
    """Philox words: element i in C order takes word i mod 4 of counter i // 4."""
    align_random, TOGETHER = make_align_random(sr_bits), counters_at_once()

    @not_inlined
    def make(key, first, count, buffer):
        forbid_inlining()
        together = count // TOGETHER * TOGETHER
        for i in range(0, together, TOGETHER):
            words_in_line(buffer, 4 * i, first + i, key, sr_bits, TOGETHER)
        seed_low, seed_high = lane(key[0]), lane(key[1])
        stream_low, stream_high = lane(key[2]), lane(key[3])
        for i in range(together, count):
            low, high = lane((first + i) & 0xFFFFFFFF), lane((first + i) >> 32)
            w0, w1, w2, w3 = philox4x32(low, high, stream_low, stream_high, seed_low, seed_high)
            store(buffer, 4 * i, align_random(w0))
            store(buffer, 4 * i + 1, align_random(w1))
            store(buffer, 4 * i + 2, align_random(w2))
            store(buffer, 4 * i + 3, align_random(w3))

    @dialect
    def prepare(key, buffer, index, count):
        index += key[4]
        first = index >> 2
        make(key, first, ((index + count + 3) >> 2) - first, buffer)
        return index & 3

    return Draw(prepare, _load_made, buffered=True, fill=prepare)


@cache
def draw_words(sr_bits: int) -> Any:
    """(key, firsts, words): rows of words, each from a C-order index on, as `draw_from_words(SR_BITS)` takes them."""
    prepare = draw_from_seed(sr_bits).prepare

    def loop(key, firsts, words):
        length = words.size // firsts.size
        buffer = np.empty(_PIECE + SPARE, np.int32)
        for row in range(firsts.size):
            for begin in range(0, length, _PIECE):
                count = min(_PIECE, length - begin)
                place = prepare(key, buffer, firsts[row] + begin, count)
                for i in range(count):
                    store(words, row * length + begin + i, load(buffer, place + i))

    return compile_loop(loop)


class SeedWords(NamedTuple):
    """The words of a seed for each element of an array of that shape, made for the parts that are asked for.

    They have `SR_BITS` bits, of which the lowest are zero where fewer are drawn. The parts are
    those of the array with its axes in another order.
    """

    key: tuple[int, int, int, int]
    sr_bits: int
    shape: tuple[int, ...]
    order: tuple[int, ...]
    #: The index that the first element counts from.
    first: int = 0

    def read(self, where: tuple[slice, ...]) -> Array:
        """The words of a part, which takes so much of each axis."""
        if not self.shape:
            where = ()
        along = [where[self.order.index(axis)] for axis in range(len(where))]
        firsts = np.zeros((), np.int64)
        for part, step in zip(along[:-1], element_strides(self.shape)[:-1], strict=True):
            firsts = firsts[..., np.newaxis] + np.arange(part.start, part.stop) * step
        firsts = firsts + (along[-1].start if along else 0)
        words = np.empty([part.stop - part.start for part in along], np.uint32)
        draw_words(self.sr_bits)((*self.key, self.first), firsts.reshape(-1), words.reshape(-1))
        return words.transpose(self.order)
