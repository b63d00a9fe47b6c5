"""Tests that theorems about the CUDA formulation are refuted for wrong functions and elements."""

from __future__ import annotations

import pytest

from mxnum.definition.word import dialect, select
from mxnum.engine.cuda import scaled
from mxnum.formats import ELEMENTS, FLOATS
from proofs.theorems import scaled as theorems

FLOAT32 = FLOATS["float32"]


def test_an_element_whose_ties_go_otherwise_is_refuted() -> None:
    outcome = theorems.check_code(FLOAT32, ELEMENTS["e3m0"])
    assert outcome.verdict == "refuted"
    assert "x = 0x" in outcome.detail


def test_scales_of_an_element_whose_largest_exponent_is_zero_are_refuted() -> None:
    assert theorems.check_scale(FLOAT32, ELEMENTS["int8"]).verdict == "refuted"


def test_a_power_of_two_that_forgets_the_subnormal_is_refuted(monkeypatch: pytest.MonkeyPatch) -> None:
    @dialect
    def down(scale):  # type: ignore[no-untyped-def]
        return (254 - scale) << 23

    monkeypatch.setattr(theorems, "_down", down)
    assert theorems.check_code(FLOAT32, ELEMENTS["e2m1"]).verdict == "refuted"


def test_a_missing_clamp_is_refuted(monkeypatch: pytest.MonkeyPatch) -> None:
    right = scaled._make_rounded

    def make(source, element):  # type: ignore[no-untyped-def]
        rounded = right(source, element)

        @dialect
        def twice(x, down):  # type: ignore[no-untyped-def]
            sign, total, power = rounded(x, down)
            return sign, total, select(power > 0x40000000, 0x40000000, power)

        return twice

    monkeypatch.setattr(scaled, "_make_rounded", make)
    assert theorems.check_value(ELEMENTS["e2m1"]).verdict == "refuted"
