"""Tests of claim D1: the bits that a matrix unit keeps, and the errors of its sums."""

from __future__ import annotations

import numpy as np
import pytest

from mxnum.lab.claims import Verdict, Whose
from mxnum.lab.claims.rows import d01


@pytest.mark.filterwarnings("ignore:Unit 'blackwell_fp8':mxnum.units.EvidenceWarning")
@pytest.mark.parametrize(("unit", "bits"), [("hopper_fp8", 14), ("hopper_fp8_promoted", 14), ("blackwell_fp8", 24)])
def test_bits_kept(unit, bits):
    """Check how many bits a unit keeps; Blackwell keeps all 24 bits of a float32 significand."""
    assert d01.bits_kept(unit) == bits


def test_elements_are_exact_under_one_scale():
    x = np.linspace(-3, 3, 64).reshape(4, 16)
    found = d01._elements(x).astype(np.float64)
    assert abs(found).max() == 448
    assert abs(found / 448 * 3 - x).max() <= 3 / 16


def test_the_paper_does_not_say_what_its_error_is_relative_to(checked):
    entry = checked("D1")
    assert entry.verdict == Verdict.UNDECIDED
    paper, own = entry.evidence.parts[Whose.PAPER], entry.evidence.parts[Whose.OURS]
    assert [s.holds for s in paper.statements] == [None, True, True]
    assert paper.comparisons[0].found == 14
    assert [s.holds for s in own.statements] == [True, True]
    # Under one reading of the claim the largest error is below the paper's figure, under another
    # reading it is above.
    largest = [e.largest for (_, unit), e in d01.errors_at(d01.K).items() if unit == d01.PLAIN]
    assert min(largest) < 0.02 < max(largest)


def test_a_mean_outside_the_bounds_is_seen(monkeypatch):
    assert d01.within_bounds("hopper_fp8", 512)[0]
    monkeypatch.setattr(d01, "mean_sum", lambda unit, k: d01_other(k))
    assert not d01.within_bounds("hopper_fp8", 512)[0]


def d01_other(k):
    """Return `mean_sum` for a unit that keeps one bit less than hopper_fp8."""
    from mxnum import units
    from mxnum.lab.theory.truncated_sums import mean_sum

    return mean_sum(units.get("hopper_fp8").but(name="other", fraction_bits=12, result_bits=12), k)
