"""Tests that asymmetric scaling gives the results of exact rational arithmetic."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from mxnum import reference
from mxnum.definition.offset import (
    difference_format,
    make_decode_offset,
    make_difference,
    make_from_ordered,
    make_half_range_scale,
    make_midpoint,
    make_to_ordered,
)
from mxnum.formats import ELEMENTS, FLOATS
from mxnum.modes import ScaleRule
from tests import samples


def finite_bits(data, source, label):
    """Draw the bits of a finite number; about half of the draws have exponents near float16's."""
    fmt = FLOATS[source]
    bits = data.draw(st.integers(-(1 << (fmt.bits - 1)), (1 << (fmt.bits - 1)) - 1), label)
    if data.draw(st.booleans(), f"{label} near float16"):
        field = data.draw(st.integers(-26, 17), "exponent") + fmt.bias
        field = min(max(field, 0), (1 << fmt.exponent_bits) - 2)
        mask = ((1 << fmt.exponent_bits) - 1) << fmt.mantissa_bits
        bits = (bits & ~mask) | (field << fmt.mantissa_bits)
    value = samples.as_floats(fmt, np.array([bits], f"i{fmt.bits // 8}"))[0]
    assume(math.isfinite(value))
    return bits, value


@given(st.data(), st.sampled_from(samples.FLOATS))
def test_midpoint_is_one_rounding_of_the_exact_mean(data, source):
    a, x = finite_bits(data, source, "largest")
    b, y = finite_bits(data, source, "smallest")
    got = make_midpoint(FLOATS[source])(a, b) & 0xFFFF
    exact = (Fraction(x) + Fraction(y)) / 2
    if exact:
        assert got == reference.encode(exact, "float16", rounding="rne", overflow="saturate")
    else:
        assert got & 0x7FFF == 0


@given(st.data(), st.sampled_from(samples.FLOATS), st.integers(0, 0xFFFF))
def test_difference_is_one_rounding_of_the_exact_difference(data, source, offset):
    a, x = finite_bits(data, source, "x")
    assume(offset & 0x7C00 != 0x7C00)
    o = FLOATS["float16"].value(offset)
    target = difference_format(FLOATS[source])
    got = make_difference(FLOATS[source])(a, offset) & ((1 << target.bits) - 1)
    exact = Fraction(x) - Fraction(o)
    if exact:
        assert got == reference.encode(exact, target, rounding="rne", overflow="ieee")
    else:
        both_negative = math.copysign(1, x) == -1 and math.copysign(1, -o) == -1
        assert got == (1 << (target.bits - 1) if both_negative else 0)


@given(st.data(), st.sampled_from(samples.FLOATS), st.sampled_from(samples.ELEMENTS), st.sampled_from(list(ScaleRule)))
def test_half_range_scale_is_exact(data, source, element, rule):
    a, x = finite_bits(data, source, "largest")
    b, y = finite_bits(data, source, "smallest")
    assume(x >= y)
    got = make_half_range_scale(FLOATS[source], ELEMENTS[element], rule)(a, b)
    assert got == reference.shared_scale([(Fraction(x) - Fraction(y)) / 2], element, scale_rule=rule)


@given(
    st.sampled_from(samples.ELEMENTS), st.sampled_from(samples.FLOATS), st.data(), st.integers(0, 255),
    st.integers(0, 0xFFFF),
)  # fmt: skip
def test_decoding_with_an_offset_rounds_once(element, target, data, scale, offset):
    fmt, tgt = ELEMENTS[element], FLOATS[target]
    code = data.draw(st.integers(0, (1 << fmt.bits) - 1), "code")
    if data.draw(st.booleans(), "scale near the offset"):
        scale = data.draw(st.integers(95, 145), "near scale")
    got = make_decode_offset(fmt, tgt)(code, scale, offset) & ((1 << tgt.bits) - 1)
    value, o = fmt.value(code), FLOATS["float16"].value(offset)
    if scale == 255 or math.isnan(value) or math.isnan(o) or (math.isinf(value) and o == -value):
        assert got == tgt.nan_code
    elif math.isinf(value) or math.isinf(o):
        sign = (value if math.isinf(value) else o) < 0
        assert got == tgt.infinity_code | (sign << (tgt.bits - 1))
    else:
        exact = Fraction(value) * Fraction(2) ** (scale - 127) + Fraction(o)
        if exact:
            assert got == reference.encode(exact, tgt, rounding="rne", overflow="ieee")
        else:
            both_negative = math.copysign(1, value) == math.copysign(1, o) == -1
            assert got == (1 << (tgt.bits - 1) if both_negative else 0)


@pytest.mark.parametrize("source", samples.FLOATS)
def test_ordered_integers_order_as_the_numbers_do(source):
    fmt = FLOATS[source]
    bits = np.concatenate([samples.special_patterns(fmt), samples.random_patterns(fmt, 200, "ordered")])
    values = np.array(samples.as_floats(fmt, bits))
    bits, values = bits[~np.isnan(values)], values[~np.isnan(values)]
    ordered = make_to_ordered(fmt)(bits.astype(np.int64))
    assert np.array_equal(np.argsort(values, kind="stable"), np.argsort(ordered, kind="stable"))
    back = make_from_ordered(fmt)(ordered)
    keep = values != 0
    assert np.array_equal(back[keep], bits.astype(np.int64)[keep])
    assert (back[~keep] == 0).all()
