"""Tests of errors that compound over layers: formulas in sympy, and products of quantized gains."""

from __future__ import annotations

import numpy as np
import pytest
import sympy

import mxnum as mx
from mxnum.analysis import gamma_bias
from mxnum.lab.theory.compounding import compounded_gain, layer_factor


def test_layer_factor_gives_the_moments_of_its_definition():
    b, v, j, zeta = sympy.symbols("b v j zeta")
    for skip in (0, 1):
        factor = (skip + j * (1 + zeta)) / (skip + j)
        first, second = layer_factor(b, v, j, skip)
        for power, found in ((1, first), (2, second)):
            expanded = sympy.expand(factor**power)
            mean = sum(expanded.coeff(zeta, n) * m for n, m in enumerate((1, b, v + b**2)))
            assert sympy.simplify(found - mean) == 0


@pytest.mark.parametrize(("residual", "branch"), [(False, 1.0), (True, 1.0), (True, 0.2)])
def test_products_through_the_kernels(residual, branch):
    """Check the predicted gain of a signal against 8 layers that multiply by quantized weights."""
    noise = gamma_bias("mxfp8_e4m3", 0.97, 0.015)
    predicted = compounded_gain(noise.bias, noise.variance, layers=8, branch=branch, residual=residual)
    runs, skip = 40_000, int(residual)
    rng, gain = np.random.default_rng(6), np.ones(runs)
    for _ in range(8):
        gamma = rng.normal(0.97, 0.015, (runs, 32))
        zeta = (mx.fake_quantize(gamma, "mxfp8_e4m3") / gamma)[:, 0] - 1
        gain *= (skip + branch * (1 + zeta)) / (skip + branch)
    error = gain.std() / np.sqrt(runs)
    assert abs(gain.mean() - predicted.mean) < 5 * error
    assert abs((gain**2).mean() - predicted.second_moment) < 5 * (gain**2).std() / np.sqrt(runs)
    assert gain.std() / gain.mean() == pytest.approx(predicted.relative_spread, rel=0.05)
    assert abs(predicted.bias) > 20 * error  # the sample is large enough to measure the bias


def test_limits():
    assert compounded_gain(-0.125, layers=2).mean == 0.875**2
    assert compounded_gain(0.0, 0.0, layers=50).relative_spread == 0
    thin = compounded_gain(-0.125, layers=24, branch=1e-9, residual=True)
    assert thin.bias == pytest.approx(0, abs=1e-7)
    with pytest.raises(ValueError, match="'branch' must be positive"):
        compounded_gain(0.0, layers=2, branch=0.0)
    with pytest.raises(ValueError, match="'bias' must be a relative error of at least -1, not -8"):
        compounded_gain(-8.8, layers=2)
    with pytest.raises(ValueError, match="'variance' must be at least 0"):
        compounded_gain(-0.1, -0.1, layers=2)
