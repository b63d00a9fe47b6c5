"""Tests that the proofs about fused sums fail if the code has a mistake."""

import pytest

from mxnum.definition import fused_sum
from mxnum.definition.word import dialect, select
from mxnum.formats import ELEMENTS
from mxnum.modes import Rounding
from proofs.theorems import fused_sums


def test_parts_of_another_format_are_refuted(monkeypatch: pytest.MonkeyPatch) -> None:
    assert fused_sums.check_parts("e2m1").verdict == "proved"
    monkeypatch.setattr(fused_sums, "make_parts", lambda source: fused_sum.make_parts(ELEMENTS["e3m0"]))
    assert "code 0x1" in fused_sums.check_parts("e2m1").detail


def test_an_alignment_that_floors_is_refuted(monkeypatch: pytest.MonkeyPatch) -> None:
    @dialect
    def floor(sign, exponent, significand, largest, left, right):  # type: ignore[no-untyped-def]
        distance = largest - exponent + right
        distance = select(distance > 62, 62, distance)
        value = significand << left
        return select(sign == 0, value, 0 - value) >> distance

    monkeypatch.setattr(fused_sums, "align", floor)
    assert fused_sums.check_align(6).verdict == "refuted"


@pytest.mark.parametrize(("kept", "bits"), [("rtz", 10), ("rna", 10)])
def test_another_rounding_is_refuted(monkeypatch: pytest.MonkeyPatch, kept: str, bits: int) -> None:
    original = fused_sum.make_finish
    monkeypatch.setattr(fused_sums, "make_finish", lambda accumulator, rounding: original(accumulator, Rounding(kept)))
    assert fused_sums.check_round("float16", Rounding.RNE, bits).verdict == "refuted"
