"""Tests that random words, computed for many counters at once, equal the reference's words."""

from __future__ import annotations

import numba
import numpy as np
import pytest

from mxnum.engine.loops.random_bits import counters_at_once, words_in_line
from mxnum.reference.random import philox4x32
from tests import samples

COUNTERS = [0, 5, (1 << 32) - 3, 1 << 40, (1 << 61) - 9]
#: Keys of random words: low and high word of the seed, low and high word of the stream, and a fifth
#: number, which has no effect on the words.
KEYS = [(0, 0, 0, 0, 9), (0xFFFFFFFF, 0xFFFFFFFF, 0xFFFFFFFF, 0xFFFFFFFF, 0), (0x80000001, 3, 0xDEADBEEF, 1 << 31, 5)]


def expected(first, key, sr_bits, count):
    """Return the reference's random words for `count` counters, of shape (count, 4).

    The low `sr_bits` bits of each word are shifted to the top of 30 bits.
    """
    words = [
        philox4x32((counter & 0xFFFFFFFF, counter >> 32, key[2], key[3]), (key[0], key[1]))
        for counter in range(first, first + count)
    ]
    return (np.array(words, np.int64) & ((1 << sr_bits) - 1)) << (30 - sr_bits)


@pytest.mark.parametrize("compiled", [True, False], ids=["compiled", "plain"])
@pytest.mark.parametrize("sr_bits", [1, 8, 30])
@pytest.mark.parametrize("count", sorted({1, 8, 32, counters_at_once()}))
def test_words(count, sr_bits, compiled):
    def in_line(buffer, place, first, key):
        words_in_line(buffer, place, first, key, sr_bits, count)

    if compiled:
        in_line = numba.njit(in_line)
    random_keys = [tuple(key) for key in samples.generator("philox").integers(0, 1 << 32, (3, 5)).tolist()]
    for key in KEYS + random_keys:
        for first in COUNTERS:
            right = expected(first, key, sr_bits, count)
            buffer = np.full(4 * count + 9, -1, np.int32)
            in_line(buffer, 3, first, key)
            assert (buffer[3 : 4 * count + 3].reshape(count, 4) == right).all()
            assert (buffer[:3] == -1).all()
            assert (buffer[4 * count + 3 :] == -1).all()
