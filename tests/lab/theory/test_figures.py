from __future__ import annotations

import numpy as np
import pytest

matplotlib = pytest.importorskip("matplotlib", reason="the extra plots is not installed")
matplotlib.use("Agg")

from mxnum.lab.theory import ScalingLaw, figures, fit_scaling_law  # noqa: E402


def test_scaling_laws():
    n, d = (a.ravel() for a in np.meshgrid(np.geomspace(2e7, 1e9, 5), np.geomspace(3e8, 2e10, 5)))
    law = ScalingLaw(0.3 * 1.4e8**0.45, 0.4 * 2.4e9**0.4, 1.1, 0.45, 0.4)
    fit = fit_scaling_law(n, d, law(n, d) * (1 + 0.01 * np.cos(np.arange(25))), starts=[law.as_parameters])
    ax = figures.scaling_law(fit)
    assert all((ax.get_xlabel(), ax.get_ylabel(), ax.get_title()))
    assert np.array_equal(ax.collections[0].get_offsets(), np.column_stack([6 * n * d, fit.table.losses]))
    flops, best = ax.lines[0].get_data()
    assert best[0] == pytest.approx(float(fit.law(*fit.law.optimal(flops[0]))))
    ax = figures.law_residuals(fit)
    assert all((ax.get_xlabel(), ax.get_ylabel(), ax.get_title()))
    drawn = np.concatenate([line.get_ydata() for line in ax.lines if line.get_marker() != "None"])
    np.testing.assert_allclose(np.sort(drawn), np.sort(100 * fit.residuals))
    figures.law_residuals(
        fit_scaling_law(fit.table, delta=np.inf, starts=[law.as_parameters])
    ).figure.draw_without_rendering()
