"""One row with one row, longer than a piece, against the definition; and without waste."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

import mxnum as mx
from mxnum import reference
from mxnum.engine import pairs, panels, products
from mxnum.engine.operands import Operand
from tests import samples
from tests.test_linalg import codes_at_random

LENGTH = 3 * pairs._PIECE // 2 + 77


def operand(q, turned=False):
    codes = np.asfortranarray(np.repeat(q.codes, 2, 0))[:1] if turned else q.codes
    return Operand(codes, q.format.element, q.blocks, q.scales, q.offsets)


def both(name, a, b):
    out = [np.empty((1, 1), np.float32) for _ in range(2)]
    getattr(products, name)(a, b, out[0])
    getattr(products, f"{name}_by_definition")(a, b, out[1])
    samples.assert_same(name, [""], *(x.view(np.uint32).reshape(-1) for x in out))


@pytest.mark.parametrize("block", [5, 32, LENGTH])
@pytest.mark.parametrize(
    "pair", [("mxfp4_e2m1", "mxfp4_e2m1"), ("mxfp8_e5m2", "mxfp8_e4m3"), ("mxfp8_e5m2", "mxfp8_e5m2")]
)
def test_blocks(pair, block, monkeypatch):
    monkeypatch.setattr(pairs, "_PIECE", 1000)
    monkeypatch.setattr(panels.tiles, "multiply", None)
    length = min(LENGTH, 4000 if block < LENGTH else 36)
    for special in (0.0, 0.01):
        a, b = (codes_at_random(name, (1, length), block, special=special) for name in pair)
        for turned in (False, True):
            both("by_blocks", operand(a, turned), operand(b))


def test_in_sequence_longer_than_a_piece():
    rng = samples.generator("sequence")
    for left, right in ((8, 32), (32, 7)):
        a = mx.quantize(rng.standard_normal((1, LENGTH)), "mxfp8_e4m3", block_size=left)
        b = mx.quantize(rng.standard_normal((1, LENGTH)), "mxfp4_e2m1", block_size=right)
        both("in_sequence", operand(a), operand(b, turned=True))
    x = Operand(rng.standard_normal((1, LENGTH)).astype(np.float32), mx.formats.FLOATS["float32"])
    both("in_sequence", operand(a), x)


def test_split_sums_that_float64_would_round_to_a_tie():
    """As in test_tiles: 2**69 + 2**45 and what is left of it."""
    for sign in (1, -1):
        for small in (-1, 0, 1):
            one = float(1 << 35)
            a, low = np.array([one / 2, 0, 0]), np.array([0.0, 1 << 10, small])
            b, scale = sign * np.array([one, one, 1]), np.ones(1)
            total = np.zeros(1, np.float32)
            pairs._blocks()(a, low, b, scale, scale, np.ones(1, np.uint8), 3, total)
            want = reference.encode(Fraction(sign * (2**69 + 2**45 + small)), "float32")
            assert int(total.view(np.uint32)[0]) == want
