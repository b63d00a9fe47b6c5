"""Tests that mean rounding errors over a binade agree with integrals, kernels and two papers."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest

import mxnum as mx
from mxnum import reference
from mxnum.analysis.averages import binade_average, sawtooth

PAIRS = list(itertools.product(mx.formats.names("e8m0"), mx.ScaleRule))
#: Float formats of 8, 6 and 4 bits, a format with only powers of two, and an integer format.
SAMPLE = [pair for pair in PAIRS if pair[0] in ("mxfp8_e4m3", "mxfp6_e2m3", "mxfp4_e2m1", "mxfp4_e3m0", "mxint4")]


@pytest.mark.parametrize(
    ("name", "rule"), [pair if pair in SAMPLE else pytest.param(*pair, marks=pytest.mark.full) for pair in PAIRS]
)
def test_pieces_of_the_sawtooth_equal_the_kernel(name, rule):
    teeth = sawtooth(name, scale_rule=rule)
    assert (teeth[0].lower, teeth[-1].upper) == (1, 2)
    assert all(a.upper == b.lower for a, b in itertools.pairwise(teeth))
    middles = np.array([float((t.lower + t.upper) / 2) for t in teeth])
    q = mx.fake_quantize(middles[:, None], name, scale_rule=rule).ravel()
    assert q.tolist() == [float(t.below) for t in teeth]


def reference_ratio(f, name, rule):
    """Return Q(f) / f in exact rationals, where Q quantizes a block of the single number f."""
    x, element = float(f), mx.formats.get(name).element
    scale = reference.shared_scale([x], element, scale_rule=rule)
    code = reference.encode(x, element, scale=scale)
    return float(reference.decode_exact(code, element).number * Fraction(2) ** (scale - 127)) / f


@pytest.mark.parametrize(("name", "rule"), [("mxfp8_e4m3", "floor"), ("mxfp4_e2m1", "even"), ("mxfp4_e3m0", "ceil")])
def test_equals_mpmath_quadrature_of_the_reference(name, rule):
    edges = sorted({float(v) for t in sawtooth(name, scale_rule=rule) for v in (t.lower, t.upper)})
    found = binade_average(name, scale_rule=rule)

    def average(function):
        return mpmath.quad(lambda f: function(f) / (f * mpmath.ln(2)), edges, maxdegree=4)

    assert abs(average(lambda f: reference_ratio(f, name, rule) - 1) - found.bias.evalf(20)) < 1e-12
    assert abs(average(lambda f: (reference_ratio(f, name, rule) - 1) ** 2) - found.mse.evalf(20)) < 1e-12


@pytest.mark.parametrize("density", ["log_uniform", "uniform"])
@pytest.mark.parametrize(("name", "rule"), SAMPLE)
def test_equals_the_kernel_on_a_fine_grid(name, rule, density):
    """Check that averages equal means over a fine grid, up to the error of the midpoint rule."""
    steps = 1 << 16
    u = (np.arange(steps) + 0.5) / steps
    f = np.exp2(u) if density == "log_uniform" else 1 + u
    q = mx.fake_quantize(f[:, None], name, scale_rule=rule).ravel()
    found = binade_average(name, scale_rule=rule, density=density)
    bound = len(sawtooth(name, scale_rule=rule)) / steps
    assert abs((q / f - 1).mean() - float(found.bias)) < bound
    assert abs((q / f - 1).var() - float(found.mse - found.bias**2)) < bound
    assert abs(q.mean() / f.mean() - 1 - float(found.ratio_of_means)) < bound
    over = mx.analysis.measure(f[:, None], name, scale_rule=rule, per="block").beyond_max.ravel()
    assert abs(over.mean() - float(found.overflow)) < bound
    assert abs((over * (q / f - 1)).mean() - float(found.overflow_bias)) < bound


@pytest.mark.parametrize(
    ("name", "rule", "bias", "ratio"),
    [
        ("mxfp8_e4m3", "floor", -1.294, -1.660),
        ("mxfp8_e4m3", "even", -0.712, -0.866),
        ("mxfp8_e4m3", "ceil", -0.070, -0.033),
        ("mxfp8_e4m3", "rceil", -0.070, -0.033),
        ("mxfp4_e2m1", "floor", -6.225, -7.185),
        ("mxfp4_e2m1", "even", -1.072, -0.509),
        ("mxfp4_e2m1", "ceil", -1.072, -0.509),
        ("mxfp4_e2m1", "rceil", -1.072, -0.509),
    ],
)
def test_claim_b1(name, rule, bias, ratio):
    found = binade_average(name, scale_rule=rule)
    assert round(100 * float(found.bias), 3) == bias
    assert round(100 * float(found.ratio_of_means), 3) == ratio


def test_overflow_bias_of_e4m3_equals_the_claimed_expression():
    import sympy

    claimed = (1 - sympy.Rational(7, 8)) / sympy.log(2) - (1 - sympy.log(sympy.Rational(7, 4), 2))
    found = binade_average("mxfp8_e4m3").overflow_bias
    assert sympy.simplify(sympy.expand_log(found - claimed, force=True)) == 0
    assert round(100 * float(found), 3) == -1.231


def test_stochastic_rounding_has_only_the_overflow_bias():
    for name in ("mxfp8_e4m3", "mxfp4_e2m1"):
        found = binade_average(name, rounding="sr")
        assert float(found.bias) == pytest.approx(float(found.overflow_bias), abs=1e-15)
        assert float(found.overflow) == pytest.approx(math.log2(2 / float(sawtooth(name)[-1].lower)))
        assert float(binade_average(name, rounding="sr", scale_rule="ceil").bias) == 0


def test_uniform_stochastic_variance_against_the_definition():
    """Check the variance of stochastic rounding against the integral over two gaps of E2M1."""
    found = binade_average("mxfp4_e2m1", scale_rule="ceil", rounding="sr", density="uniform")
    want = sum(mpmath.quad(lambda f, a=a: (f - a) * (a + 0.5 - f) / f**2, [a, a + 0.5]) for a in (1.0, 1.5))
    assert abs(found.mse.evalf(20) - want) < 1e-14


def test_arguments_are_checked():
    with pytest.raises(ValueError, match="binade_average supports only formats with E8M0 scales, not 'nvfp4'"):
        binade_average("nvfp4")
    with pytest.raises(ValueError, match="did you mean 'uniform'"):
        binade_average("mxfp8_e4m3", density="uniformm")
    assert sawtooth("e4m3")[-1].upper == Fraction(2)
