"""Operands: views of their parts, and values taken apart."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

import mxnum as mx
from mxnum.engine.operands import INFINITY, NOT_A_NUMBER, NUMBER, ZERO, Operand, Term, class_of_sum, narrowed
from mxnum.formats import ELEMENTS, FLOATS
from tests import samples


def operand(q):
    return Operand(q.codes, q.format.element, q.blocks, q.scales, q.offsets)


def class_of(value):
    if math.isnan(value):
        return NOT_A_NUMBER
    kind = INFINITY if math.isinf(value) else NUMBER if value else ZERO
    return kind + (math.copysign(1, value) < 0)


@pytest.mark.parametrize("name", [*ELEMENTS, *FLOATS])
def test_terms_are_the_values(name):
    fmt = {**ELEMENTS, **FLOATS}[name]
    if fmt.bits <= 16:
        codes = np.arange(1 << fmt.bits)
        values = fmt.values()
    else:
        codes = np.concatenate([samples.special_patterns(fmt), samples.random_patterns(fmt, 300)])
        values = samples.as_floats(fmt, codes)
    term = Term.of_codes(codes, fmt)
    for m, e, found, value in zip(*(part.tolist() for part in (term.significands, term.exponents, term.classes)), values, strict=True):  # fmt: skip # noqa: E501
        assert found - (math.isnan(value) and found & 1) == class_of(value)
        assert m * Fraction(2) ** e == (Fraction(value) if math.isfinite(value) else 0)
        assert m or not e


def test_classes_of_sums():
    values = [0.0, -0.0, 1.0, -1.0, 1.5, -1.5, 3.0, -2.0, 2.0**-24, math.inf, -math.inf, math.nan]
    for kind, other in (("float16", "float64"), ("float64", "float16"), ("float32", "float32")):
        a = np.repeat(np.array(values, kind), len(values))
        b = np.tile(np.array(values, other), len(values))
        terms = [Term.of_codes(x.view(f"i{x.itemsize}"), FLOATS[x.dtype.name]) for x in (a, b)]
        got = class_of_sum(*terms)
        with np.errstate(all="ignore"):
            total = a.astype(np.float64) + b.astype(np.float64)
        for x, y, found, value in zip(a, b, got.tolist(), total.tolist(), strict=True):
            known = found & ~1 if found >= NOT_A_NUMBER or found // 2 == ZERO // 2 else found
            assert known == class_of(abs(value) if value == 0 else value) & (~1 if math.isnan(value) else ~0), (x, y)


def test_scales_reach_the_rows_they_belong_to():
    x = samples.generator("scales").standard_normal((3, 6, 40))
    for blocks in ((1, 1, 8), (2, 4, 8), (1, 6, 16), (3, 1, 64)):
        q = mx.quantize(x, "mxfp8_e4m3", blocks=blocks)
        rows = operand(q).row_scales()
        assert rows.shape == (3, 6, -(-40 // blocks[-1]))
        for place in np.ndindex(rows.shape):
            assert rows[place] == q.scales[place[0] // blocks[0], place[1] // blocks[1], place[2]]
        values = operand(q).float32()
        assert np.array_equal(values, q.dequantize())
        swapped = operand(q).swapped()
        assert swapped.blocks == (blocks[0], blocks[2], blocks[1])
        assert np.array_equal(swapped.float32(), q.dequantize().swapaxes(-1, -2))


def test_rows_and_ranges():
    q = mx.quantize(np.array([1.0, 0.0, 448.0], np.float32), "mxfp8_e4m3")
    row = operand(q).row()
    assert row.array.shape == (1, 3)
    assert row.blocks == (1, 32)
    terms = row.terms()
    assert terms.significands.shape == (1, 1, 3)
    assert terms.range == (-3, 5)
    assert row.elements().range == (-3, 5)
    zeros = Operand(np.zeros((2, 3), np.float32), FLOATS["float32"])
    assert zeros.terms().range == (0, 0)
    assert zeros.row().blocks == ()
    assert not zeros.terms().special.any()


def test_narrowing_rounds_to_nearest_even():
    x = np.array([[1 + 2.0**-24, 1 + 3 * 2.0**-24], [1e300, 2.0**-150], [-(2.0**-150), np.nan]])
    got = narrowed(x, FLOATS["float64"], FLOATS["float32"])
    assert got.view(np.uint32).tolist() == [[0x3F800000, 0x3F800002], [0x7F800000, 0], [1 << 31, 0x7FC00000]]
    assert narrowed(got, FLOATS["float32"], FLOATS["float32"]) is got
    assert narrowed(got[:0], FLOATS["float32"], FLOATS["bfloat16"]).shape == (0, 2)
