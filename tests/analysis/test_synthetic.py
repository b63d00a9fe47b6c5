"""Tests that synthetic tensors have the distributions that their docstrings state."""

from __future__ import annotations

import numpy as np
import pytest

from mxnum.analysis import synthetic


@pytest.mark.parametrize("make", [synthetic.weights, synthetic.activations, synthetic.gradients])
def test_reproducible_float32_matrices(make):
    x = make(8, 16, seed=3)
    assert x.dtype == np.float32
    assert x.shape == (8, 16)
    assert np.array_equal(x, make(8, 16, seed=3))
    assert not np.array_equal(x, make(8, 16, seed=4))


def test_weights_are_normal():
    z = synthetic.weights() / 0.02
    assert abs(z.mean()) < 5 / np.sqrt(z.size)
    assert abs((z**2).mean() - 1) < 5 * np.sqrt(2 / z.size)
    assert abs((z**4).mean() - 3) < 5 * np.sqrt(96 / z.size)


def test_activations_vary_by_token_or_channel():
    def spread(x, axis):
        return np.log(np.sqrt((x.astype(float) ** 2).mean(axis))).std()

    by_token = synthetic.activations(token_spread=1.0)
    assert spread(by_token, 1) == pytest.approx(1.0, abs=5 / np.sqrt(2 * 512))
    by_channel = synthetic.activations(token_spread=0.0, channel_spread=0.5)
    assert spread(by_channel, 0) == pytest.approx(0.5, abs=0.1)
    assert spread(by_channel, 1) < 0.1
    shifted = synthetic.activations(token_spread=0.0, channel_mean=2.0)
    assert shifted.mean(0).std() == pytest.approx(2.0, rel=0.15)


def test_gradients_are_lognormal():
    g = synthetic.gradients().astype(float)
    logs = np.log(np.abs(g) / 1e-4)
    assert abs(logs.mean()) < 5 * 1.5 / np.sqrt(g.size)
    assert logs.std() == pytest.approx(1.5, rel=5 / np.sqrt(2 * g.size))
    assert abs(np.sign(g).mean()) < 5 / np.sqrt(g.size)
