from __future__ import annotations

import math
from fractions import Fraction
from functools import cache

import numpy as np
import pytest

from mxnum.conformance.stochastic.statistics import critical, deviation, draws_for, p_value, power, tail, weakest


@cache
def exact(n, p):
    """Return the exact probabilities of 0, 1, ..., n successes in n trials, as rationals."""
    p = Fraction(p)
    return [math.comb(n, i) * p**i * (1 - p) ** (n - i) for i in range(n + 1)]


@pytest.mark.parametrize("p", [0.5, 0.25, 2.0**-10, 1 - 2.0**-7, 0.3])
def test_tails_are_the_definition(p):
    for n in (1, 7, 60):
        for k in range(-1, n + 2):
            want = float(sum(exact(n, p)[max(0, k) :]))
            assert tail(k, n, p) == pytest.approx(want, rel=1e-11, abs=1e-15)


def test_tails_are_those_of_scipy():
    stats = pytest.importorskip("scipy.stats")
    rng = np.random.default_rng(5)
    for _ in range(300):
        n, p = int(10 ** rng.uniform(1, 7)), float(rng.choice([0.5, 2.0**-12, 1 - 2.0**-12, rng.random()]))
        k = int(np.clip(n * p + 4 * rng.standard_normal() * math.sqrt(n * p * (1 - p)), 0, n))
        want = float(stats.binom.sf(k - 1, n, p))
        assert tail(k, n, p) == pytest.approx(want, rel=1e-6, abs=1e-290)


def test_tiny_and_certain_probabilities_have_exact_p_values():
    assert p_value(0, 10**6, 2.0**-60) == 1
    assert p_value(1, 10**6, 2.0**-60) == pytest.approx(2 * 10**6 * 2.0**-60, rel=1e-6)
    assert [p_value(k, 5, 0) for k in (0, 1)] == [1, 0]
    assert [p_value(k, 5, 1) for k in (4, 5)] == [0, 1]


@pytest.mark.parametrize("level", [0.2, 1e-2, 1e-5])
@pytest.mark.parametrize("p", [0.5, 0.25, 0.01, 0.9990234375])
def test_false_alarm_rate_is_at_most_the_level(p, level):
    """Check that the exact false-alarm rate of one case is at most the level of the test."""
    for n in (1, 5, 40, 200):
        counts = [k for k in range(n + 1) if p_value(k, n, p) <= level]
        low, high = critical(n, p, level)
        assert counts == [*range(low + 1), *range(high, n + 1)]
        rate = sum(exact(n, p)[k] for k in counts)
        assert rate <= level
        truth = min(1.0, p + 0.125)
        missed = sum(exact(n, truth)[low + 1 : high])
        assert power(n, p, truth, level) == pytest.approx(float(1 - missed), rel=1e-9, abs=1e-12)


def test_power_for_shares_of_0_and_1():
    assert power(10, 0, 0.25, 1e-9) == pytest.approx(1 - 0.75**10)
    assert power(10, 1, 0.75, 1e-9) == pytest.approx(1 - 0.75**10)


def test_number_of_draws_is_just_enough():
    n = draws_for(1 / 16, 0.99, 1e-6)
    assert weakest(n, 0.5, 1 / 16, 1e-6) >= 0.99
    assert weakest(int(0.97 * n), 0.5, 1 / 16, 1e-6) < 0.99
    assert weakest(draws_for(1 / 4, 0.9, 1e-2), 0.5, 1 / 4, 1e-2) >= 0.9


def test_the_bound_holds_exactly():
    """Check that the exact tails of a binomial distribution do not exceed Bernstein's bound."""
    for p in (0.5, 1 / 16, 0.01):
        for n in (20, 200, 2000):
            for level in (0.1, 1e-3, 1e-6):
                far = float(deviation(n * p * (1 - p), level))
                above = tail(math.floor(n * p + far) + 1, n, p)
                below = tail(n - math.ceil(n * p - far) + 1, n, 1 - p)
                assert above + below <= level
