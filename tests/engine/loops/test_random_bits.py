"""Tests that compiled loops draw the same random bits as the definition."""

from __future__ import annotations

import numpy as np
import pytest

from mxnum.definition.random import make_align_random, philox4x32
from mxnum.engine.loops.panels import SPARE, address_of
from mxnum.engine.loops.random_bits import draw_from_seed, draw_from_words, draw_words, make_philox_bits, words_of_key
from mxnum.engine.machine.jit import call_kernel, compile_loop


def fill_by(fill, words, buffer, offset, unused, where):
    call_kernel(fill, words, buffer, offset, unused, unused, where)


LOOP = compile_loop(fill_by)


def drawn(draw, words, index, count):
    """Return the random bits that a loop draws for `count` elements from element `index` on."""
    buffer, offset = np.empty(count + SPARE, np.int32), np.zeros(1, np.int64)
    LOOP(address_of(draw), words, buffer, offset, buffer[:0], (index, count, 0, 0, 0, 0, 0, 0))
    return buffer[int(offset[0]) :][:count].tolist()


@pytest.mark.parametrize("first", [0, 5, (1 << 34) - 3])
@pytest.mark.parametrize(("index", "count"), [(0, 9), (1, 1), (3, 70), (6, 2)])
@pytest.mark.parametrize("sr_bits", [1, 30])
def test_words_from_a_seed(sr_bits, index, count, first):
    align = make_align_random(sr_bits)
    key = 0x89ABCDEF, 0x01234567, 0xFFFFFFFF, 3
    want = []
    for i in range(first + index, first + index + count):
        counter = i >> 2
        words = philox4x32(counter & 0xFFFFFFFF, counter >> 32, key[2], key[3], key[0], key[1])
        want.append(align(words[i & 3]))
    assert drawn(draw_from_seed(sr_bits), words_of_key(key, first), index, count) == want


@pytest.mark.parametrize("first", [0, (1 << 34) - 8, (1 << 34) + 5, 1 << 40])
def test_words_from_a_seed_without_a_compiler(first):
    # Regression: without compilation, random words from index 2**34 on were wrong. Compiled 32-bit
    # integers wrap around, so only uncompiled code was wrong.
    key, count = (0x89ABCDEF, 0x01234567, 0xFFFFFFFF, 3), 21
    buffer = np.empty(count + 8, np.int32)
    place = make_philox_bits(30)(key, buffer, first, count)
    want = [
        philox4x32((i >> 2) & 0xFFFFFFFF, i >> 34, *key[2:], *key[:2])[i & 3] & 0x3FFFFFFF
        for i in range(first, first + count)
    ]
    assert buffer[place : place + count].tolist() == want


def test_words_from_an_array():
    words = np.array([0xFFFFFFFF, 1, 2, 0x80000003], np.uint32)
    assert drawn(draw_from_words(2), words, 1, 3) == [make_align_random(2)(w) for w in (1, 2, 3)]


def test_nothing():
    assert address_of(None) == 0


@pytest.mark.parametrize("length", [1, 7, 5000])
def test_rows_of_words(length):
    key, firsts = (5, 6, 7, 8), np.array([0, 3, 1 << 33], np.int64)
    words = np.zeros(3 * length, np.uint32)
    draw_words(9)(key, firsts, words)
    for row, first in enumerate(firsts):
        want = drawn(draw_from_seed(9), words_of_key(key, int(first)), 0, length)
        assert words[row * length : (row + 1) * length].tolist() == want
