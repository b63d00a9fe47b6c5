"""Computes the Philox words of many counters at once, for loops that draw random bits.

In compiled code, each of the four words of a counter is the lower half of a 64-bit integer whose
upper half is ignored. Products of 32-bit words have that form, so that no data moves between
registers before the last round. The rounds of a counter depend on each other. So the code
interleaves several registers of counters.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from mxnum.definition import random
from mxnum.definition.pack import SR_BITS
from mxnum.engine.machine.jit import compile_directly, has_feature
from mxnum.engine.machine.lanes import element_pointer

_I32, _I64 = ir.IntType(32), ir.IntType(64)


def counters_at_once() -> int:
    """Return the number of counters to compute at once.

    They fill four of the 32 registers of 512 bits, or else four of 128 bits or two of 256 bits.
    """
    return 32 if has_feature("avx512f") else 8


def words_in_line(buffer: Any, place: Any, first: Any, key: Any, sr_bits: int, count: int) -> None:
    """Write aligned random bits for `count` counters, starting at `first`, to `buffer`.

    `place` is the first index that is written. Each counter yields four words in order. The key is
    (seed low, seed high, stream low, stream high, ...). `sr_bits` and `count` are constants.
    """
    align_random = random.make_align_random(sr_bits)
    for i, counter in enumerate(range(first, first + count)):
        words = random.philox4x32(counter & 0xFFFFFFFF, counter >> 32, key[2], key[3], key[0], key[1])
        buffer[place + 4 * i : place + 4 * i + 4] = [align_random(word) for word in words]


class _Vector:
    """Builds IR for vectors with a 64-bit word for each counter."""

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
        """Return the upper halves as lower halves, by a shuffle since shifts block a multiplier."""
        halves = self.builder.bitcast(a, self.halves)
        return self.builder.bitcast(self.shuffled(halves, halves, [i | 1 for i in range(2 * self.count)]), self.kind)

    def words(self, first: Any, key: list[Any]) -> list[Any]:
        """Return the four words of each counter, in lower halves, as `random.philox4x32` does."""
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
        """Return the lower halves of four words as a vector of 32-bit words, counter by counter."""
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
