"""Tests that matrix products in register tiles equal plain sums bit for bit, for any size."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from mxnum import reference
from mxnum.engine.products import register_tile
from mxnum.engine.products.by_definition import sequential_loop
from tests import samples

SHAPE32, SHAPE64 = register_tile.SHAPES["float32"], register_tile.SHAPES["float64"]


def panels(x, width):
    """Return the rows of a matrix packed in panels; zeros fill up the last panel."""
    count = -(-len(x) // width)
    full = np.zeros((count * width, x.shape[1]), x.dtype)
    full[: len(x)] = x
    return np.ascontiguousarray(full.reshape(count, width, -1).transpose(0, 2, 1))


def test_shapes_are_whole_vectors():
    for shape in register_tile.SHAPES.values():
        assert shape.columns % shape.lanes == 0
        assert shape.rows * (shape.columns // shape.lanes) + shape.columns // shape.lanes < 32


@pytest.mark.parametrize(
    ("m", "n", "k"),
    [(1, 1, 1), (8, 32, 5), (9, 33, 3), (7, 31, 64), (3 * 8, 2 * 32, 17), (17 * 8 + 1, 5, 4), (5, 40, 2500)],
)
def test_sequential(m, n, k):
    rng = samples.generator("tiles", m, n, k)
    a, b = (rng.standard_normal((rows, k)).astype(np.float32) * np.float32(2.0**-70) for rows in (m, n))
    a[0, 0] = np.inf if m % 2 else a[0, 0]
    start = np.float32(7 * 2.0**-140)  # as small as the products, so that each product changes the sum
    want = np.full((m, n), start, np.float32)
    sequential_loop()((a.view(np.int32),), (b.view(np.int32),), (), want.view(np.uint32))
    out = np.full((m, n), start, np.float32)
    register_tile.multiply((panels(a, SHAPE32.rows), panels(b, SHAPE32.columns), None, None, None), 1, out, 0, 1)
    samples.assert_same(f"{m} {n} {k}", [""] * out.size, out.view(np.uint32), want.view(np.uint32))


def test_columns_from_a_place_on():
    rng = samples.generator("place")
    a, b = (rng.standard_normal((rows, 9)).astype(np.float32) for rows in (11, 100))
    want, out = np.zeros((11, 100), np.float32), np.full((11, 100), 7, np.float32)
    out[:, 64:] = 0
    register_tile.multiply((panels(a, SHAPE32.rows), panels(b, SHAPE32.columns), None, None, None), 1, want, 0, 1)
    register_tile.multiply((panels(a, SHAPE32.rows), panels(b[64:], SHAPE32.columns), None, None, None), 1, out, 64, 1)
    assert (out[:, :64] == 7).all()
    assert out[:, 64:].tobytes() == want[:, 64:].tobytes()


def by_blocks(a, b, scales_a, scales_b, run):
    """Sum products block by block; round each block's exact, scaled sum once to float32."""
    result = np.zeros((len(a), len(b)), np.float32)
    for i, j in np.ndindex(result.shape):
        for block in range(a.shape[1] // run):
            within = slice(block * run, (block + 1) * run)
            total = sum(int(x) * int(y) for x, y in zip(a[i, within], b[j, within], strict=True))
            exact = Fraction(total) * Fraction(2) ** int(scales_a[i, block] + scales_b[j, block])
            bits = reference.encode(exact, "float32", overflow="ieee")
            result[i, j] += np.array(bits, np.uint32).view(np.float32)
    return result


@pytest.mark.parametrize("word", ["float32", "float64"])
@pytest.mark.parametrize(("m", "n", "blocks", "run"), [(9, 33, 3, 8), (8, 16, 5, 1), (2, 3, 40, 64), (2, 2, 2, 1500)])
def test_blocks(word, m, n, blocks, run):
    rng = samples.generator("blocks", word, m, n, blocks, run)
    bits, spare = 6 if word == "float32" else 20, max(0, math.ceil(math.log2(run)) - 5)
    a, b = (rng.integers(-(1 << bits) + 1, 1 << bits, (rows, blocks * run)) >> spare for rows in (m, n))
    scales = [rng.integers(-60, 20, (rows, blocks)) for rows in (m, n)]
    # These scales make some terms overflow and some underflow. The first term would overflow if it
    # were multiplied by the scale of `a` first, but does not overflow with both scales.
    scales[0][1, 1], scales[1][:, -1] = 107, -89
    scales[0][0, 0], scales[1][:, 0] = 127, -100
    shape = SHAPE32 if word == "float32" else SHAPE64
    want = by_blocks(a, b, *scales, run)
    powers = [np.exp2(s.astype(np.float64)).astype(word) for s in scales]
    out = np.zeros((m, n), np.float32)
    register_tile.multiply(
        (
            panels(a.astype(word), shape.rows), panels(b.astype(word), shape.columns),
            panels(powers[0], shape.rows), panels(powers[1], shape.columns), None,
        ), run, out, 0, 1,
    )  # fmt: skip
    samples.assert_same(word, [""] * out.size, out.view(np.uint32), want.view(np.uint32))


def test_nan_is_canonical():
    a = np.array([[np.inf, -np.nan]], np.float32)
    out = np.zeros((1, 2), np.float32)
    b = np.array([[0, 0], [1, 1]], np.float32)
    register_tile.multiply((panels(a, SHAPE32.rows), panels(b, SHAPE32.columns), None, None, None), 1, out, 0, 1)
    assert out.view(np.uint32).tolist() == [[0x7FC00000] * 2]
