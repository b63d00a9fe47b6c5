"""Shared scales against the oracle: every rule, element and source, at every power of two and its neighbours."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mxnum import reference
from mxnum.formats import ELEMENTS, FLOATS
from mxnum.modes import ScaleRule
from mxnum.scalar.scale import make_shared_scale
from tests import samples


def magnitudes(source, element):
    """Finite magnitudes of `source` around every power of two and every threshold of a rule, and random ones."""
    src = FLOATS[source]
    rng = samples.generator("scale", source, element)
    m = src.mantissa_bits
    fields = np.arange(0, (1 << src.exponent_bits) - 1)
    if fields.size > 300:  # float64: around the range of E8M0, and a sample of what clamps
        fields = np.concatenate([np.arange(1023 - 150, 1023 + 150), rng.choice(fields, 60), [0, 1, fields[-1]]])
    k = ELEMENTS[element].mantissa_bits + 1
    top = ELEMENTS[element].max_code & ((1 << (k - 1)) - 1)
    thresholds = [0, ((1 << k) - 1) << m >> k, top << m >> (k - 1), (1 << m) - 1, 1 << (m - 1)]
    fractions = sorted({min(max(t + d, 0), (1 << m) - 1) for t in thresholds for d in (-1, 0, 1)})
    grid = (fields[:, None].astype(np.int64) << m) | np.array(fractions, np.int64)
    random = rng.integers(0, src.max_code + 1, 200, dtype=np.int64)
    subnormal = np.array([1 << b for b in range(m)], np.int64)
    return np.unique(
        np.concatenate([rng.choice(grid.ravel(), 600), subnormal, subnormal + 1, random, [0, src.max_code]])
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
    """A floating log2 gets 7,382 of these wrong."""
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
