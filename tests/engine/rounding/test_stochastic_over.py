"""Tests that stochastic rounding by integer products agrees with the definition at thresholds."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from mxnum.definition.float_scale import factor_width, make_encode_over, make_factor
from mxnum.engine.rounding import stochastic_over
from mxnum.formats import ELEMENTS, FLOATS, SCALES
from mxnum.modes import Overflow, Rounding
from tests.samples import generator

FLOAT32, E4M3 = FLOATS["float32"], SCALES["e4m3"]
LAST = (1 << 30) - 1


def factor_of(rng):
    """Return a random factor twice: as (exponent, significand, kind) and as a fraction."""
    tensor = np.float32(rng.random() * 2.0 ** rng.integers(-140, 100) + 1e-44)
    exponent, significand, kind = make_factor(E4M3)(int(rng.integers(1, 0x7F)), int(tensor.view(np.int32)))
    number = Fraction(significand) * Fraction(2) ** (exponent - factor_width(E4M3))
    return (exponent, significand, kind), number


def number_near(rng, element, factor):
    """Return abs(factor * x), where x is random, a power of two, or near an element's value."""
    value = element.value(int(rng.integers(0, element.max_code + 1)))
    x = (8 * rng.random(), value * (1 + rng.integers(-2, 3) * 2.0**-24), 2.0 ** rng.integers(-34, 3),
         value * (1 - rng.choice([1, 3, 5]) * 2.0 ** -rng.integers(1, 24)))[rng.integers(4)]  # fmt: skip
    with np.errstate(all="ignore"):
        return abs(np.float32(float(factor) * x))


@pytest.mark.parametrize("name", ["e2m1", "e3m0"])
def test_is_the_definition(name):
    rng, element, ups = generator(name), ELEMENTS[name], 0
    goes_up = stochastic_over.make_goes_up(element)
    encode, toward_zero = (
        make_encode_over(FLOAT32, element, E4M3, mode, Overflow.SATURATE) for mode in (Rounding.SR, Rounding.RTZ)
    )
    for _ in range(4000):
        over, factor = factor_of(rng)
        x = number_near(rng, element, factor)
        if not np.isfinite(x):
            continue
        bits = int(x.view(np.int32))
        below = toward_zero(bits, *over, 0)
        if below == element.max_code:
            continue
        low, high = Fraction(element.value(below)), Fraction(element.value(below + 1))
        first = (1 << 30) - int((Fraction(float(x)) / factor - low) / (high - low) * (1 << 30))
        wide = int(np.float64(float(factor)).view(np.int64))
        digits, exponent = (wide >> 25) & ((1 << 27) - 1) | (1 << 27), (wide >> 52) - 1023
        assert Fraction(digits) * Fraction(2) ** (exponent - 27) == factor
        for random in {min(LAST, max(0, r)) for r in (first - 1, first, first + 1, 0, LAST, int(rng.integers(LAST)))}:
            up = goes_up(bits, below, digits, exponent, random)
            assert below + up == encode(bits, *over, random), (x, factor, random)
            ups += up
    assert ups > 1000
