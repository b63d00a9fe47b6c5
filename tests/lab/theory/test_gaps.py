"""Tests of the gaps of E4M3 against the figures of claim I3."""

from __future__ import annotations

from mxnum.lab.theory.gaps import relative_gaps


def test_claim_i3():
    gaps = relative_gaps("e4m3")
    assert len(gaps) == 125  # between 126 positive codes
    subnormal = [round(100 * float(g), 1) for g in gaps[:7]]
    assert subnormal == [100, 50, 33.3, 25, 20, 16.7, 14.3]
    binade = [100 * float(g) for g in gaps[7:15]]
    assert binade[0] == 12.5
    assert round(binade[-1], 1) == 6.7
    assert binade == sorted(binade, reverse=True)
