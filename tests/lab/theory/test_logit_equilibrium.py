"""Tests of the equilibrium of logits with biased gradients, and of `logit_advice`."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mxnum.lab.theory import logit_advice, logit_gradient_bias, logit_rest

SIXTEEN = np.append(np.full(16, 1 / 16), np.zeros(112))


def test_without_a_bias_the_equilibrium_is_the_source():
    exact = logit_gradient_bias("mxfp8_e4m3", 2048, scale_rule="rceil", rounding="sr")
    found = logit_rest(SIXTEEN, exact)
    assert found.drift == pytest.approx(0, abs=1e-9)
    assert found.excess == pytest.approx(0, abs=1e-9)


def test_a_constant_bias_has_its_fixed_point():
    """Check the fixed point p_j = (D + q_j (1 - s)) / (1 - s q_j) for a constant bias s.

    At the equilibrium, the mean gradients of all logits are equal to D."""
    s, q = 1 / 15, 1 / 16
    found = logit_rest(SIXTEEN, logit_gradient_bias("mxfp8_e4m3", 2048))
    slide = float(found.p[0])
    shrink = 1 - (7 / 8) / (1 - slide)  # clamping shrinks the gradient by this fraction at the equilibrium
    assert 0 < shrink < 0.125
    common = found.drift / SIXTEEN.size
    assert slide == pytest.approx((common + q * (1 - shrink)) / (1 - shrink * q), abs=1e-9)
    assert found.p[-1] == pytest.approx(common, abs=1e-9)
    assert found.excess > 0.5 * s
    assert found.bias < 0 < found.drift


def test_descent_reaches_the_equilibrium():
    """Check the equilibrium against gradient descent on the mean gradient."""
    q = np.array([0.4, 0.25, 0.2, 0.1, 0.05])
    bias = logit_gradient_bias("mxfp4_e2m1", 512, 1.3)
    found, logits, mean = logit_rest(q, bias), np.log(q), np.zeros(5)
    for step in range(4000):
        p = np.exp(logits) / np.exp(logits).sum()
        gradient = p * (1 - q) - q * (1 - p) * (1 + bias.at(p))
        logits -= (1 - step / 4000) * (gradient - gradient.mean())
        mean += p / 2000 * (step >= 2000)
    assert found.p == pytest.approx(mean, abs=2e-3)
    assert abs(found.p - q).max() > 0.01, "the equilibrium differs from the source"


@settings(max_examples=5)
@given(st.lists(st.floats(0.01, 1), min_size=2, max_size=8))
def test_excess_is_not_negative(weights):
    q = np.array(weights) / np.sum(weights)
    found = logit_rest(q / q.sum(), logit_gradient_bias("mxfp4_e2m1", 512))
    assert found.excess > -1e-9
    assert found.p.sum() == pytest.approx(1)


def test_advice():
    found = logit_advice("mxfp8_e4m3", 32768, 0.01)
    assert found.now.overflow == 1
    assert found.factors[found.best_factor].overflow == 0
    assert found.never_overflow == ("ceil", "rceil", "half_up")
    assert all(found.rules[rule].overflow == 0 for rule in found.never_overflow)
    assert "Multiply the loss by" in str(found)
    quiet = logit_advice("mxfp8_e4m3", 32768, 0.01, scale_rule="rceil")
    assert "Multiply" not in str(quiet)
    assert "100 %" not in str(quiet)
    assert logit_advice("nvfp4", 32768, 0.3).never_overflow == ("rceil",)
    assert "stochastic" not in str(found)


@pytest.mark.parametrize("scale_rule", [None, "rceil"])
def test_advice_in_4_bits_includes_stochastic_rounding(scale_rule):
    assert "stochastically" in str(logit_advice("mxfp4_e2m1", 1024, 0.05, scale_rule=scale_rule))
    assert "stochastic" not in str(logit_advice("mxfp4_e2m1", 1024, 0.05, scale_rule=scale_rule, rounding="sr"))


def test_bad_arguments_are_refused():
    with pytest.raises(ValueError, match="'q' must be a vector of probabilities that sum to 1"):
        logit_rest([0.5, 0.6], logit_gradient_bias())
    with pytest.raises(TypeError, match="'bias' must be what logit_gradient_bias returns, not 'mxfp8_e4m3'"):
        logit_rest([0.5, 0.5], "mxfp8_e4m3")
    with pytest.raises(ValueError, match=r"'factor' must be between 2\*\*-40 and 2\*\*39, .* not 1099511627776.0"):
        logit_advice(factor=2.0**40)


def test_bias_is_zero_if_all_targets_have_probability_1():
    """Check that the bias is 0 if all targets have p = 1, where their gradients are zero."""
    assert logit_rest([1.0], logit_gradient_bias("mxfp8_e4m3", 2048)).bias == 0
    assert logit_rest([1.0, 0.0], logit_gradient_bias("mxfp8_e4m3", 2048)).bias == 0
