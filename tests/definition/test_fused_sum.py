"""Tests of the steps of a fused sum: splitting numbers, aligning terms, and rounding."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from mxnum.definition.fused_sum import INVALID, MINUS, PLUS, align, make_add, make_finish, make_parts
from mxnum.formats import ELEMENTS, FLOATS
from mxnum.modes import Rounding
from mxnum.reference.numbers import decode_exact
from mxnum.units.unit import ZERO_EXPONENT


@pytest.mark.parametrize("name", ["e4m3", "e5m2", "e3m2", "e2m3", "e2m1", "float16"])
def test_parts_are_the_value_of_every_code(name):
    element = {**ELEMENTS, **FLOATS}[name]
    codes = np.arange(1 << element.bits)
    columns = [np.broadcast_to(part, codes.shape).tolist() for part in make_parts(element)(codes)]
    for code, sign, exponent, significand, kind in zip(codes.tolist(), *columns, strict=True):
        value = decode_exact(code, element)
        assert (sign, kind) == (value.negative, ["finite", "inf", "nan"].index(value.kind))
        if value.kind == "finite":
            assert Fraction(significand) * Fraction(2) ** (exponent - element.mantissa_bits) == value.magnitude
            assert significand < 2 << element.mantissa_bits
            assert exponent >= element.emin if significand else exponent == ZERO_EXPONENT


def test_alignment_truncates_magnitudes():
    # For the four values of `largest`, the number 11 * 2**-3 is 5.5, 2.75, 0.69 and almost 0 in
    # units of 2**(largest - 2).
    assert [align(0, 0, 11, largest, 0, 1) for largest in (0, 1, 3, 99)] == [5, 2, 0, 0]
    assert [align(1, 0, 11, largest, 0, 1) for largest in (0, 1, 3, 99)] == [-5, -2, 0, 0]
    assert align(1, 0, 11, 0, 4, 0) == -176


def test_results_at_the_ends():
    toward_zero = make_finish(FLOATS["float32"], Rounding.RTZ)
    assert toward_zero(0, 5, 23, 0, 0) == toward_zero(-1, -200, 23, 0, 0) == 0
    assert toward_zero(-1, -126, 23, 0, 0) == 0x80000001
    assert toward_zero((1 << 24) - 1, 127 - 23 + 23, 23, 0, 0) == 0x7F7FFFFF
    assert toward_zero(1 << 24, 127, 23, 0, 0) == 0x7F800000
    assert toward_zero(-((1 << 24) - 1), 0, 23, 10, 0) == 0xBFFFFC00
    states = [toward_zero(1, 0, 23, 0, state) for state in (PLUS, MINUS, INVALID)]
    assert states == [0x7F800000, 0xFF800000, 0x7FFFFFFF]
    nearest = make_finish(FLOATS["float16"], Rounding.RNE)
    assert [nearest(x, 0, 11, 0, 0) for x in (2 * 1024 + 1, 2 * 1025 + 1, 2 * 1024 + 3)] == [0x3C00, 0x3C02, 0x3C02]
    assert nearest(65520, 11, 11, 0, 0) == 0x7C00
    assert nearest(65519, 11, 11, 0, 0) == 0x7BFF


@pytest.mark.parametrize("name", ["float16", "float32"])
def test_accumulators_add_as_floats_do(name):
    rng, fmt = np.random.default_rng(4), FLOATS[name]
    bits = rng.integers(0, 1 << fmt.bits, (2, 2000))
    a, b = bits.astype(f"u{fmt.bits // 8}").view(name)
    with np.errstate(all="ignore"):
        want = a + b
    got = np.asarray(make_add(fmt)(*bits)).astype(f"u{fmt.bits // 8}").view(name)
    assert np.array_equal(np.isnan(got), np.isnan(want))
    held = ~np.isnan(got)
    assert got[held].tobytes() == want[held].tobytes()
