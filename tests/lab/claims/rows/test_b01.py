"""Tests that the check of claim B1 notices a wrong bias and a wrong figure."""

from __future__ import annotations

from mxnum.analysis import gamma_bias
from mxnum.lab.claims import (
    reproduce,
    samples,
)
from mxnum.lab.claims.rows import (
    b01,
)


def test_the_kernels_would_refute_a_bias_that_is_a_percent_off():
    x = b01.sample(0.93, 0.01, 0)
    zeta = b01.quantized(x, "mxfp8_e4m3", "floor") / x - 1
    expected = float(gamma_bias("mxfp8_e4m3", 0.93, 0.01).bias)
    assert samples.kernels_agree([(expected, zeta.mean(axis=1))]).holds
    assert not samples.kernels_agree([(1.01 * expected, zeta.mean(axis=1))]).holds


def test_a_wrong_figure_is_noticed(monkeypatch):
    monkeypatch.setattr(b01, "CLUSTERS", ((0.93, 0.01),))
    monkeypatch.setitem(b01.AVERAGES["mxfp4_e2m1"], "even", (-1.072, -0.511))
    off = [c.what for c in reproduce(["B1"])["B1"].evidence.comparisons if not c.agrees]
    assert off == ["mxfp4_e2m1 even: E[Q]/E[x]-1, %"]
