"""Tests that claim M4 states the figures that its check compares, and that wrong figures fail."""

from __future__ import annotations

from mxnum.lab.claims import (
    CLAIMS,
    reproduce,
)
from mxnum.lab.claims.rows import (
    m04,
)


def test_the_row_has_the_figures_that_are_compared():
    for figures, _ in m04.FIGURES.values():
        assert " ".join(f"{figure:f}".rstrip("0") for figure in figures) in CLAIMS["M4"].sentence


def test_a_wrong_figure_is_noticed(monkeypatch):
    monkeypatch.setitem(m04.FIGURES, "E4M3", ((0.000862, 0.000763, 0.000705, 0.000705), 5e-7))
    assert "E4M3 even" in [c.what for c in reproduce(["M4"])["M4"].evidence.comparisons if not c.agrees]
