"""Tests that formulas agree in ball arithmetic, interval arithmetic, sympy and floats."""

from __future__ import annotations

from fractions import Fraction

import mpmath
import numpy as np
import pytest
import sympy

from mxnum.analysis.arithmetics import SympyArithmetic
from mxnum.analysis.closed_form import Cut, Normal, Uniform, pieces
from mxnum.analysis.cluster import Model
from mxnum.analysis.gamma import block_error, gamma_bias
from mxnum.formats import ELEMENTS
from mxnum.modes import Rounding, ScaleRule

CASES = [
    ("mxfp8_e4m3", "floor", "rne", 0.93, 0.01, 32),
    ("mxfp8_e4m3", "even", "rna", -0.96, 0.01, 32),
    ("mxfp8_e4m3", "floor", "rne", 0.0, 1.0, 32),
    ("mxfp8_e5m2", "floor", "rtz", 0.9, 0.2, 32),
    ("mxfp6_e2m3", "floor", "rto", 0.97, 0.01, 8),
    ("mxfp4_e2m1", "even", "rtp", 0.7, 0.05, 4),
    ("mxfp4_e2m1", "floor", "sr", 0.9, 0.05, 32),
    ("mxfp4_e3m0", "ceil", "rtn", 1.0, 0.02, 2),
    ("mxint4", "rceil", "rne", 0.88, 0.01, 1),
    # Regression: integrals near zero lost digits if the mean of the numbers was far from zero. With
    # one number in each block, numbers near zero get scales down to 2**-70.
    ("mxint4", "floor", "rtz", -2.961437942959335, 2.9132683156496277, 1),
    ("mxfp4_e2m1", "even", "rne", 0.3, 0.5, 2),
]


@pytest.mark.parametrize("law", ["normal", "uniform"])
def test_truncated_moments_equal_quadrature(law):
    arithmetic = SympyArithmetic()
    mu, sigma, low, high = Fraction(9, 10), Fraction(1, 20), Fraction(4, 5), Fraction(1)
    if law == "normal":
        cluster = Normal(arithmetic, arithmetic.number(mu), arithmetic.number(sigma))
        density = lambda x: mpmath.npdf(x, 0.9, 0.05)  # noqa: E731
    else:
        cluster = Uniform(arithmetic, low, high)
        density = lambda x: mpmath.mpf(5)  # noqa: E731
    a, b = Fraction(17, 20), Fraction(24, 25)
    for power, found in (
        (0, cluster.mass),
        (1, cluster.first),
        (2, cluster.second),
        (-1, cluster.inverse),
        (-2, cluster.inverse_square),
    ):
        want = mpmath.quad(lambda x, p=power: x**p * density(x), [0.85, 0.9, 0.96])
        assert abs(sympy.N(found(a, b), 20) - want) < 1e-14
    second, fourth = (
        mpmath.quad(
            lambda x, p=p: x**p * density(x), np.linspace(0.8, 1, 3) if law == "uniform" else np.linspace(0.4, 1.4, 11)
        )
        for p in (2, 4)
    )
    assert abs(sympy.N(cluster.second_moment()) - second) < 1e-12
    assert abs(sympy.N(cluster.fourth_moment()) - fourth) < 1e-12


def test_pieces_cover_the_interval_and_hold_the_moments_of_q():
    model = Model(ELEMENTS["e2m1"], ScaleRule.FLOOR, Rounding.SR, 32, "normal", Fraction(3, 4))
    scale = 127 - 3  # the index of the scale 2**-3
    found = pieces(model, scale, Cut(range(scale, scale + 1), Fraction(1, 10), Fraction(1)))
    assert found[0].lower <= Fraction(1, 10)
    assert found[-1].upper == 1  # the maximum of the block is below 8 * 2**-3 = 1
    x = (found[2].lower + found[2].upper) / 2
    p = found[2]
    assert (p.m0, p.m1) == (0, 1)
    # A number at the midpoint between two values is rounded to each with probability one half.
    assert p.s0 + p.s1 * x == (p.lower**2 + p.upper**2) / 2


@pytest.mark.parametrize("of", ["bias", "ratio_of_means", "variance", "gain", "mse"])
@pytest.mark.parametrize("case", CASES, ids=lambda c: "-".join(map(str, c)))
def test_numbers_agree_with_rigorous_enclosures(case, of):
    pytest.importorskip("flint")
    name, rule, rounding, mu, sigma, block = case
    if of == "ratio_of_means" and mu == 0:
        with pytest.raises(ValueError, match="different from 0 for the ratio of means"):
            gamma_bias(name, mu, sigma, block_size=block, scale_rule=rule).enclosure(of=of)
        return
    options = {"block_size": block, "scale_rule": rule, "rounding": rounding}
    # A normal distribution includes numbers near zero, where integrals of the relative error
    # diverge.
    if of in ("bias", "variance") and rounding in ("rto", "rtp", "rtn", "sr"):
        options["distribution"] = "uniform"
        sigma = min(sigma, mu / 4)
    found = (gamma_bias if of in ("bias", "ratio_of_means", "variance") else block_error)(name, mu, sigma, **options)
    enclosure = found.enclosure(80, of)
    assert enclosure.radius < 1e-20
    # The tolerance is relative to the root mean square of zeta, which bounds the mean of |zeta|.
    size = {"mse": found.mse, "gain": 0.1} if of in ("mse", "gain") else {}
    scale = size.get(of) or (
        found.variance + found.bias**2 if of == "variance" else np.sqrt(found.variance + found.bias**2)
    )
    assert abs(getattr(found, of) - enclosure.midpoint) < 1e-14 * scale + 2e-16 * (of == "gain")


def test_balls_and_intervals_agree():
    pytest.importorskip("flint")
    for found, of in (
        (gamma_bias("mxfp8_e4m3", 0.985, 0.004), "bias"),
        (gamma_bias("mxfp4_e2m1", 0.985, 0.01, rounding="sr"), "ratio_of_means"),
        (gamma_bias("mxfp4_e2m1", 0.985, 0.01, distribution="uniform", rounding="sr"), "variance"),
    ):
        ball, interval = found.enclosure(24, of), found.enclosure(24, of, backend="iv")
        assert ball.lower <= interval.upper
        assert interval.lower <= ball.upper
        assert max(ball.radius, interval.radius) < 1e-6
        assert getattr(found, of) in type(ball)(ball.lower - Fraction(1, 10**16), ball.upper + Fraction(1, 10**16))


@pytest.mark.parametrize("of", ["bias", "ratio_of_means", "variance"])
@pytest.mark.parametrize("distribution", ["normal", "uniform"])
def test_formula_and_number_agree(of, distribution):
    found = gamma_bias("mxfp4_e2m1", 0.97, 0.02, block_size=4, distribution=distribution)
    expression = found.formula(of)
    symbols = sorted(expression.free_symbols, key=str)
    function = sympy.lambdify(symbols, expression, "mpmath")
    with mpmath.workdps(25):
        value = function(*(mpmath.mpf(v) for v in (0.97, 0.02)[: len(symbols)]))
    assert abs(value - getattr(found, of)) < 1e-15
    assert bool(symbols) == (distribution == "normal")
    if of == "bias":
        assert found.formula() == expression


@pytest.mark.parametrize(
    ("name", "sigma", "rounding", "of"),
    [("mxint4", 0.5, "sr", "variance"), ("mxint4", 0.5, "rtp", "bias"), ("mxfp4_e2m1", 0.55, "rto", "variance")],
)
def test_moments_of_uniform_numbers_near_zero(name, sigma, rounding, of):
    """Check uniform distributions that reach near zero.

    Integrals must stop at the ends of the distribution's interval.
    """
    pytest.importorskip("flint")
    found = gamma_bias(name, 1, sigma, rounding=rounding, distribution="uniform")
    ball, interval = found.enclosure(of=of), found.enclosure(24, of, backend="iv")
    assert ball.lower <= interval.upper
    assert interval.lower <= ball.upper
    assert getattr(found, of) == pytest.approx(ball.midpoint, rel=1e-13)
    assert float(found.formula(of)) == pytest.approx(ball.midpoint, rel=1e-13)


@pytest.mark.parametrize("sigma", [1e-12, 1e-9])
def test_variance_of_narrow_clusters_at_a_value_of_the_format(sigma):
    """Check variances of numbers x so close to 1.125 that floats lose digits of x - 1.125."""
    pytest.importorskip("flint")
    found = gamma_bias("mxfp8_e4m3", 1.125, sigma, rounding="sr", distribution="uniform")
    assert found.variance == pytest.approx(found.enclosure(of="variance").midpoint, rel=1e-13)
