"""Tests that the check of claim M9 notices a number of bytes that differs from the formula's."""

from __future__ import annotations

from mxnum.lab.claims import reproduce
from mxnum.lab.claims.rows import m09


def test_wrong_block_size_is_noticed(monkeypatch):
    real = m09.quantize
    monkeypatch.setattr(m09, "quantize", lambda x, name, block_size: real(x, name, block_size=32))
    off = [c.what for c in reproduce(["M9"])["M9"].evidence.comparisons if not c.agrees]
    assert len(off) == 8
    assert all("blocks of 16" in what for what in off)
