"""Figures of normal numbers: the error bars hold what the quadrature says, and would not hold much else."""

from __future__ import annotations

import numpy as np
import pytest

from mxnum.claims import Verdict, normal, reproduce


@pytest.fixture(scope="module")
def report():
    return reproduce(["M3", "M4", "B5"])


def test_verdicts(report):
    assert [e.verdict for e in report] == [Verdict.UNDECIDED, Verdict.REPRODUCED, Verdict.REPRODUCED]
    assert all(c.agrees for e in report for c in e.evidence.comparisons)
    assert report["M3"].evidence.statements[0].holds is None


def test_error_bars_are_tight_enough_to_refute(report):
    for id, most in (("M3", 0.10), ("M4", 0.03), ("B5", 0.02)):
        for c in report[id].evidence.comparisons:
            assert c.tolerance <= most * max(abs(c.claimed), 1e-9) or c.claimed == 0, str(c)


def test_mean_gives_five_standard_errors():
    values = np.array([1.0, 3.0] * 50)
    assert normal.mean(values) == (2.0, pytest.approx(5 * 1.0 / 10))


def test_a_wrong_figure_is_noticed(monkeypatch):
    monkeypatch.setitem(normal._MSE, "E2M1", ((0.01321, 0.0130, 0.02077, 0.01331), 5e-6))
    entry = reproduce(["M4"])["M4"]
    assert [c.what for c in entry.evidence.comparisons if not c.agrees] == ["E2M1 even"]
