"""Tests of terms (numbers as significand and exponent), and of the scales of an operand's rows."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

import mxnum as mx
from mxnum.engine.products.operands import Operand
from mxnum.engine.products.terms import INFINITY, NOT_A_NUMBER, NUMBER, ZERO, Term, Terms, class_of_sum
from mxnum.formats import ELEMENTS, FLOATS
from tests import samples


def operand(q):
    return Operand(q.codes, q.format.element, q.blocks, q.scales, q.offsets)


def class_of(value):
    """Return the code of a number's class (zero, finite, infinite, NaN); add 1 for a minus sign."""
    if math.isnan(value):
        return NOT_A_NUMBER
    kind = INFINITY if math.isinf(value) else NUMBER if value else ZERO
    return kind + (math.copysign(1, value) < 0)


@pytest.mark.parametrize("name", [*ELEMENTS, *FLOATS])
def test_terms_are_the_values(name):
    fmt = {**ELEMENTS, **FLOATS}[name]
    if fmt.bits <= 8:
        codes, values = np.arange(1 << fmt.bits), fmt.values()
    else:
        codes = np.concatenate([samples.special_patterns(fmt), samples.random_patterns(fmt, 300)])
        values = samples.as_floats(fmt, codes)
    term = Term.of_codes(codes, fmt)
    parts = (part.tolist() for part in (term.significands, term.exponents, term.classes))
    for m, e, found, value in zip(*parts, values, strict=True):
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


def test_rows_have_scales_of_their_own():
    rng = samples.generator("scales")
    codes = rng.integers(0, 256, (3, 6, 40), np.uint8)
    for blocks in ((1, 1, 8), (2, 4, 8), (1, 6, 16), (3, 1, 64)):
        counts = [-(-n // block) for n, block in zip(codes.shape, blocks, strict=True)]
        scales, offsets = rng.integers(0, 256, counts, np.uint8), rng.standard_normal(counts).astype(np.float16)
        q = mx.MXArray.from_parts(codes, scales, "mxint8", blocks=blocks, offsets=offsets)
        rows = operand(q).by_rows()
        assert rows.blocks == (1, 1, blocks[-1])
        assert rows.scales.shape == rows.offsets.shape == (3, 6, -(-40 // blocks[-1]))
        for place in np.ndindex(rows.scales.shape):
            block = place[0] // blocks[0], place[1] // blocks[1], place[2]
            assert (rows.scales[place], rows.offsets[place]) == (q.scales[block], q.offsets[block])
        swapped = operand(q).swapped()
        assert swapped.blocks == (blocks[0], blocks[2], blocks[1])
        assert np.array_equal(swapped.array, q.codes.swapaxes(-1, -2))


def test_ranges():
    q = mx.MXArray.from_parts(np.uint8([0x38, 0, 0x7E]), np.uint8([127]), "mxfp8_e4m3")  # 1, 0, 448
    row = operand(q).row()
    assert row.array.shape == (1, 3)
    assert row.blocks == (1, 32)
    assert Terms.of_values(row).significands.shape == (1, 1, 3)
    assert Terms.of_values(row).range == Terms.of_elements(row).range == (-3, 5)
    zeros = Operand(np.zeros((2, 3), np.float32), FLOATS["float32"])
    assert Terms.of_values(zeros).range == (0, 0)
    assert zeros.row().blocks == ()
    assert not Terms.of_values(zeros).special.any()
