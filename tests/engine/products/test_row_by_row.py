"""Tests of products computed row by row, with elements split into two parts."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from mxnum import reference
from mxnum.engine.products import row_by_row

ONE = np.ones((1, 1), np.float32)


def blocks(a, b, step, run):
    """Return products of rows, summed block by block, under scales of 1."""
    out = np.zeros((len(a), len(b)), np.float32)
    count = -(-a.shape[1] // run)
    scales = np.ones((len(a), count), np.float32), np.ones((len(b), count), np.float32)
    row_by_row.by_blocks(a, b, *scales, run, step, out, 1)
    return out


@pytest.mark.parametrize("sign", [1, -1])
def test_parts_that_float64_would_round_to_a_tie(sign):
    """Check sums at a tie between two float32 numbers (2**69 + 2**45), and 1 above and below it."""
    for small in (-1, 0, 1):
        # float64 cannot hold 2**69 + 2**45 + `small`, so the sum needs a high part and a low part.
        a = np.array([[2.0**35, 2.0**11, small]], np.float32)
        b = np.array([[sign * 2.0**34, sign * 2.0**34, sign]], np.float32)
        got = int(blocks(a, b, 2.0**16, 3).view(np.uint32)[0, 0])
        assert got == reference.encode(Fraction(sign * (2**69 + 2**45 + small)), "float32")


def test_infinities_meet_the_parts_of_numbers_and_stay():
    inf, nan = np.inf, np.nan
    a = np.array([[3, 0, 1], [65536, 1, 1], [inf, 1, 0], [nan, 1, 1], [0, 1, 1], [-inf, 1, 1]], np.float32)
    b = np.array([[inf, 1, 1], [1, 2, 3], [-inf, 0, 1]], np.float32)
    with np.errstate(invalid="ignore"):
        want = a.astype(np.float64) @ b.astype(np.float64).T
    for step in (None, 16.0):
        assert np.array_equal(blocks(a, b, step, 3), want, equal_nan=True)
        assert set(blocks(a, b, step, 3).view(np.uint32)[np.isnan(want)].tolist()) == {0x7FC00000}


def test_the_last_block_is_short():
    a, b = np.arange(1, 12, dtype=np.float32)[None], np.ones((1, 11), np.float32)
    for step in (None, 4.0):
        assert blocks(a, b, step, 3)[0, 0] == 66
