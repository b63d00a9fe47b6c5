"""Tests of the choice of a number type that holds the sums of blocks exactly."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

import mxnum as mx
from mxnum.engine.products import exactness, integers
from mxnum.engine.products.exactness import Held
from mxnum.formats import ELEMENTS
from tests import samples
from tests.engine.products.test_terms import operand
from tests.test_products import codes_at_random

#: Pairs of a wide and a narrow element format. AVX2 can multiply them as bytes, because sums of 32
#: products stay below 2**15.
AVX2_BYTES = [{"e2m3", "e2m1"}, {"e2m3", "int4"}, {"e3m0", "e2m1"}, {"e3m0", "int4"}]


def test_plans():
    """Check the number type that holds sums of 32 products, for each pair of elements."""
    narrow = ("e3m2", "e2m3", "e2m1", "int8", "e3m0", "int4")
    for a, b in product(ELEMENTS, ELEMENTS):
        how = exactness.exactness_of(ELEMENTS[a], ELEMENTS[b], 32)
        assert how.word == ("float32" if a in narrow and b in narrow else "float64")
        for instructions, wide in (("vnni", ("e3m2",)), ("avx2", ("e3m2", "e2m3", "int8", "e3m0"))):
            word = exactness.exactness_of(ELEMENTS[a], ELEMENTS[b], 32, instructions).word
            is_wide = bool({a, b} & set(wide)) and {a, b} not in AVX2_BYTES * (instructions == "avx2")
            assert word == ("float64" if how.word == "float64" else "int16" if is_wide else "int8")
        assert how.always != ("e5m2" in (a, b) and {a, b} <= {"e4m3", "e5m2"})
        assert how.if_split
    e3m2, e5m2 = ELEMENTS["e3m2"], ELEMENTS["e5m2"]
    assert exactness.exactness_of(e3m2, e3m2, 83).word == "float32"  # 83 * 448**2 < 2**24
    assert exactness.exactness_of(e3m2, e3m2, 84).word == "float64"
    assert exactness.exactness_of(e5m2, e5m2, 36).if_split
    assert not exactness.exactness_of(e5m2, e5m2, 37).if_split
    tiny, small = (mx.ElementFormat("e2m1", 2, 1, bias) for bias in (140, 90))
    assert exactness.exactness_of(tiny, tiny, 1) is None
    assert exactness.exactness_of(small, small, 1).word == "float64"


def needed_bits(a, b, run):
    """Return, for each block, how many bits the largest possible sum of its products needs."""
    result = []
    for start in range(0, a.shape[1], run):
        sides = []
        for x in (a, b):
            block = (np.abs(x[:, start : start + run]) * 2.0**16).astype(np.int64).ravel().tolist()
            sides.append(max(block) // min((v & -v for v in block if v), default=1))
        result.append((sides[0] * sides[1] * run).bit_length())
    return np.array(result)


@pytest.mark.parametrize("order", [np.ascontiguousarray, np.asfortranarray])
@pytest.mark.parametrize("pair", [("e5m2", "e5m2"), ("e5m2", "e4m3"), ("e4m3", "e5m2"), ("e5m2", "int8")])
def test_blocks_that_float64_might_not_hold_are_found(pair, order):
    """Check that `widths` finds every block whose sums need more than 53 bits.

    `widths` must not report a block whose sums need fewer than 45 bits.
    """
    rng = samples.generator("wide", *pair)
    for run in (1, 7, 32):
        codes = [rng.integers(0, ELEMENTS[n].max_code + 1, (5, 20 * run - run // 2), np.uint8) for n in pair]
        codes[0][:, : 3 * run] = 0
        values = [np.array(ELEMENTS[n].values())[x] for n, x in zip(pair, codes, strict=True)]
        codes = [order(x) for x in codes]
        sides = [mx.MXArray.from_parts(x, np.full((5, 20), 127, np.uint8), mx.MXFormat(ELEMENTS[n], block=run))
                 for x, n in zip(codes, pair, strict=True)]  # fmt: skip
        a, b = (operand(x) for x in sides)
        wide = exactness.widths(a, run) + exactness.widths(b, run) > exactness.bits_to_spare(run)
        needed = needed_bits(*values, run)
        assert (needed[~wide] <= 53).all()
        assert (needed[wide] > 53 - 9).all()
        assert wide.any() == ("int8" not in pair) or run < 32
        assert exactness.may_be_wide(a, b, run) == wide.any()


def held(a, b):
    return exactness.held(operand(a), operand(b))


@pytest.mark.parametrize(
    ("name", "instructions", "run", "word", "beyond"),
    [
        ("int8", "vnni", 1024, "int8", "float64"),  # 1024 products of up to 128**2 sum to at most 2**24.
        ("int8", "avx2", 1024, "int16", "float64"),
        ("e2m3", "vnni", 4660, "int8", "float64"),  # 4660 products of up to 60**2 sum to less than 2**24.
        ("e3m2", "vnni", 82, "int16", "float64"),  # 82 products of up to 448**2 sum to less than 2**24.
        ("e2m1", "avx2", 224, "int8", "int16"),  # 224 products of up to 12**2 sum to less than 2**15.
        ("e2m1", "vnni", 116508, "int8", "float64"),
    ],
)
def test_the_longest_blocks_of_integers(name, instructions, run, word, beyond):
    element = ELEMENTS[name]
    step = 2 if word == "int16" else 4
    assert exactness.exactness_of(element, element, run, instructions).word == word
    assert exactness.exactness_of(element, element, run + step, instructions).word == beyond
    assert exactness.exactness_of(element, element, run - 1, instructions).word == "float32"


@pytest.mark.parametrize("instructions", ["vnni", "avx2"])
def test_integers_are_words_of_whole_blocks(instructions):
    e2m1, e5m2 = ELEMENTS["e2m1"], ELEMENTS["e5m2"]
    words = [exactness.exactness_of(e2m1, e2m1, run, instructions).word for run in (1, 2, 3, 4, 6, 8)]
    assert words == ["float32", "int16", "float32", "int8", "int16", "int8"]
    assert exactness.exactness_of(e2m1, e5m2, 32, instructions).word == "float64"
    made = mx.ElementFormat("e3m3", 3, 3, 3)  # codes of 7 bits cannot be decoded in registers
    assert exactness.exactness_of(made, made, 8, instructions).word == "float32"
    single = mx.MXArray.from_parts(
        np.zeros((3, 37), np.uint8), np.full((3, 1), 127, np.uint8), "mxfp4_e2m1", block_size=64
    )
    assert exactness.run_of(operand(single)) == 40


def test_integers_under_scales_at_the_ends(monkeypatch):
    """Check that integers are used only if float32 holds the smallest nonzero sum after scaling."""
    codes = np.full((4, 8), 1, np.uint8)
    for pair, word in (((117, 0), "int8"), ((116, 0), "float64"), ((254, 139), "int8"), ((254, 140), "float64")):
        monkeypatch.setattr(integers, "instructions", lambda: "vnni")
        a, b = (mx.MXArray.from_parts(codes, np.full((4, 1), s, np.uint8), "mxint8", block_size=8) for s in pair)
        assert held(a, b) == Held(word)


def test_a_block_of_zeros_does_not_leave_float32(monkeypatch):
    monkeypatch.setattr(integers, "instructions", lambda: "")
    codes = samples.generator("zeros").integers(1, 8, (3, 64), np.uint8)
    codes[:, :32] = 0
    q = mx.MXArray.from_parts(codes, np.uint8([[0, 97]] * 3), "mxfp4_e2m1")
    assert held(q, q) == Held("float32")
    low = mx.MXArray.from_parts(q.codes, np.where(q.scales, 20, q.scales).astype(np.uint8), q.format)
    assert held(low, low) == Held("float64")
    signs = mx.MXArray.from_parts(np.full((2, 32), 8, np.uint8), np.zeros((2, 1), np.uint8), q.format)
    assert held(signs, signs) == Held("float32")  # zeros below zero
    high = mx.MXArray.from_parts(signs.codes, np.full((2, 1), 254, np.uint8), q.format)
    assert held(high, high) == Held("float64")  # the product of the scales is infinite in float32


@pytest.mark.parametrize(
    ("scales", "word"),
    [((0, 254), 32), ((254, 254), 64), ((0, 0), 64), ((50, 55), 32), ((50, 54), 64), ((254, 127), 32),
     ((254, 128), 64), ((255, 3), 32), ((255, 255), 32)],
)  # fmt: skip
def test_scales_at_the_ends_of_what_float32_holds(scales, word, monkeypatch):
    monkeypatch.setattr(integers, "instructions", lambda: "")
    codes = samples.generator("ends").integers(1, 128, (4, 8), dtype=np.uint8)
    a, b = (mx.MXArray.from_parts(codes, np.full((4, 1), s, np.uint8), "mxint8", block_size=8) for s in scales)
    assert held(a, b) == Held(f"float{word}")


def test_what_is_split_and_what_is_not_held():
    wide = codes_at_random("mxfp8_e5m2", (9, 40), 8, spread=3)
    assert held(wide, wide) == Held("float64", 2.0 ** (16 - 16))
    narrow = mx.MXArray.from_parts(wide.codes % 64 | 32, wide.scales, wide.format, block_size=8)
    assert held(narrow, narrow) == Held("float64")
    long = mx.MXArray.from_parts(wide.codes, wide.scales[:, :1], wide.format, block_size=40)
    assert held(long, long) is None
    assert held(wide[:, :0], wide[:, :0]) is None


def beyond_float64(count):
    """Return two operands, each with `count` equal rows of 63 E5M2 codes.

    The dot product of a row of one operand and a row of the other is 2**53 + 2**29 + 1 units of
    2**-32. The values of the codes are 0, or between 1 and 7 * 2**21 units of 2**-16.
    """
    units = np.array(ELEMENTS["e5m2"].values())[:124] * 2.0**16
    pairs = [(7 << 21, 7 << 21)] * 41 + [(7 << 21, 5 << 21), (1 << 21, 4 << 21), (1 << 14, 1 << 15), (1, 1)]
    assert sum(a * b for a, b in pairs) == (1 << 53) + (1 << 29) + 1
    pairs += [(0, 0)] * (63 - len(pairs))
    return [np.uint8([[units.tolist().index(pair[side]) for pair in pairs]] * count) for side in (0, 1)]


def test_a_sum_just_beyond_float64():
    """Check a sum one unit above a float32 tie: float64 would round the sum to the tie."""
    a, b = (
        mx.MXArray.from_parts(codes, np.full((4, 1), 127, np.uint8), "mxfp8_e5m2", block_size=64)
        for codes in beyond_float64(4)
    )
    assert (exactness.widths(operand(a), 64) + exactness.widths(operand(b), 64)).tolist() == [48]
    assert held(a, b) is None
    assert (mx.matmul(a, b.T) == np.float32(2.0**21 + 2.0**-2)).all()
    halved = mx.MXArray.from_parts(np.where(a.codes > 64, a.codes - 4, a.codes), a.scales, a.format, block_size=64)
    assert held(halved, b) == Held("float64")  # a sum of 64 products of 47 bits fits 53 bits
