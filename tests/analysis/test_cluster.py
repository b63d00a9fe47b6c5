"""Tests of expected errors of random blocks: probabilities sum to 1, and known limits hold."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

import mxnum as mx
from mxnum.analysis.cluster import Model, moments, probability_above, window
from mxnum.formats import ELEMENTS
from mxnum.modes import Rounding, ScaleRule
from tests.covering import covering


def model(element="e4m3", rule="floor", rounding="rne", block=32, distribution="normal", prescale=1):
    """Return the model of a block of random numbers (a cluster) with the given settings."""
    return Model(ELEMENTS[element], ScaleRule(rule), Rounding(rounding), block, distribution, Fraction(prescale))


@covering(
    element=ELEMENTS, distribution=["normal", "uniform"], rule=["floor", "even", "rceil"], block=[1, 2, 32]
).parametrize_in_tiers
def test_probabilities_add_up_to_one(element, distribution, rule, block):
    mu, sigma = (v.ravel() for v in np.meshgrid([0.0, 0.93, -1.0, 3e-4, 1e9], [1e-9, 0.02, 0.5, 1.0]))
    sigma = sigma * np.where(mu == 0, 1, abs(mu))
    found = moments(model(element, rule, block=block, distribution=distribution), mu, sigma)
    assert abs(found.single["mass"] - 1).max() < 1e-14


def test_mirror_images_have_the_same_errors():
    mu, sigma = np.array([0.93, 0.99]), np.array([0.01, 0.3])
    right, left = (moments(model(block=4), sign * mu, sigma).single for sign in (1, -1))
    assert np.allclose(right["error"], -left["error"], rtol=1e-12, atol=0)
    for name in ("square_error", "relative_error", "overflow", "zero"):
        assert np.allclose(right[name], left[name], rtol=1e-12, atol=1e-30)


def test_scaling_by_a_power_of_two_changes_nothing_relative():
    mu, sigma = np.array([0.97]), np.array([0.02])
    one, other = (moments(model("e2m1"), mu * f, sigma * f).single for f in (1.0, 2.0**-40))
    assert one["relative_error"] == other["relative_error"]
    assert one["error"] * 2.0**-40 == other["error"]


def test_the_lowest_scale_serves_all_smaller_blocks():
    """Check that float64 numbers around 2**-130 have the E8M0 scale 2**-127 and become zero."""
    mu, sigma = np.array([2.0**-130]), np.array([2.0**-134])
    x = np.random.default_rng(3).normal(mu[0], sigma[0], (5_000, 32))
    q = mx.fake_quantize(x, "mxfp4_e2m1")
    found = moments(model("e2m1"), mu, sigma).single
    assert (q == 0).all()
    assert found["zero"][0] == pytest.approx(1)
    assert found["relative_error"][0] == pytest.approx(-1)


def test_a_pair_is_uncorrelated_when_the_scale_is_certain_and_correlated_when_it_is_not():
    found = moments(model(), np.array([0.93, 0.975]), np.array([1e-3, 0.012]))
    covariance = found.pair["relative_error"] - found.single["relative_error"] ** 2
    assert abs(covariance[0]) < 1e-16
    assert covariance[1] > 1e-3


def test_tails_keep_their_relative_accuracy():
    t = np.array([1.0])
    far = probability_above(model(), t, np.array([0.0]), np.array([0.04]))
    assert far[0] == pytest.approx(math.erfc(25 / math.sqrt(2)), rel=1e-12)
    low, high = window(model(distribution="uniform"), np.array([0.0]), np.array([1.0]))
    assert (low[0], high[0]) == (-math.sqrt(3), math.sqrt(3))
    above = probability_above(model(distribution="uniform"), t, np.array([0.0]), np.array([1.0]))
    assert above[0] == pytest.approx(1 - 1 / math.sqrt(3))
