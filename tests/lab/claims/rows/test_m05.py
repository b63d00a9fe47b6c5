"""Tests of claim M5: an offset helps some tensors and hurts others."""

from __future__ import annotations

from mxnum.lab.claims import (
    Verdict,
)


def test_asymmetric_scaling(checked, held):
    answers = held("M5")
    assert checked("M5").verdict == Verdict.DIFFERS
    assert answers["weights: an offset lowers the error of INT4 (rule ceil)"]
    assert answers["activations: an offset lowers the error of INT4 (rule ceil)"]
    assert not answers["gradients: an offset lowers the error of INT4 (rule ceil)"]
    assert "on weights and activations, by a factor of at most 1.15" in checked("M5").evidence.answer
    assert "raises it on gradients. Undecided: whether the factor reaches 1.36" in checked("M5").evidence.answer
