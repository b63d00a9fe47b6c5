"""Tests that error bars of sampled means contain the right values, and exclude wrong values."""

from __future__ import annotations

import numpy as np
import pytest

from mxnum.analysis import block_error
from mxnum.lab.claims import (
    samples,
)


def test_the_grid_of_mantissas_is_exact():
    f = samples.mantissas()
    assert np.array_equal(f.astype(np.float64), 1 + (np.arange(1 << 16) + 0.5) / (1 << 16))


def test_samples_notice_wrong_values():
    """Check that samples refute wrong exact values.

    The wrong mean squared error is too large by 1/30, and the wrong overflow rate by 1/10.
    """
    exact = block_error("mxfp4_e2m1").mse
    values = samples.by_block("mxfp4_e2m1", "floor").mse
    assert samples.kernels_agree([(exact, values)]).holds
    assert not samples.kernels_agree([(exact * (1 + 1 / 30), values)]).holds
    exact = block_error("mxfp4_e2m1").overflow
    values = samples.by_block("mxfp4_e2m1", "floor").beyond_max_rate
    assert not samples.kernels_agree([(exact * 1.1, values)]).holds
    assert not samples.kernels_agree([(1e-9, np.zeros(9))]).holds


def test_mean_gives_five_standard_errors():
    values = np.array([1.0, 3.0] * 50)
    assert samples.mean(values) == (2.0, pytest.approx(5 * 1.0 / 10))
