"""Tests that the stability limit agrees with the spectral radius and with simulations."""

from __future__ import annotations

import numpy as np
import pytest
import sympy

import mxnum as mx
from mxnum.analysis import gamma_bias
from mxnum.lab.theory.stability import adam_limit, moment_matrix, stability_expression, stability_limit

POINTS = [(0.0, 0.0, 0.0), (-0.125, 0.0, 0.0), (-0.06, 0.01, 0.0), (0.1, 0.5, 0.5), (-0.3, 0.02, 0.9), (0.0, 2.0, 0.9)]


def radius(rate, bias, variance, momentum):
    return abs(np.linalg.eigvals(np.array(moment_matrix(rate, 1 + bias, variance, momentum), float))).max()


@pytest.mark.parametrize(("bias", "variance", "momentum"), POINTS)
def test_the_limit_is_where_the_spectral_radius_passes_one(bias, variance, momentum):
    limit = stability_limit(bias, variance, momentum=momentum)
    rates = limit * np.linspace(0.02, 0.999, 40)
    assert all(radius(rate, bias, variance, momentum) < 1 for rate in rates)
    assert all(radius(limit * factor, bias, variance, momentum) > 1 for factor in (1.001, 1.5, 4.0))


def test_claim_b2_in_symbols():
    b, v, beta = sympy.Symbol("bias", real=True), *sympy.symbols("variance beta", positive=True)
    claimed = 2 * (1 + b) / ((1 + b) ** 2 + v)
    assert sympy.simplify(stability_expression().subs(beta, 0) - claimed) == 0
    # Without momentum, the limit is defined by E[(1 - a (1 + zeta))**2] = 1.
    a, zeta = sympy.symbols("a zeta", positive=True)
    square = sympy.expand((1 - a * (1 + zeta)) ** 2)
    mean = sum(square.coeff(zeta, n) * m for n, m in enumerate((1, b, v + b**2)))
    assert sympy.simplify(mean.subs(a, claimed) - 1) == 0


def test_the_expression_and_the_function_agree():
    function = sympy.lambdify(sympy.symbols("bias variance beta"), _plain(stability_expression()))
    for bias, variance, momentum in POINTS:
        assert function(bias, variance, momentum) == pytest.approx(stability_limit(bias, variance, momentum=momentum))


def _plain(expression):
    """Return the stability expression with sympy symbols that have no assumptions."""
    return expression.subs({s: sympy.Symbol(s.name) for s in expression.free_symbols})


def test_bias_alone_stabilises_a_quadratic():
    assert stability_limit(-0.125) > stability_limit() == 2
    rate = 2.1  # unstable without a bias
    theta = {0.0: 1.0, -0.125: 1.0}
    for _ in range(400):
        theta = {b: t - rate * (1 + b) * t for b, t in theta.items()}
    assert abs(theta[0.0]) > 1e10
    assert abs(theta[-0.125]) < 1e-10
    assert stability_limit(-1.0) == stability_limit(-1.5) == 0


@pytest.mark.parametrize(("bias", "variance", "momentum"), POINTS[1:5])
def test_simulated_second_moments_follow_the_matrix(bias, variance, momentum):
    rng = np.random.default_rng(4)
    rate = 0.7 * stability_limit(bias, variance, momentum=momentum)
    theta, u = np.ones(200_000), np.zeros(200_000)
    expected, matrix = np.array([1.0, 0.0, 0.0]), np.array(moment_matrix(rate, 1 + bias, variance, momentum), float)
    for _ in range(8):
        zeta = bias + np.sqrt(variance) * rng.choice([-1.0, 1.0], theta.size)
        u = momentum * u + (1 - momentum) * rate * (1 + zeta) * theta
        theta = theta - u
        expected = matrix @ expected
        for found, want in zip((theta**2, theta * u, u**2), expected, strict=True):
            error = found.std() / np.sqrt(theta.size)
            assert abs(found.mean() - want) < 5 * error + 1e-12 * abs(want)


def test_gradients_that_pass_through_a_quantized_gain():
    """Check the limit for gradients multiplied by Q(gamma) / gamma, with random gamma."""
    noise = gamma_bias("mxfp4_e2m1", 0.9, 0.05)
    limit = stability_limit(noise.bias, noise.variance)
    assert limit > 2  # the bias raises the limit by more than the variance lowers it
    rng, runs, steps = np.random.default_rng(8), 20_000, 6
    for rate in (0.95 * limit, 1.05 * limit):
        theta = np.ones(runs)
        for _ in range(steps):
            gamma = rng.normal(0.9, 0.05, (runs, 32))
            # Use one element of each block, since the elements of a block are dependent.
            gain = (mx.fake_quantize(gamma, "mxfp4_e2m1") / gamma)[:, 0]
            theta = theta * (1 - rate * gain)
        want = ((1 - rate * (1 + noise.bias)) ** 2 + rate**2 * noise.variance) ** steps
        error = (theta**2).std() / np.sqrt(runs)
        assert abs((theta**2).mean() - want) < 5 * error
        assert (want < 1) == (rate < limit)
        wrong = (1 - rate) ** (2 * steps)  # the mean of theta**2 without errors in the gradient
        assert abs((theta**2).mean() - wrong) > 5 * error


def test_adam_does_not_see_a_constant_bias():
    """Check that if epsilon is 0, halving every gradient changes no bit of Adam's path."""

    def run(factor):
        theta, m, v, path = 1.0, 0.0, 0.0, []
        for t in range(1, 200):
            g = factor * theta
            m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
            theta -= 0.01 * (m / (1 - 0.9**t)) / np.sqrt(v / (1 - 0.999**t))
            path.append(theta)
        return path

    assert run(1.0) == run(0.5)


@pytest.mark.parametrize("part", [0.9, 1.1])
def test_adam_with_a_slow_second_moment_that_remembers_quantized_gradients(part):
    """Check Adam's limit for a second moment v fixed at the mean square of Q(gamma) / gamma."""
    noise = gamma_bias("mxfp4_e2m1", 0.9, 0.05)
    rate = part * adam_limit(noise.bias, noise.variance)
    power = (1 + noise.bias) ** 2 + noise.variance
    rng, runs, steps = np.random.default_rng(9), 20_000, 30
    theta, m, v = np.full(runs, 1e-9), np.zeros(runs), np.full(runs, power)
    for _ in range(steps):
        gamma = rng.normal(0.9, 0.05, (runs, 32))
        g = (mx.fake_quantize(gamma, "mxfp4_e2m1") / gamma)[:, 0] * theta
        m, v = 0.9 * m + 0.1 * g, 0.99999 * v + 0.00001 * g * g
        theta = theta - rate * m / np.sqrt(v)
    squares = (theta / 1e-9) ** 2
    matrix = np.array(moment_matrix(rate / np.sqrt(power), 1 + noise.bias, noise.variance, 0.9))
    want = np.linalg.matrix_power(matrix, steps)[0, 0]
    # The tolerance allows for a change of the second moment v, which shrinks by 0.03 % in 30 steps.
    assert abs(squares.mean() - want) < 5 * squares.std() / np.sqrt(runs) + 0.05 * want
    assert (abs(np.linalg.eigvals(matrix)).max() < 1) == (part < 1)
    # A recurrence that ignores the rounding errors in v predicts a different result.
    deaf = np.array(moment_matrix(rate, 1 + noise.bias, noise.variance, 0.9))
    assert abs(squares.mean() / np.linalg.matrix_power(deaf, steps)[0, 0] - 1) > 0.3


def test_adam_limits():
    assert adam_limit(-0.3) == pytest.approx(38)
    assert adam_limit(0.2, 0.3, momentum=0.0) == pytest.approx(2 / np.sqrt(1 + 0.3 / 1.2**2))
    table = adam_limit(np.array([-0.1, 0.0]), np.array([[0.0], [0.1], [1.0]]))
    assert table.shape == (3, 2)
    assert (np.diff(table, axis=0) < 0).all()


def test_arguments_are_checked():
    with pytest.raises(ValueError, match="'momentum' must be at least 0 and below 1"):
        stability_limit(momentum=1.0)
    with pytest.raises(ValueError, match="'variance' must be at least 0"):
        stability_limit(0.0, -0.1)
    with pytest.raises(
        ValueError, match="'bias' must be finite, not nan"
    ):  # Regression: for a bias of NaN the limit was 0.
        stability_limit(np.nan)
    with pytest.raises(ValueError, match="'variance' must be at least 0 and finite, not inf"):
        adam_limit(0.0, np.inf)
