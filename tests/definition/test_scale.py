"""Tests that shared scales equal the oracle's for every rule, element and source type."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mxnum import reference
from mxnum.definition.convert import make_decode, make_encode
from mxnum.definition.scale import make_shared_scale
from mxnum.formats import ELEMENTS, FLOATS
from mxnum.modes import Overflow, Rounding, ScaleRule
from tests import samples


def magnitudes(source, element):
    """Return finite magnitudes: some near powers of two, some near thresholds, some random."""
    src = FLOATS[source]
    rng = samples.generator("scale", source, element)
    m = src.mantissa_bits
    fields = np.arange(0, (1 << src.exponent_bits) - 1)
    if fields.size > 300:  # for float64: all exponents in the range of E8M0, and some beyond
        fields = np.concatenate([np.arange(1023 - 150, 1023 + 150), rng.choice(fields, 60), [0, 1, fields[-1]]])
    k = ELEMENTS[element].mantissa_bits + 1
    top = ELEMENTS[element].max_code & ((1 << (k - 1)) - 1)
    thresholds = [0, ((1 << k) - 1) << m >> k, top << m >> (k - 1), (1 << m) - 1, 1 << (m - 1)]
    fractions = sorted({min(max(t + d, 0), (1 << m) - 1) for t in thresholds for d in (-1, 0, 1)})
    grid = (fields[:, None].astype(np.int64) << m) | np.array(fractions, np.int64)
    random = rng.integers(0, src.max_code + 1, 50, dtype=np.int64)
    subnormal = np.array([1 << b for b in range(m)], np.int64)
    return np.unique(
        np.concatenate([rng.choice(grid.ravel(), 200), subnormal, subnormal + 1, random, [0, src.max_code]])
    )


@pytest.mark.parametrize("source", samples.FLOATS)
@pytest.mark.parametrize("element", samples.ELEMENTS)
def test_every_rule_matches_the_oracle(source, element):
    bits = magnitudes(source, element)
    values = samples.as_floats(FLOATS[source], bits.astype(f"i{FLOATS[source].bits // 8}"))
    for rule in ScaleRule:
        got = make_shared_scale(FLOATS[source], ELEMENTS[element], rule)(bits)
        want = [reference.shared_scale([v], element, scale_rule=rule) for v in values]
        samples.assert_same(f"{source} {element} {rule}", bits, got, want)


@given(st.integers(0, 0x7F7FFFFF), st.sampled_from(samples.ELEMENTS), st.sampled_from(list(ScaleRule)))
def test_random_float32_maxima_match_the_oracle(bits, element, rule):
    value = samples.as_floats(FLOATS["float32"], np.array([bits], np.int32))[0]
    got = make_shared_scale(FLOATS["float32"], ELEMENTS[element], rule)(bits)
    assert got == reference.shared_scale([value], element, scale_rule=rule), f"{bits:#x} {element} {rule}"


@pytest.mark.parametrize("element", samples.ELEMENTS)
def test_the_value_just_below_a_power_of_two_keeps_the_lower_exponent(element):
    """Check the scales of numbers just below powers of two.

    A log2 in float32 would give an exponent that is too large for 7,382 such numbers.
    """
    fmt = ELEMENTS[element]
    floor = make_shared_scale(FLOATS["float32"], fmt, ScaleRule.FLOOR)
    for field in range(1, 255):
        expected = min(max(field - 1 - fmt.emax, 0), 254)
        assert floor((field << 23) - 1) == (expected if field > 1 else 0)
        assert floor(field << 23) == min(max(field - fmt.emax, 0), 254)


@pytest.mark.parametrize("element", samples.ELEMENTS)
def test_rceil_is_the_least_scale_that_holds_the_maximum(element):
    fmt = ELEMENTS[element]
    rceil = make_shared_scale(FLOATS["float64"], fmt, ScaleRule.RCEIL)
    largest = Fraction(fmt.max)
    for x in (1.0, 1.75, math.nextafter(1.75, 2), 1.984375, 1.99, 448.0, 449.0, 3.5e-5, 7.0, 7.5, 7.6, 1e30):
        s = rceil(int(np.float64(x).view(np.int64))) - 127
        assert largest * Fraction(2) ** s >= Fraction(x) > largest * Fraction(2) ** (s - 1)


def test_zero_and_extremes_clamp():
    for rule in ScaleRule:
        f = make_shared_scale(FLOATS["float64"], ELEMENTS["int8"], rule)
        assert f(0) == 0
        assert f(1) == 0
        assert f(FLOATS["float64"].max_code) == 254


IDEMPOTENT = [
    (element, rule, rounding)
    for element in ELEMENTS
    for rule in (ScaleRule.FLOOR, ScaleRule.CEIL, ScaleRule.EVEN, ScaleRule.RCEIL)
    for rounding in Rounding
    if (element, rule) != ("e4m3", "even") or rounding in ("rne", "rna")
]


def quantized_once_and_twice(source, element, rule, rounding, overflow, x, random):
    """Return the values of rows that are quantized once, and of rows that are quantized twice.

    Both results are bit patterns. The input must not contain NaN.
    """
    float_type, target = FLOATS[source], ELEMENTS[element]
    encode, decode = make_encode(float_type, target, rounding, overflow), make_decode(target, float_type)
    shared_scale, magnitude = make_shared_scale(float_type, target, rule), (1 << (float_type.bits - 1)) - 1
    found = [x]
    for _ in range(2):
        bits = found[-1] & magnitude
        amax = np.where(bits <= float_type.max_code, bits, 0).max(axis=1, keepdims=True)
        scale = shared_scale(amax)
        found.append(decode(encode(found[-1], scale, random), scale) & (2 * magnitude + 1))
    return found[1:]


@pytest.mark.parametrize("source", ["float16", "bfloat16"])
def test_quantizing_twice_is_quantizing_once(source):
    """Check that a second quantization changes nothing for 16-bit types, subnormals included.

    The theorems (idempotent/...) cover float32 and float64.
    """
    # With the scale rule `even`, E4M3 is checked only in rounding to nearest. In other modes, a
    # second quantization can change E4M3 values.
    rng = np.random.default_rng(5)
    float_type = FLOATS[source]
    magnitudes = np.arange(1, float_type.max_code + 1)[:, None]
    others = np.maximum(magnitudes - rng.integers(0, 5 << float_type.mantissa_bits, (len(magnitudes), 3)), 0)
    x = np.hstack([magnitudes, others]) | rng.integers(0, 2, (len(magnitudes), 4)) << (float_type.bits - 1)
    random = rng.integers(0, 1 << 30, x.shape)
    for first, (element, rule, rounding) in enumerate(IDEMPOTENT):
        some = slice(first % 8, None, 8)
        once, twice = quantized_once_and_twice(
            source, element, rule, rounding, Overflow.SATURATE, x[some], random[some]
        )
        finite = ((once & ~(1 << (float_type.bits - 1))) <= float_type.max_code).all(axis=1)
        assert finite.mean() > 0.9
        assert (once == twice)[finite].all(), (element, rule, rounding)


@pytest.mark.parametrize(
    ("element", "rule", "rounding", "overflow", "x"),
    [
        ("e4m3", "even", "rtz", "saturate", [250.0]),
        ("e4m3", "floor", "rne", "ieee", [500.0, 240.0, 100.0]),
        ("e5m2", "ceil", "rne", "saturate", [np.inf, 1.0, 2.0**-31]),
        # 447 is quantized to 448, and for 448 half_up gives a scale twice as large.
        ("e4m3", "half_up", "rne", "saturate", [447.0, 2.0**-9]),
        ("e2m1", "floor_plus_one", "rne", "saturate", [7.9, 1.0]),  # quantized once: 8 and 1; twice: 8 and 0
    ],
)
def test_where_it_is_not(element, rule, rounding, overflow, x):
    bits = np.array([x], np.float32).view(np.int32).astype(np.int64)
    modes = ScaleRule(rule), Rounding(rounding), Overflow(overflow)
    once, twice = quantized_once_and_twice("float32", element, *modes, bits, 0)
    assert (once != twice).any()
