"""What is done in registers against numpy."""

from __future__ import annotations

import numba
import numpy as np
import pytest

from mxnum.engine import moves
from mxnum.engine.packs import Decoder
from mxnum.formats import ELEMENTS


@pytest.mark.parametrize("height", [8, 16, 32])
def test_bytes_turn(height):
    turn, copy = getattr(moves, f"turn_{height}"), getattr(moves, f"copy_{height}")

    @numba.njit
    def both(source, tile, line):
        turn(source, 2, 3, tile, 5)
        copy(source, 1, 4, line, 1)

    source = np.arange(40 * 50, dtype=np.uint8).reshape(40, 50)
    tile, line = np.zeros(5 + height * moves.LANES, np.uint8), np.zeros(1 + height, np.uint8)
    both(source, tile, line)
    want = source[2 : 2 + height, 3 : 3 + moves.LANES].T
    assert tile[5:].tolist() == want.reshape(-1).tolist()
    assert line[1:].tolist() == source[1, 4 : 4 + height].tolist()


@pytest.mark.parametrize("word", [np.float32, np.float64])
def test_lines_are_repeated(word):
    @numba.njit
    def repeat(line, tile):
        moves.spread_8(line, tile, 1, 3)

    line, tile = np.arange(8, dtype=word), np.full(32, -1, word)
    repeat(line, tile)
    assert tile.reshape(4, 8).tolist() == [[-1] * 8, list(range(8)), list(range(8)), [-1] * 8]


@pytest.mark.parametrize("name", ELEMENTS)
def test_fields_widen(name):
    """Every code; the table is checked against literals by the theorems `products/*`."""
    element, decoder = ELEMENTS[name], Decoder.of(ELEMENTS[name], "float32")
    decode = moves.of_integers if element.integer else moves.of_halves

    @numba.njit
    def widen(codes, numbers, factor, values):
        decode(codes, numbers, factor, values)

    codes = np.arange(1 << element.bits, dtype=np.uint8)
    values = np.zeros(codes.size, np.float32)
    widen(codes, decoder.numbers, decoder.factor, values)
    assert np.array_equal(values, decoder.table, equal_nan=True)
    assert np.array_equal(np.signbit(values), np.signbit(decoder.table)) or element.nan_code is not None
