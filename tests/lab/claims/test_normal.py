"""Figures of normal numbers: the error bars hold what the quadrature says, and would not hold much else."""

from __future__ import annotations

import numpy as np
import pytest

from mxnum.lab.claims import CLAIMS, Verdict, Whose, normal, reproduce


@pytest.fixture(scope="module")
def report(checked):
    return {id: checked(id) for id in ("M3", "M4", "B5")}


def test_verdicts(report):
    assert [entry.verdict for entry in report.values()] == [Verdict.UNDECIDED, Verdict.CONFIRMED, Verdict.CONFIRMED]
    for entry in report.values():
        assert entry.evidence.statements[0].holds, str(entry.evidence.statements[0])


@pytest.mark.parametrize("id", ["M3", "M4"])
def test_figures_that_are_kept_have_not_changed(report, id):
    kept = report[id].evidence.said_by(Whose.KEPT)
    assert len(kept.comparisons) == 20
    assert [str(c) for c in kept.comparisons if not c.agrees] == []


def test_the_row_has_the_figures_that_are_compared():
    for figures, _ in normal._MSE.values():
        assert " ".join(f"{figure:f}".rstrip("0") for figure in figures) in CLAIMS["M4"].sentence


def test_the_sample_is_large_enough_to_refute():
    """One part in thirty of a mean squared error, one in ten of an overflow rate, would be seen."""
    exact = normal.block_error("mxfp4_e2m1").mse
    values = normal.by_block("E2M1", "floor").mse
    assert normal.kernels_agree([(exact, values)]).holds
    assert not normal.kernels_agree([(exact * (1 + 1 / 30), values)]).holds
    exact = normal.block_error("mxfp4_e2m1").overflow
    values = normal.by_block("E2M1", "floor").beyond_max_rate
    assert not normal.kernels_agree([(exact * 1.1, values)]).holds
    assert not normal.kernels_agree([(1e-9, np.zeros(9))]).holds


def test_mean_gives_five_standard_errors():
    values = np.array([1.0, 3.0] * 50)
    assert normal.mean(values) == (2.0, pytest.approx(5 * 1.0 / 10))


def test_a_wrong_figure_is_noticed(monkeypatch):
    monkeypatch.setitem(normal._MSE, "E4M3", ((0.000862, 0.000763, 0.000705, 0.000705), 5e-7))
    assert "E4M3 even" in [c.what for c in reproduce(["M4"])["M4"].evidence.comparisons if not c.agrees]
