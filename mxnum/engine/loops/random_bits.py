"""Sources of the random bits of each element: none, an array of words, or Philox."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from mxnum.definition.random import make_align_random, philox4x32
from mxnum.definition.word import dialect
from mxnum.engine.loops.philox import counters_at_once, words_in_line
from mxnum.engine.machine.jit import compile_loop, forbid_inlining, not_inlined
from mxnum.engine.machine.kernels import Kernel
from mxnum.engine.machine.lanes import integer, lane, load, store
from mxnum.layout import element_strides
from mxnum.memory.dtypes import Array

#: The greatest number of words that `draw_words` makes at a time, and the words that a buffer needs
#: beyond those that are asked for.
_PIECE, SPARE = 4096, 8


class Draw(NamedTuple):
    """A way to draw random bits, which loops call as a kernel."""

    #: `(words, buffer, offset, _, _, (index, count, ...))` writes the bits of `count` elements,
    #: from C-order `index` on, to `buffer`, and stores in `offset` where they begin. The buffer has
    #: room for `count` + `SPARE` elements. None if no bits are drawn. `words` is an array in C
    #: order, or what `words_of_key` returns.
    fill: Kernel | None

    def address(self) -> Any:
        """Return the value with which loops call the kernel; 0 if no bits are drawn."""
        return 0 if self.fill is None else self.fill.for_types(np.uint32, np.int32, np.int64)


NO_DRAW = Draw(None)
#: The words that loops receive if they draw no bits.
NO_WORDS = np.zeros(1, np.uint32)


@cache
def draw_from_words(sr_bits: int) -> Draw:
    """Return the way to draw the low `sr_bits` bits of each word in an array."""
    align_random = make_align_random(sr_bits)

    def fill(words, buffer, offset, unused, unused_too, where):
        index, count, _, _, _, _, _, _ = where
        for i in range(count):
            store(buffer, i, align_random(load(words, index + i)))
        store(offset, 0, 0)

    return Draw(Kernel(fill))


def words_of_key(key: tuple[int, int, int, int], first: int) -> Array:
    """Return the words from which `draw_from_seed` draws.

    They are a Philox key and the index of the first element.
    """
    return np.array([*key, first & 0xFFFFFFFF, first >> 32], np.uint32)


@dialect
def _unsigned(words, i):
    return integer(load(words, i)) & 0xFFFFFFFF


@cache
def draw_from_seed(sr_bits: int) -> Draw:
    """Return the way to draw Philox words.

    Element i in C order takes word i mod 4 of counter i // 4.
    """
    philox_bits = make_philox_bits(sr_bits)

    def fill(words, buffer, offset, unused, unused_too, where):
        index, count, _, _, _, _, _, _ = where
        key = _unsigned(words, 0), _unsigned(words, 1), _unsigned(words, 2), _unsigned(words, 3)
        index += _unsigned(words, 4) + (_unsigned(words, 5) << 32)
        store(offset, 0, philox_bits(key, buffer, index, count))

    return Draw(Kernel(fill))


@cache
def make_philox_bits(sr_bits: int) -> Callable[..., Any]:
    """Return a function that writes random bits to a buffer.

    It is `philox_bits(key, buffer, index, count)`, and returns where the bits begin.

    The key is (seed low, seed high, stream low, stream high).
    """
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
    def philox_bits(key, buffer, index, count):
        first = index >> 2
        make(key, first, ((index + count + 3) >> 2) - first, buffer)
        return index & 3

    return philox_bits


@cache
def draw_words(sr_bits: int) -> Any:
    """Return `loop(key, firsts, words)`, which writes rows of words.

    Row i begins at C-order index `firsts[i]`. The words are those that `draw_from_words(SR_BITS)`
    takes.
    """
    philox_bits = make_philox_bits(sr_bits)

    def loop(key, firsts, words):
        length = words.size // firsts.size
        buffer = np.empty(_PIECE + SPARE, np.int32)
        for row in range(firsts.size):
            for begin in range(0, length, _PIECE):
                count = min(_PIECE, length - begin)
                place = philox_bits(key, buffer, firsts[row] + begin, count)
                for i in range(count):
                    store(words, row * length + begin + i, load(buffer, place + i))

    return compile_loop(loop)


class SeedWords(NamedTuple):
    """The words of a seed for each element of an array, made for one part at a time.

    Words have `SR_BITS` bits. If fewer are drawn, the lowest bits are zero. Parts are those of the
    array with its axes in another order.
    """

    key: tuple[int, int, int, int]
    sr_bits: int
    shape: tuple[int, ...]
    order: tuple[int, ...]
    #: The Philox index of the first element.
    first: int = 0

    def read(self, where: tuple[slice, ...]) -> Array:
        """Return the words of a part, given by a slice of each axis."""
        if not self.shape:
            where = ()
        along = [where[self.order.index(axis)] for axis in range(len(where))]
        firsts = np.zeros((), np.int64)
        for part, step in zip(along[:-1], element_strides(self.shape)[:-1], strict=True):
            firsts = firsts[..., np.newaxis] + np.arange(part.start, part.stop) * step
        firsts = firsts + (along[-1].start if along else 0)
        words = np.empty([part.stop - part.start for part in along], np.uint32)
        draw_words(self.sr_bits)(self.key, self.first + firsts.reshape(-1), words.reshape(-1))
        return words.transpose(self.order)
