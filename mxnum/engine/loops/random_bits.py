"""Kernels that draw the random bits of elements, from an array of words or a Philox seed.

A Philox counter yields four words. Compiled code computes the words of many counters at once. Each
word is in the lower half of a 64-bit integer, and the upper half is ignored. A 64-bit integer has
room for the product of two words, so data moves between registers only after the last Philox round.
Each round must wait for the result of the round before, so the code computes the rounds of several
registers in turn.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from mxnum.definition import random
from mxnum.definition.pack import SR_BITS
from mxnum.definition.random import make_align_random, philox4x32
from mxnum.definition.word import dialect
from mxnum.engine.loops.panels import SPARE
from mxnum.engine.machine.jit import (
    Kernel,
    compile_directly,
    compile_loop,
    element_pointer,
    forbid_inlining,
    has_feature,
    not_inlined,
)
from mxnum.engine.machine.lanes import integer, lane, load, store
from mxnum.memory.dtypes import Array

_I32, _I64 = ir.IntType(32), ir.IntType(64)


def counters_at_once() -> int:
    """Return the number of Philox counters that compiled code computes at once.

    If the processor has registers of 512 bits, 32 counters fill four of them. Otherwise, 8 counters
    fill two registers of 256 bits or four registers of 128 bits.
    """
    return 32 if has_feature("avx512f") else 8


def words_in_line(buffer: Any, place: Any, first: Any, key: Any, sr_bits: int, count: int) -> None:
    """Write the random bits of `count` counters, from counter `first` on, into `buffer`.

    `place` is the index of the first item of `buffer` that is written. Each counter fills four
    items with its words, shifted by the function that `make_align_random` returns. The key is (seed
    low, seed high, stream low, stream high, ...). `sr_bits` and `count` must be compile-time
    constants.
    """
    align_random = random.make_align_random(sr_bits)
    for i, counter in enumerate(range(first, first + count)):
        words = random.philox4x32(counter & 0xFFFFFFFF, counter >> 32, key[2], key[3], key[0], key[1])
        buffer[place + 4 * i : place + 4 * i + 4] = [align_random(word) for word in words]


class _Vector:
    """A builder of LLVM instructions on vectors that hold one 64-bit word for each counter."""

    def __init__(self, builder: Any, count: int) -> None:
        self.builder, self.count = builder, count
        self.kind, self.halves = ir.VectorType(_I64, count), ir.VectorType(_I32, 2 * count)

    def all(self, value: int) -> Any:
        return ir.Constant(self.kind, [value] * self.count)

    def spread(self, value: Any) -> Any:
        one = self.builder.insert_element(ir.Constant(self.kind, ir.Undefined), value, _I32(0))
        return self.shuffled(one, one, [0] * self.count)

    def shuffled(self, a: Any, b: Any, order: list[int]) -> Any:
        return self.builder.shuffle_vector(a, b, ir.Constant(ir.VectorType(_I32, len(order)), order))

    def lower(self, a: Any) -> Any:
        return self.builder.and_(a, self.all(random._WORD))

    def upper(self, a: Any) -> Any:
        """Return the upper half of each word, moved to the lower half.

        A shuffle moves the halves, because a shift would occupy a unit of the processor that the
        multiplications need.
        """
        halves = self.builder.bitcast(a, self.halves)
        return self.builder.bitcast(self.shuffled(halves, halves, [i | 1 for i in range(2 * self.count)]), self.kind)

    def words(self, first: Any, key: list[Any]) -> list[Any]:
        """Return the four Philox words of each counter, as `random.philox4x32` does.

        Each word is in the lower half of a 64-bit integer.
        """
        builder = self.builder
        c0 = builder.add(self.spread(first), ir.Constant(self.kind, list(range(self.count))))
        c1 = self.upper(c0)
        k0, k1, c2, c3 = (self.spread(word) for word in key)
        for _ in range(random._ROUNDS):
            product_0 = builder.mul(self.lower(c0), self.all(random._MULTIPLIER_0))
            product_1 = builder.mul(self.lower(c2), self.all(random._MULTIPLIER_1))
            c0 = builder.xor(builder.xor(self.upper(product_1), c1), k0)
            c2 = builder.xor(builder.xor(self.upper(product_0), c3), k1)
            c1, c3 = product_1, product_0
            k0, k1 = builder.add(k0, self.all(random._WEYL_0)), builder.add(k1, self.all(random._WEYL_1))
        return [c0, c1, c2, c3]

    def in_line(self, words: list[Any]) -> Any:
        """Return one vector of 32-bit words that holds the four words of each counter in order."""
        first, second, third, fourth = words
        low = self.builder.or_(self.lower(first), self.builder.shl(second, self.all(32)))
        high = self.builder.or_(self.lower(third), self.builder.shl(fourth, self.all(32)))
        order = [i // 2 + self.count * (i % 2) for i in range(2 * self.count)]
        return self.builder.bitcast(self.shuffled(low, high, order), ir.VectorType(_I32, 4 * self.count))


@intrinsic(prefer_literal=True)
def _words_in_line(context, buffer, place, first, key, sr_bits, count):
    bits = sr_bits.literal_value

    def generate(target, builder, signature, arguments):
        array, place, first, key = arguments[:4]
        vector = _Vector(builder, count.literal_value)
        words = vector.in_line(vector.words(first, [builder.extract_value(key, i) for i in range(4)]))
        kind = words.type
        kept = builder.and_(words, ir.Constant(kind, [(1 << bits) - 1] * kind.count))
        aligned = builder.shl(kept, ir.Constant(kind, [SR_BITS - bits] * kind.count))
        start = element_pointer(target, builder, buffer, array, place)
        builder.store(aligned, builder.bitcast(start, kind.as_pointer()), align=4)
        return target.get_dummy_value()

    return types.none(buffer, place, first, key, sr_bits, count), generate


compile_directly(words_in_line, _words_in_line)


#: The greatest number of words that `draw_words` makes at a time.
_PIECE = 4096


@cache
def draw_from_words(sr_bits: int) -> Kernel:
    """Return the `Draw` kernel that takes the low `sr_bits` bits of each word of an array."""
    align_random = make_align_random(sr_bits)

    def fill(words, buffer, offset, unused, unused_too, where):
        index, count, _, _, _, _, _, _ = where
        for i in range(count):
            store(buffer, i, align_random(load(words, index + i)))
        store(offset, 0, 0)

    return Kernel(fill)


def words_of_key(key: tuple[int, int, int, int], first: int) -> Array:
    """Return the array that the kernel of `draw_from_seed` takes as `words`.

    The array holds a Philox key and the index of the first element.
    """
    return np.array([*key, first & 0xFFFFFFFF, first >> 32], np.uint32)


@dialect
def _unsigned(words, i):
    return integer(load(words, i)) & 0xFFFFFFFF


@cache
def draw_from_seed(sr_bits: int) -> Kernel:
    """Return the `Draw` kernel that draws random bits from a Philox seed.

    Element i in C order takes word i mod 4 of counter i // 4.
    """
    philox_bits = make_philox_bits(sr_bits)

    def fill(words, buffer, offset, unused, unused_too, where):
        index, count, _, _, _, _, _, _ = where
        key = _unsigned(words, 0), _unsigned(words, 1), _unsigned(words, 2), _unsigned(words, 3)
        index += _unsigned(words, 4) + (_unsigned(words, 5) << 32)
        store(offset, 0, philox_bits(key, buffer, index, count))

    return Kernel(fill)


@cache
def make_philox_bits(sr_bits: int) -> Callable[..., Any]:
    """Return `philox_bits(key, buffer, index, count)`, which writes random bits to a buffer.

    `philox_bits` returns the index in `buffer` at which the bits of the first element begin. The
    key is (seed low, seed high, stream low, stream high).
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
    """Return `loop(key, firsts, words)`, which writes rows of random words.

    Row i holds the words of the elements from C-order index `firsts[i]` on. The kernel
    `draw_from_words(SR_BITS)` can read `words`.
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
    """The random words for the elements of an array, computed from a seed, part by part.

    Each word has `SR_BITS` bits: the top `sr_bits` bits are random, and the others are zero. A part
    is selected by one slice for each axis of the reordered array.
    """

    key: tuple[int, int, int, int]
    sr_bits: int
    #: The strides of the array in elements, in the original order of its axes. `order` is the new
    #: order of the axes.
    strides: tuple[int, ...]
    order: tuple[int, ...]
    #: The index of the first element in the Philox stream.
    first: int = 0

    def read(self, where: tuple[slice, ...]) -> Array:
        """Return the words of one part."""
        if not self.order:
            where = ()
        along = [where[self.order.index(axis)] for axis in range(len(where))]
        firsts = np.zeros((), np.int64)
        for part, step in zip(along[:-1], self.strides[:-1], strict=True):
            firsts = firsts[..., np.newaxis] + np.arange(part.start, part.stop) * step
        firsts = firsts + (along[-1].start if along else 0)
        words = np.empty([part.stop - part.start for part in along], np.uint32)
        draw_words(self.sr_bits)(self.key, self.first + firsts.reshape(-1), words.reshape(-1))
        return words.transpose(self.order)
