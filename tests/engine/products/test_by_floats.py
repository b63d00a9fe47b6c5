"""Tests that sums computed with float instructions equal the sums of the definition.

`test_blocks` checks every shape with every pair of formats. The memory orders of the operands and
the spreads of their scales vary from case to case.
"""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

import mxnum as mx
from mxnum.engine.products import by_definition, by_floats, exactness, integers, row_by_row
from mxnum.engine.products.operands import Operand
from mxnum.formats import FLOATS
from mxnum.products import _float32
from tests import samples
from tests.engine.products.test_terms import operand
from tests.test_products import codes_at_random, floats

ORDERS = {"rows": np.ascontiguousarray, "columns": np.asfortranarray, "neither": lambda x: np.repeat(x, 2, 1)[:, ::2]}


def laid(q, order):
    """Return an MX array as an operand whose codes lie in memory in the given order."""
    x = operand(q)
    return Operand(ORDERS[order](x.array), x.format, x.blocks, x.scales, x.offsets)


def by_both(function, definition, a, b):
    """Assert that a function and the definition give the same sums."""
    results = []
    for way in (function, definition):
        out = np.full((a.array.shape[0], b.array.shape[0]), 7, np.float32)
        way(out)
        results.append(out.view(np.uint32))
    samples.assert_same("by floats", [""] * results[0].size, *results)


def check_blocks(a, b, threads=1):
    """Check sums by blocks against the definition; return the result of `exactness.held`."""
    held = exactness.held(a, b)
    by_both(
        lambda out: by_floats.by_blocks(a, b, held, out, threads),
        lambda out: by_definition.by_blocks(a, b, out, 1),
        a,
        b,
    )
    return held


def values_of(x):
    """Return the operand's values, computed exactly in float64 and rounded once to float32."""
    if x.scales is None or x.offsets is not None:
        return _float32(x, 1)
    exponents = np.repeat(x.scales.astype(int), x.blocks[-1], -1)[:, : x.array.shape[1]] - 127
    with np.errstate(all="ignore"):
        values = np.ldexp(np.array(x.format.values())[x.array], exponents).astype(np.float32)
    return np.where(exponents == 128, np.float32(np.nan), values)


def check_sequence(a, b, threads=1):
    """Check sequential sums against the definition."""
    values = values_of(a), values_of(b)
    by_both(
        lambda out: by_floats.in_sequence(a, b, out, threads, _float32),
        lambda out: by_definition.in_sequence(*map(np.ascontiguousarray, values), out, 1),
        a,
        b,
    )


#: Shapes (m, n, k, length of blocks) of products. The shapes have whole and partial tiles and
#: blocks, several panels and chunks, a single row or column, and blocks smaller than a tile.
SHAPES = [(70, 70, 130, 32), (9, 40, 1100, 16), (20, 20, 37, 64), (5, 33, 66, 5), (1, 90, 70, 32), (90, 1, 70, 32),
          (40, 3, 64, 1), (1, 1, 130, 32), (1, 1, 37, 5), (8, 32, 8, 8)]  # fmt: skip
PAIRS = [("mxfp4_e2m1", "mxint8"), ("mxfp8_e4m3", "mxfp6_e3m2"), ("mxfp8_e5m2", "mxfp8_e5m2"),
         ("mxfp8_e5m2", "mxfp8_e4m3"), ("mxfp6_e2m3", "mxfp4_e2m1")]  # fmt: skip
#: Each case is a pair: the spread of the exponents of scales, and the share of scales that are NaN
#: or extreme. With the first two spreads, float32 can represent the product of any two scales.
SPREADS = [(3, 0.0), (60, 0.0), (120, 0.02)]


@pytest.mark.parametrize("place", range(len(SHAPES)))
def test_blocks(place, monkeypatch):
    if place % 2:  # pretend that the processor has no instructions for products of integers
        monkeypatch.setattr(integers, "instructions", lambda: "")
    (m, n, k, block), words = SHAPES[place], set()
    for turn, pair in enumerate(PAIRS):
        (spread, special), order = SPREADS[(place + turn) % 3], list(ORDERS)[(place // 3 + turn) % 3]
        a, b = (
            codes_at_random(name, (rows, k), block, spread=spread, special=special)
            for name, rows in zip(pair, (m, n), strict=True)
        )
        if spread == 3:
            a = mx.MXArray.from_parts(a.codes, np.where(a.scales == 127, 255, a.scales).astype(np.uint8), a.format,
                                      block_size=block)  # fmt: skip
        left, right = laid(a, list(ORDERS)[turn % 3]), laid(b, order)
        if exactness.held(left, right) is not None:
            words.add(check_blocks(left, right).word)
    assert "float64" in words
    assert words & {"float32", *integers.IN_WORD}


def test_blocks_of_every_kind_are_split():
    for spread, special in SPREADS:
        a = codes_at_random("mxfp8_e5m2", (20, 37), 16, spread=spread, special=special)
        b = codes_at_random("mxfp8_e4m3", (7, 37), 16, spread=spread, special=special)
        for left, right in ((a, b), (b, a), (a, a)):
            assert check_blocks(operand(left), operand(right)).step is not None


@pytest.mark.parametrize("name", mx.formats.names("e8m0"))
def test_in_sequence(name):
    for place, (m, n, k, block) in enumerate(((30, 40, 70, 32), (9, 33, 1100, 7), (1, 1, 70, 8))):
        a = codes_at_random(name, (m, k), block, spread=60, special=0.003)
        b = codes_at_random("mxfp8_e5m2", (n, k), block)
        check_sequence(operand(a), laid(b, list(ORDERS)[place]))
        check_sequence(laid(a, list(ORDERS)[2 - place]), Operand(floats("float32", (n, k)), FLOATS["float32"]))


def test_in_sequence_what_has_to_be_converted():
    shifted = codes_at_random("mxfp8_e4m3", (30, 70), 32, offset=True, special=0.003)
    wide = mx.MXArray.from_parts(
        codes_at_random("mxfp8_e4m3", (9, 70), 32).codes, np.full((9, 3), 120, np.uint8),
        mx.MXFormat(mx.ElementFormat("e4m3", 4, 3, 130), block=32),
    )  # fmt: skip
    x = Operand(floats("float64", (40, 70)), FLOATS["float64"])
    with np.errstate(all="ignore"):
        for a, b in ((operand(shifted), x), (operand(wide), operand(shifted)), (x, operand(wide))):
            check_sequence(a, b)


def test_threads_and_chunks_share_the_work(monkeypatch):
    """Check results when several threads split the work into small or large chunks."""
    monkeypatch.setattr(by_floats, "MULTIPLICATIONS_PER_THREAD", 1)
    monkeypatch.setattr(row_by_row, "PRODUCTS_PER_THREAD", 1)
    for chunk, (m, n) in product((1, 1 << 14), ((40, 100), (70, 3), (3, 70), (130, 40), (40, 40))):
        monkeypatch.setattr(by_floats, "_CHUNK", chunk)
        a, b = (codes_at_random(name, (rows, 90), 32) for name, rows in (("mxfp4_e2m1", m), ("mxfp8_e4m3", n)))
        for threads in (1, 2, 3, 8):
            check_blocks(operand(a), operand(b), threads)
        check_sequence(operand(a), operand(b), 3)
        wide = codes_at_random("mxfp8_e5m2", (m, 90), 32)
        assert check_blocks(operand(wide), operand(b), 3).step is not None


def test_fast_ways_are_what_is_used(monkeypatch):
    def refuse(*_):
        raise AssertionError("by definition")

    for name in ("in_sequence", "by_blocks"):
        monkeypatch.setattr(by_definition, name, refuse)
    x = samples.generator("used").standard_normal((5, 64)).astype(np.float32)
    operands = [codes_at_random(name, (5, 64), 32, special=0) for name in mx.formats.names("e8m0")]
    for a, b in product(operands, operands):
        assert mx.matmul(a, b.T).shape == mx.matmul(a, b.T, accumulate="sequential").shape == (5, 5)
    assert mx.matmul(x, x.T, accumulate="sequential").shape == (5, 5)


def test_without_fused_multiply_adds_the_definition_is_used(monkeypatch):
    q = codes_at_random("mxfp8_e4m3", (5, 70), 32)
    want = [mx.matmul(q, q.T, accumulate=how).tobytes() for how in ("block", "sequential")]
    monkeypatch.setattr(by_floats, "HAS_FMA", False)
    monkeypatch.setattr(by_floats, "multiply", None)
    assert [mx.matmul(q, q.T, accumulate=how).tobytes() for how in ("block", "sequential")] == want
