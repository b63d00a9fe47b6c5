"""Tests that the check of claim I2 notices a wrong figure."""

from __future__ import annotations

from mxnum.lab.claims import (
    Verdict,
    reproduce,
)
from mxnum.lab.claims.rows import (
    i02,
)


def test_a_wrong_figure_is_noticed(monkeypatch):
    monkeypatch.setitem(i02.FIGURES, "mxint8", ((1.56, 0.005), (1.15, 0.005), (0.78, 0.005)))
    entry = reproduce(["I2"])["I2"]
    assert entry.verdict == Verdict.DIFFERS
    assert [c.what for c in entry.evidence.comparisons if not c.agrees] == ["mxint8: overflow %, log-uniform"]
