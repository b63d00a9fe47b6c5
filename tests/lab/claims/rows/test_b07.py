"""Tests that compare the computed values of claim B7 with the claimed figures."""

from __future__ import annotations


def test_only_last_digits_of_the_bias_differ(checked):
    off = [c for c in checked("B7").evidence.comparisons if not c.agrees]
    assert len(off) == 4
    assert all(abs(c.found - c.claimed) < 1e-4 for c in off)
