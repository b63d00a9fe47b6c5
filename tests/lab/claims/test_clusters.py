"""The figures about clustered blocks, and that a wrong one would be noticed."""

from __future__ import annotations

import pytest

from mxnum.analysis import gamma_bias
from mxnum.lab.claims import Verdict, clusters, reproduce


@pytest.fixture(scope="module")
def entry(checked):
    return checked("B1")


def test_confirmed(entry):
    assert entry.verdict == Verdict.CONFIRMED, [str(s) for s in entry.evidence.statements]
    assert len(entry.evidence.comparisons) == 17


def test_the_kernels_would_refute_a_bias_that_is_a_percent_off():
    x = clusters._sample(0.93, 0.01, 0)
    zeta = clusters._quantized(x, "mxfp8_e4m3", "floor") / x - 1
    expected = float(gamma_bias("mxfp8_e4m3", 0.93, 0.01).bias)
    assert clusters.kernels_agree([(expected, zeta.mean(axis=1))]).holds
    assert not clusters.kernels_agree([(1.01 * expected, zeta.mean(axis=1))]).holds


def test_a_wrong_figure_is_noticed(monkeypatch):
    monkeypatch.setattr(clusters, "CLUSTERS", ((0.93, 0.01),))
    monkeypatch.setitem(clusters._AVERAGES["mxfp4_e2m1"], "even", (-1.072, -0.511))
    off = [c.what for c in reproduce(["B1"])["B1"].evidence.comparisons if not c.agrees]
    assert off == ["mxfp4_e2m1 even: E[Q]/E[x]-1, %"]
