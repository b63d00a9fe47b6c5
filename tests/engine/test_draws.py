"""Random bits as loops draw them are those of the definition."""

from __future__ import annotations

import numba
import numpy as np
import pytest

from mxnum.engine.draws import (
    NO_DRAW,
    SPARE,
    TALLEST,
    draw_from_seed,
    draw_from_turned_seed,
    draw_from_turned_words,
    draw_from_words,
    draw_words,
)
from mxnum.engine.jit import register
from mxnum.engine.lanes import wide
from mxnum.engine.turning import SQUARE
from mxnum.scalar.random import make_align_random, philox4x32
from tests import samples


def drawn(draw, words, index, count):
    prepare, random_at = draw.prepare, draw.at

    def loop(words, index, count, out):
        buffer = np.empty(count + 8, np.int32)
        place = prepare(words, buffer, index, count)
        for i in range(count):
            out[i] = wide(random_at(words, buffer, place + i))

    register(loop)
    out = np.empty(count, np.int64)
    numba.njit(loop)(words, index, count, out)
    return out.tolist()


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
    assert drawn(draw_from_seed(sr_bits), (*key, first), index, count) == want


def test_words_from_an_array():
    words = np.array([0xFFFFFFFF, 1, 2, 0x80000003], np.uint32)
    assert drawn(draw_from_words(2), words, 1, 3) == [make_align_random(2)(w) for w in (1, 2, 3)]


@pytest.mark.skipif(numba.config.DISABLE_JIT, reason="squares turn in registers")
@pytest.mark.parametrize(("tall", "phase"), [(SQUARE, 0), (TALLEST, 0), (SQUARE, 5), (TALLEST, 12)])
@pytest.mark.parametrize("shape", [(64, 32), (150, 70), (17, 100), (3, 5), (133, 40), (140, 20)])
def test_words_from_a_matrix_of_columns(shape, tall, phase):
    words = samples.generator("turned", shape).integers(0, 1 << 32, shape, dtype=np.uint32)
    rows, columns = shape
    draw, align = draw_from_turned_words(7), make_align_random(7)
    prepare, random_at = draw.prepare, draw.at

    def loop(flat, rows, columns, panel, tall, phase, out):
        buffer = np.empty(draw_rows * (panel + SPARE), np.int32)
        buffer[0] = -1
        for column in range(0, columns, panel):
            count = min(panel, columns - column)
            for row in range(rows):
                place = prepare((flat, rows, tall, phase), buffer, row * columns + column, count)
                for i in range(count):
                    out[row, column + i] = wide(random_at(0, buffer, place + i))

    draw_rows = draw.rows
    register(loop)
    compiled = numba.njit(loop)
    for panel in (columns, 32):
        out = np.zeros(shape, np.int64)
        compiled(words.T.copy().reshape(-1), rows, columns, panel, tall, phase, out)
        assert out.tolist() == [[align(int(word)) for word in row] for row in words]


@pytest.mark.skipif(numba.config.DISABLE_JIT, reason="it is for compiled loops")
@pytest.mark.parametrize("shape", [(64, 32), (4, 5), (20, 101), (8, 1)])
def test_seeded_words_of_a_transpose(shape):
    rows, columns = shape
    key, draw, plain = (5, 6, 7, 8), draw_from_turned_seed(9), draw_from_seed(9)
    prepare, random_at, draw_rows = draw.prepare, draw.at, draw.rows

    def loop(words, rows, columns, panel, out):
        buffer = np.empty(draw_rows * (panel + SPARE), np.int32)
        buffer[0] = -1
        for column in range(0, columns, panel):
            count = min(panel, columns - column)
            for row in range(rows):
                place = prepare(words, buffer, row * columns + column, count)
                for i in range(count):
                    out[row, column + i] = wide(random_at(0, buffer, place + i))

    register(loop)
    compiled = numba.njit(loop)
    want = np.array(drawn(plain, (*key, 0), 0, rows * columns)).reshape(columns, rows).T
    for panel in (columns, 32):
        out = np.zeros(shape, np.int64)
        compiled((*key, rows, columns), rows, columns, panel, out)
        assert np.array_equal(out, want)


def test_nothing():
    assert drawn(NO_DRAW, 0, 4, 3) == [0, 0, 0]


@pytest.mark.parametrize("length", [1, 7, 5000])
def test_rows_of_words(length):
    key, firsts = (5, 6, 7, 8, 0), np.array([0, 3, 1 << 33], np.int64)
    words = np.zeros(3 * length, np.uint32)
    draw_words(9)(key, firsts, words)
    for row, first in enumerate(firsts):
        want = drawn(draw_from_seed(9), (*key[:4], int(first)), 0, length)
        assert words[row * length : (row + 1) * length].tolist() == want
