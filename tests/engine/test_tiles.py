"""The register-blocked product against loops over integers: edges, pieces of the summed index, three kinds of sums."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from mxnum import reference
from mxnum.engine import tiles
from mxnum.engine.panels import SPLIT
from mxnum.engine.products import sequential_loop
from tests import samples

SHAPE32, SHAPE64 = tiles.SHAPES["float32"], tiles.SHAPES["float64"]


def panels(x, width):
    """Rows of a matrix in panels, filled up with zeros."""
    count = -(-len(x) // width)
    full = np.zeros((count * width, x.shape[1]), x.dtype)
    full[: len(x)] = x
    return np.ascontiguousarray(full.reshape(count, width, -1).transpose(0, 2, 1))


def test_shapes_are_whole_vectors():
    for shape in tiles.SHAPES.values():
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
    want = np.empty((m, n), np.float32)
    sequential_loop()(a.view(np.int32), b.view(np.int32), want.view(np.uint32))
    out = np.full((m, n), 7, np.float32)
    tiles.multiply(panels(a, SHAPE32.rows), None, panels(b, SHAPE32.columns), None, None, None, 1, out, 0)
    samples.assert_same(f"{m} {n} {k}", [""] * out.size, out.view(np.uint32), want.view(np.uint32))


@pytest.mark.parametrize(("m", "n", "k"), [(1, 1, 1), (1, 70, 40), (3, 33, 1500)])
def test_rows_one_by_one(m, n, k):
    rng = samples.generator("one by one", m, n, k)
    a, b = (rng.standard_normal((rows, k)).astype(np.float32) for rows in (m, n))
    scales = [np.exp2(rng.integers(-9, 9, (rows, k))).astype(np.float32) for rows in (m, n)]
    for factors in ((None, None), (scales[0], panels(scales[1], SHAPE32.columns))):
        out, want = np.empty((m, n), np.float32), np.empty((m, n), np.float32)
        tiles.multiply(a, None, panels(b, SHAPE32.columns), *factors, None, 1, out, 0)
        padded = None if factors[0] is None else panels(scales[0], SHAPE32.rows)
        tiles.multiply(
            panels(a, SHAPE32.rows), None, panels(b, SHAPE32.columns), padded, factors[1], None, 1, want, 0
        )  # fmt: skip
        assert out.tobytes() == want.tobytes()


def test_columns_from_a_place_on():
    rng = samples.generator("place")
    a, b = (rng.standard_normal((rows, 9)).astype(np.float32) for rows in (11, 100))
    want, out = np.empty((11, 100), np.float32), np.full((11, 100), 7, np.float32)
    tiles.multiply(panels(a, SHAPE32.rows), None, panels(b, SHAPE32.columns), None, None, None, 1, want, 0)
    tiles.multiply(panels(a, SHAPE32.rows), None, panels(b[64:], SHAPE32.columns), None, None, None, 1, out, 64)
    assert (out[:, :64] == 7).all()
    assert out[:, 64:].tobytes() == want[:, 64:].tobytes()


def by_blocks(a, b, scales_a, scales_b, run):
    """acc = acc + (one rounding of the scaled exact sum), by Python integers and the oracle's rounding."""
    result = np.zeros((len(a), len(b)), np.float32)
    for i, j in np.ndindex(result.shape):
        for block in range(a.shape[1] // run):
            within = slice(block * run, (block + 1) * run)
            total = sum(int(x) * int(y) for x, y in zip(a[i, within], b[j, within], strict=True))
            exact = Fraction(total) * Fraction(2) ** int(scales_a[i, block] + scales_b[j, block])
            bits = reference.encode(exact, "float32", overflow="ieee")
            result[i, j] += np.array(bits, np.uint32).view(np.float32)
    return result


@pytest.mark.parametrize("way", ["float32", "float64", "split"])
@pytest.mark.parametrize(("m", "n", "blocks", "run"), [(9, 33, 3, 8), (8, 16, 5, 1), (2, 3, 40, 64), (2, 2, 2, 1500)])
def test_blocks(way, m, n, blocks, run):
    rng = samples.generator("blocks", way, m, n, blocks, run)
    bits_a, bits_b = {"float32": (6, 6), "float64": (20, 20), "split": (32, 31)}[way]
    spare = max(0, math.ceil(math.log2(run)) - 5)
    a = rng.integers(-(1 << bits_a) + 1, 1 << bits_a, (m, blocks * run)) >> spare
    b = rng.integers(-(1 << bits_b) + 1, 1 << bits_b, (n, blocks * run)) >> spare
    scales = [rng.integers(-60, 20, (rows, blocks)) for rows in (m, n)]
    if way != "float32":  # terms that overflow and underflow
        scales[0][0, 0], scales[1][:, -1] = 100, -150
    word, shape = ("float32", SHAPE32) if way == "float32" else ("float64", SHAPE64)
    low = wide = None
    packed_a = panels(a.astype(word), shape.rows)
    if way == "split":
        high = np.sign(a) * (np.abs(a) >> SPLIT << SPLIT)
        wide = np.arange(blocks, dtype=np.uint8) % 3  # two blocks of three are split
        bits = 53 - 31 - max(5, math.ceil(math.log2(run)))
        narrow = np.repeat(wide == 0, run)
        a[:, narrow] >>= 32 - bits
        high[:, narrow] = a[:, narrow]
        low = panels((a - high).astype(word), shape.rows)
        packed_a = panels(high.astype(word), shape.rows)
    want = by_blocks(a, b, *scales, run)
    powers = [np.exp2(s.astype(np.float64)).astype(word) for s in scales]
    out = np.empty((m, n), np.float32)
    tiles.multiply(
        packed_a, low, panels(b.astype(word), shape.columns),
        panels(powers[0], shape.rows), panels(powers[1], shape.columns), wide, run, out, 0,
    )  # fmt: skip
    samples.assert_same(way, [""] * out.size, out.view(np.uint32), want.view(np.uint32))


@pytest.mark.parametrize("sign", [1, -1])
def test_split_sums_that_float64_would_round_to_a_tie(sign):
    """2**69 + 2**45 is halfway between float32 numbers; what is left of it decides, however small."""
    one = 1 << 35
    shape = SHAPE64
    for small in (-1, 0, 1):
        # a in high and low parts: (2**34, 2**10) times (2**35, 2**35), and a last product of `small`.
        high = np.array([[one / 2, 0, 0]])
        low = np.array([[0, 1 << 10, small]], np.float64)
        b = sign * np.array([[one, one, 1]], np.float64)
        ones = np.ones((1, 1))
        out = np.empty((1, 1), np.float32)
        tiles.multiply(
            panels(high, shape.rows), panels(low, shape.rows), panels(b, shape.columns),
            panels(ones, shape.rows), panels(ones, shape.columns), np.ones(1, np.uint8), 3, out, 0,
        )  # fmt: skip
        total = Fraction(sign * (2**69 + 2**45 + small))
        assert int(out.view(np.uint32)[0, 0]) == reference.encode(total, "float32")


def test_nan_is_canonical():
    a = np.array([[np.inf, -np.nan]], np.float32)
    out = np.empty((1, 2), np.float32)
    b = np.array([[0, 0], [1, 1]], np.float32)
    tiles.multiply(panels(a, SHAPE32.rows), None, panels(b, SHAPE32.columns), None, None, None, 1, out, 0)
    assert out.view(np.uint32).tolist() == [[0x7FC00000] * 2]
