"""Tests of the number systems of the analysis: intervals contain the true value and are narrow."""

from __future__ import annotations

from fractions import Fraction

import mpmath
import pytest

from mxnum.analysis.arithmetics import ArbArithmetic, Enclosure, IntervalArithmetic


def arithmetics():
    """Return the two number systems that compute with intervals."""
    pytest.importorskip("flint")
    return ArbArithmetic(120), IntervalArithmetic(120)


def exact(value):
    """Return a high-precision number as a rational."""
    return Fraction(*map(int, mpmath.libmp.to_rational(value._mpf_)))


@pytest.mark.parametrize("x", ["1/3", "-1/3", "5/2", "-7", "20", "1/1000000", "0"])
def test_erf_and_the_elementary_functions(x):
    x = Fraction(x)
    for arithmetic in arithmetics():
        with arithmetic.precision(), mpmath.workdps(60):
            number, high = arithmetic.number(x), mpmath.mpf(x.numerator) / x.denominator
            pairs = [(arithmetic.erf(number), mpmath.erf(high)), (arithmetic.exp(number), mpmath.exp(high))]
            pairs.append((arithmetic.pi(), mpmath.pi()))
            if x > 0:
                pairs += [(arithmetic.log(number), mpmath.log(high)), (arithmetic.sqrt(number), mpmath.sqrt(high))]
            for found, want in pairs:
                hull = arithmetic.hull(found, arithmetic.number(Fraction(0)))
                assert exact(want) in hull
                assert hull.radius < 1e-25 * max(1, abs(float(want)))


@pytest.mark.parametrize(("mu", "sigma", "low", "high"), [("115/128", "3/64", "7/8", "1"), ("1", "3/8", "1/4", "3/2")])
def test_the_integral_of_density_over_x(mu, sigma, low, high):
    mu, sigma, low, high = map(Fraction, (mu, sigma, low, high))
    with mpmath.workdps(40):
        m, s = mpmath.mpf(mu.numerator) / mu.denominator, mpmath.mpf(sigma.numerator) / sigma.denominator
        want = mpmath.quad(lambda x: mpmath.npdf(x, m, s) / x, [float(low), float((low + high) / 2), float(high)])
    for sign in (1, -1):  # mirroring the distribution changes the sign of the integral
        for arithmetic in arithmetics():
            with arithmetic.precision():
                ends = (low, high) if sign > 0 else (-high, -low)
                found = arithmetic.inverse_normal(arithmetic.number(sign * mu), arithmetic.number(sigma), *ends)
                hull = arithmetic.hull(found, arithmetic.number(Fraction(0)))
                assert abs(sign * want - hull.midpoint) < 1e-15
                assert hull.radius < 1e-20


def test_powers_of_a_ball_around_zero_stay_finite():
    for arithmetic in arithmetics():
        with arithmetic.precision():
            ball = arithmetic.number(Fraction(1, 3)) - arithmetic.number(Fraction(1, 3))
            hull = arithmetic.hull(arithmetic.power(ball, 31), arithmetic.number(Fraction(0)))
            assert Fraction(0) in hull
            assert hull.radius < 1e-30


def test_precision_is_restored():
    flint = pytest.importorskip("flint")
    before = flint.ctx.prec
    with ArbArithmetic(777).precision():
        assert flint.ctx.prec == 777
    assert flint.ctx.prec == before


def test_enclosures_test_membership_and_print_radius():
    enclosure = Enclosure(Fraction(1, 4), Fraction(3, 4))
    assert 0.5 in enclosure
    assert Fraction(3, 4) in enclosure
    assert 0.76 not in enclosure
    assert str(enclosure) == "0.5 +/- 0.25"
