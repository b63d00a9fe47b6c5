"""Random bits for stochastic rounding, by Philox4x32-10 (Salmon, Moraes, Dror and Shaw, SC 2011).

The generator is based on counters: an element's bits depend only on the seed, the stream and the
element's index. The number of threads, the device and the memory layout do not matter. Philox needs
multiplication, which other dialect functions may not use. Every product in this module is below
2**48, so Python ints, int64 and CUDA give the same results.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mxnum.definition.pack import SR_BITS
from mxnum.definition.word import dialect

_WORD = 0xFFFFFFFF
_HALF = 0xFFFF
_MULTIPLIER_0, _MULTIPLIER_1 = 0xD2511F53, 0xCD9E8D57
_WEYL_0, _WEYL_1 = 0x9E3779B9, 0xBB67AE85
_ROUNDS = 10


@dialect
def multiply_32x32(a, b):
    """Return (high word, low word) of the product of two 32-bit words.

    Each 16-bit half of `a` is multiplied by `b`, so that no product reaches 2**48.
    """
    low = (a & _HALF) * b
    middle = (a >> 16) * b + (low >> 16)
    return middle >> 16, ((middle & _HALF) << 16) | (low & _HALF)


@dialect
def philox4x32(c0, c1, c2, c3, k0, k1):
    """Return the four random words for a counter of four words and a key of two words.

    All words are below 2**32.
    """
    for _ in range(_ROUNDS):
        high_0, low_0 = multiply_32x32(c0, _MULTIPLIER_0)
        high_1, low_1 = multiply_32x32(c2, _MULTIPLIER_1)
        c0, c1, c2, c3 = high_1 ^ c1 ^ k0, low_1, high_0 ^ c3 ^ k1, low_0
        k0 = (k0 + _WEYL_0) & _WORD
        k1 = (k1 + _WEYL_1) & _WORD
    return c0, c1, c2, c3


def make_align_random(sr_bits: int) -> Callable[..., Any]:
    """Return `align_random(word)`, which shifts the low `sr_bits` bits left by SR_BITS - sr_bits.

    Stochastic rounding in `pack` always reads SR_BITS = 30 bits. The shift does not change whether
    a number is rounded up: for delta in [0, 1) and r random bits R, floor(delta * 2**r) + R >= 2**r
    if and only if floor(delta * 2**30) + R * 2**(30-r) >= 2**30.
    """
    MASK = (1 << sr_bits) - 1
    UP = SR_BITS - sr_bits

    @dialect
    def align_random(word):
        return (word & MASK) << UP

    align_random.__name__ = f"align_random_{sr_bits}"
    return align_random
