"""Tests of the Huber loss: its derivatives (finite differences) and its minimum (scipy)."""

from __future__ import annotations

import numpy as np
import pytest

from mxnum.lab.theory import huber_law

RNG = np.random.default_rng(7)
X, Y = RNG.uniform(-2, 2, 40), RNG.uniform(-2, 2, 40)
TRUTH = np.array([0.2, -0.3, -0.6, 0.5, 0.4])
DELTA = 0.02


def plainly(parameters, x=X, y=Y):
    """Return the logarithm of the law, computed directly from its formula."""
    a, b, e, alpha, beta = parameters
    return np.log(np.exp(a) * np.exp(x) ** -alpha + np.exp(b) * np.exp(y) ** -beta + np.exp(e))


TARGET = plainly(TRUTH) + 0.02 * RNG.standard_t(2, 40)
WEIGHTS = RNG.uniform(0.5, 1.5, 40) / 40


def plain_loss(parameters):
    r = np.abs(plainly(parameters) - TARGET)
    return float((WEIGHTS * np.where(r < DELTA, r * r / 2, DELTA * (r - DELTA / 2))).sum())


def test_the_law_is_what_is_written():
    np.testing.assert_allclose(huber_law.predict(TRUTH[None], X, Y)[0], plainly(TRUTH), rtol=1e-13)
    far = np.array([[800.0, -800.0, -800.0, 0.5, 0.4]])  # exp(800) would overflow
    np.testing.assert_allclose(huber_law.predict(far, X, Y)[0], 800 - 0.5 * X)


def test_the_derivatives_are_those_of_the_loss():
    at = TRUTH + 0.05
    free = np.ones((1, 5), bool)
    got = huber_law._curvature(at[None], X, Y, TARGET[None], WEIGHTS[None], DELTA, free)
    assert got.loss[0] == pytest.approx(plain_loss(at), rel=1e-12)
    h = 1e-5
    steps = h * np.eye(5)
    slope = [(plain_loss(at + s) - plain_loss(at - s)) / (2 * h) for s in steps]
    np.testing.assert_allclose(got.gradient[0], slope, rtol=1e-6, atol=1e-10)

    def gradient(p):
        return huber_law._curvature(p[None], X, Y, TARGET[None], WEIGHTS[None], DELTA, free).gradient[0]

    h = 1e-7  # such a small step moves no residual across DELTA
    second = [(gradient(at + s / 1e-5 * h) - gradient(at - s / 1e-5 * h)) / (2 * h) for s in steps]
    np.testing.assert_allclose(got.hessian[0], second, rtol=1e-4, atol=1e-7)


def test_the_minimum_is_that_of_another_optimizer():
    optimize = pytest.importorskip("scipy.optimize")
    best = optimize.minimize(
        plain_loss, TRUTH, method="Nelder-Mead", options={"xatol": 1e-9, "fatol": 1e-16, "maxfev": 9000}
    )
    got = huber_law.minimize(TRUTH[None] + 0.3, X, Y, TARGET, WEIGHTS, DELTA)
    assert got.converged.all()
    assert got.loss[0] <= best.fun * (1 + 1e-9)
    np.testing.assert_allclose(got.parameters[0], best.x, atol=1e-4)


def test_problems_of_a_batch_do_not_see_each_other():
    starts = TRUTH + RNG.uniform(-0.5, 0.5, (4, 5))
    weights = RNG.multinomial(40, np.full(40, 1 / 40), size=4) / 40
    together = huber_law.minimize(starts, X, Y, TARGET, weights, DELTA)
    for i in range(4):
        alone = huber_law.minimize(starts[i : i + 1], X, Y, TARGET, weights[i], DELTA)
        np.testing.assert_allclose(together.parameters[i], alone.parameters[0], atol=1e-6)


def test_a_parameter_that_is_held_stays():
    free = np.array([[True, True, False, True, True]])
    start = TRUTH[None].copy()
    start[0, 2] = -1.0
    got = huber_law.minimize(start, X, Y, TARGET, WEIGHTS, DELTA, free=free)
    assert got.parameters[0, 2] == -1.0
    assert plain_loss(TRUTH) < 1
    # Freeing all five parameters cannot raise the minimum.
    assert got.loss[0] >= huber_law.minimize(start, X, Y, TARGET, WEIGHTS, DELTA).loss[0]


def test_huber():
    np.testing.assert_allclose(huber_law.huber(np.array([0, 0.5, -0.5, 1, -3]), 1), [0, 0.125, 0.125, 0.5, 2.5])
