"""Tests of claim M6: its verdict is undecided, and its statements about tensors hold."""

from __future__ import annotations

from mxnum.lab.claims import (
    Verdict,
)


def test_smaller_blocks(checked, held):
    assert checked("M6").verdict == Verdict.UNDECIDED
    assert all(held("M6")[s] for s in held("M6") if s.startswith(("weights", "activ", "grad")))
