"""Fast products equal the definition by integers, and are what is used."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

import mxnum as mx
from mxnum.engine import packs, panels, products
from mxnum.engine.operands import Operand
from mxnum.formats import ELEMENTS, FLOATS
from tests import samples
from tests.test_linalg import codes_at_random, floats

ORDERS = {"rows": np.ascontiguousarray, "columns": np.asfortranarray, "neither": lambda x: np.repeat(x, 2, 1)[:, ::2]}


def operand(q, order="rows"):
    return Operand(ORDERS[order](q.codes), q.format.element, q.blocks, q.scales, q.offsets)


def both(name, a, b):
    results = []
    for function in (getattr(products, name), getattr(products, f"{name}_by_definition")):
        out = np.empty((a.array.shape[0], b.array.shape[0]), np.float32)
        function(a, b, out)
        results.append(out.view(np.uint32))
    samples.assert_same(name, [""] * results[0].size, *results)
    return results[0]


def test_plans():
    """The ways of holding sums of 32 products, by how many bits these take."""
    narrow = ("e3m2", "e2m3", "e2m1", "int8", "e3m0", "int4")
    for a, b in product(ELEMENTS, ELEMENTS):
        how = panels.plan(ELEMENTS[a], ELEMENTS[b], 32)
        assert how.word == ("float32" if a in narrow and b in narrow else "float64")
        assert how.always != ("e5m2" in (a, b) and {a, b} <= {"e4m3", "e5m2"})
        assert how.if_split
    assert panels.plan(ELEMENTS["e3m2"], ELEMENTS["e3m2"], 83).word == "float32"  # 83 * 448**2 < 2**24
    assert panels.plan(ELEMENTS["e3m2"], ELEMENTS["e3m2"], 84).word == "float64"
    assert panels.plan(ELEMENTS["e5m2"], ELEMENTS["e5m2"], 36).if_split
    assert not panels.plan(ELEMENTS["e5m2"], ELEMENTS["e5m2"], 37).if_split
    wide = mx.ElementFormat("e4m3", 4, 3, 300)
    assert panels.plan(wide, wide, 1) is None
    tiny = mx.ElementFormat("e2m1", 2, 1, 140)
    assert panels.plan(tiny, tiny, 1).word == "float64"


def needed_bits(a, b, run):
    """By the numbers themselves: for each block, the bits of the largest sum that a pair of rows might make."""
    result = []
    for start in range(0, a.shape[1], run):
        sides = []
        for x in (a, b):
            lines = (np.abs(x[:, start : start + run]) * 2.0**16).astype(np.int64).tolist()
            sides.append([max(line) // min((v & -v for v in line if v), default=1) for line in lines])
        result.append(max((x * y * run).bit_length() for x in sides[0] for y in sides[1]))
    return np.array(result)


@pytest.mark.parametrize("order", ["rows", "columns"])
@pytest.mark.parametrize("pair", [("e5m2", "e5m2"), ("e5m2", "e4m3"), ("e4m3", "e5m2"), ("e5m2", "int8")])
def test_blocks_that_float64_might_not_hold_are_found(pair, order):
    """None is missed, and few are named in vain: those within the bits of a binade and of the count."""
    rng = samples.generator("wide", *pair)
    for run in (1, 7, 32):
        a, b = (mx.encode(np.exp2(rng.uniform(-16, 15, (5, 20 * run))), name) for name in pair)
        a[:, : 3 * run] = 0
        sides = [packs.Matrix.of(ORDERS[order](x)) for x in (a, b)]
        marks = panels.wide_blocks(sides[0], ELEMENTS[pair[0]], sides[1], ELEMENTS[pair[1]], run)
        marks = np.zeros(20, np.uint8) if marks is None else marks
        needed = needed_bits(*(mx.decode(x, name, dtype="float64") for x, name in zip((a, b), pair, strict=True)), run)
        assert (needed[marks == 0] <= 53).all()
        assert (needed[marks == 1] > 53 - 9).all()
        assert marks.any() == (run == 32 and "int8" not in pair) or run == 7


@pytest.mark.parametrize("pair", [("mxfp4_e2m1", "mxint8"), ("mxfp8_e4m3", "mxfp6_e3m2"), ("mxfp8_e5m2", "mxfp8_e5m2")])
@pytest.mark.parametrize(("m", "n", "k", "block"), [(150, 70, 130, 32), (9, 40, 2100, 16), (20, 20, 37, 64)])
def test_blocks(pair, m, n, k, block):
    for spread, special in ((3, 0.0), (20, 0.02), (120, 0.02)):
        a = operand(codes_at_random(pair[0], (m, k), block, spread=spread, special=special))
        for order in ORDERS:
            both(
                "by_blocks", a, operand(codes_at_random(pair[1], (n, k), block, spread=spread, special=special), order)
            )


def test_a_block_of_zeros_does_not_leave_float32():
    x = samples.generator("zeros").standard_normal((3, 64)).astype(np.float32)
    x[:, :32] = 0
    q = mx.quantize(x * 2.0**-30, "mxfp4_e2m1")
    assert (q.scales == 0).any()
    seen = []
    original = panels.tiles.multiply

    def spy(a, *rest):
        seen.append(a.dtype)
        original(a, *rest)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(panels.tiles, "multiply", spy)
        both("by_blocks", operand(q), operand(q))
        low = mx.MXArray.from_parts(q.codes, np.where(q.scales, 20, q.scales).astype(np.uint8), q.format)
        both("by_blocks", operand(low), operand(low))
    assert seen == ["float32", "float64"]


def test_scales_at_the_ends_of_what_float32_holds():
    codes = samples.generator("ends").integers(0, 256, (4, 8), dtype=np.uint8)
    for scales in ((0, 254), (254, 254), (0, 0), (1, 109), (50, 70), (180, 170), (255, 3), (60, 56), (59, 56)):
        a, b = (mx.MXArray.from_parts(codes, np.full((4, 1), s, np.uint8), "mxint8", block_size=8) for s in scales)
        both("by_blocks", operand(a), operand(b))


@pytest.mark.parametrize("name", mx.formats.names())
@pytest.mark.parametrize(("m", "n", "k", "block"), [(30, 40, 70, 32), (9, 33, 1100, 7)])
def test_in_sequence(name, m, n, k, block):
    a = codes_at_random(name, (m, k), block, spread=60, special=0.003)
    for order in ORDERS:
        both("in_sequence", operand(a), operand(codes_at_random("mxfp8_e5m2", (n, k), block), order))
    shifted = codes_at_random(name, (m, k), block, offset=True, special=0.003)
    x = floats("float64", (n, k))
    with np.errstate(all="ignore"):
        both("in_sequence", operand(shifted), Operand(x, FLOATS["float64"]))
        both("in_sequence", operand(a), Operand(np.asfortranarray(x.astype(np.float32)), FLOATS["float32"]))


def test_fast_paths_are_what_is_used(monkeypatch):
    def refuse(*_):
        raise AssertionError("by definition")

    for name in ("in_sequence_by_definition", "by_blocks_by_definition"):
        monkeypatch.setattr(products, name, refuse)
    x = samples.generator("used").standard_normal((5, 64))
    for left, right in product(mx.formats.names(), mx.formats.names()):
        a, b = mx.quantize(x, left), mx.quantize(x, right)
        assert mx.matmul(a, b.T).shape == mx.matmul(a, b.T, accumulate="sequential").shape == (5, 5)
    assert mx.matmul(x, x.T, accumulate="sequential").shape == (5, 5)


def test_without_fused_multiply_adds_the_definition_is_used(monkeypatch):
    q = codes_at_random("mxfp8_e4m3", (5, 70), 32)
    want = [mx.matmul(q, q.T, accumulate=how).tobytes() for how in ("block", "sequential")]
    monkeypatch.setattr(panels.tiles, "HAS_FMA", False)
    monkeypatch.setattr(panels.tiles, "multiply", None)
    assert [mx.matmul(q, q.T, accumulate=how).tobytes() for how in ("block", "sequential")] == want
