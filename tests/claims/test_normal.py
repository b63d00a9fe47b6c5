"""Figures of normal numbers: the error bars hold what the quadrature says, and would not hold much else."""

from __future__ import annotations

import numpy as np
import pytest

from mxnum.claims import Verdict, normal, reproduce


@pytest.fixture(scope="module")
def report(checked):
    return {id: checked(id) for id in ("M3", "M4", "B5")}


def test_verdicts(report):
    assert [entry.verdict for entry in report.values()] == [Verdict.UNDECIDED, Verdict.DIFFERS, Verdict.REPRODUCED]
    for entry in report.values():
        assert entry.evidence.statements[0].holds, str(entry.evidence.statements[0])


def test_only_last_digits_of_the_mean_squared_errors_differ(report):
    off = {c.what: c for c in report["M4"].evidence.comparisons if not c.agrees}
    assert set(off) == {"E2M3 floor", "E2M3 even", "E2M1 floor", "E2M1 even", "E2M1 ceil", "E3M0 even"}
    assert all(abs(c.found - c.claimed) < 4 * c.tolerance for c in off.values())


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
    monkeypatch.setitem(normal._MSE, "E4M3", ((0.00086, 0.00077, 0.00070, 0.00070), 5e-6))
    assert "E4M3 even" in [c.what for c in reproduce(["M4"])["M4"].evidence.comparisons if not c.agrees]
