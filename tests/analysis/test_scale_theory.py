"""Tests of thresholds and overflow regions: against the kernels and the figures of claim I2."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

import mxnum as mx
from mxnum.analysis.scale_theory import overflow_region, scale_threshold


def mantissa_sweep(steps=1 << 12):
    """Return evenly spaced mantissas from 1 to 2."""
    return 1 + np.arange(steps) / steps


@pytest.mark.parametrize("rule", mx.ScaleRule)
@pytest.mark.parametrize("name", mx.formats.names("e8m0"))
def test_the_threshold_is_where_the_kernel_changes_scale(name, rule):
    t = float(scale_threshold(name, rule))
    closed = rule not in ("ceil", "rceil")
    around = np.array([[np.nextafter(t, 0.0)], [t], [np.nextafter(t, np.inf)]])
    codes = mx.shared_scale(around, name, scale_rule=rule).ravel().astype(int) - 127
    assert codes.tolist() == [-1, 0 if closed else -1, 0]


@pytest.mark.parametrize("rule", mx.ScaleRule)
@pytest.mark.parametrize("name", mx.formats.names("e8m0"))
def test_the_overflow_region_is_where_the_kernel_saturates(name, rule):
    f = mantissa_sweep()
    codes = mx.shared_scale(f[:, None], name, scale_rule=rule).ravel().astype(int)
    beyond = f / np.exp2(codes - 127) > mx.formats.get(name).element.max
    region = overflow_region(name, rule)
    inside = (f > float(region.lower)) & (f < float(region.upper))
    assert np.array_equal(beyond, inside)
    if rule in ("ceil", "rceil"):
        assert region.empty
    if beyond.any():
        q = mx.fake_quantize(f[beyond][:, None], name, scale_rule=rule).ravel()
        worst = (1 - q / f[beyond]).max()
        assert float(region.worst_error) - 1e-3 < worst <= float(region.worst_error)


@pytest.mark.parametrize(
    ("element", "uniform", "log_uniform", "worst"),
    [
        ("e4m3", "25", 19.26, "12.5"),
        ("e5m2", "25", 19.26, "12.5"),
        ("e3m2", "25", 19.26, "12.5"),
        ("e2m3", "12.5", 9.31, "6.25"),
        ("e2m1", "50", 41.50, "25"),
        ("int8", "1.5625", 1.13, "0.78125"),
    ],
)
def test_claim_i2(element, uniform, log_uniform, worst):
    region = overflow_region(element)
    assert region.share_uniform * 100 == Fraction(uniform)
    assert round(region.share_log_uniform * 100, 2) == log_uniform
    assert region.worst_error * 100 == Fraction(worst)
