"""Tests that theorems are refuted if code that calls the fast formulations has a mistake."""

from __future__ import annotations

import pytest

from mxnum.engine.rounding import any_scale, as_float32
from mxnum.modes import Overflow, Rounding, ScaleRule
from proofs.theorems import beyond as about_beyond
from proofs.theorems import narrowing

SATURATE = Overflow.SATURATE


@pytest.mark.parametrize("rounding", [Rounding.RNE, Rounding.RTP, Rounding.RTO])
def test_truncating_instead_of_rounding_to_odd(monkeypatch, rounding):
    assert narrowing.check("e2m1", rounding, SATURATE).verdict == "proved"
    monkeypatch.setattr(as_float32, "to_odd", as_float32.leading_part)
    assert narrowing.check("e2m1", rounding, SATURATE).verdict == "refuted"


def test_a_largest_magnitude_must_be_rounded_to_odd_too(monkeypatch):
    monkeypatch.setattr(as_float32, "to_odd", as_float32.leading_part)
    assert narrowing.check_scale(ScaleRule.FLOOR).verdict == "proved"
    assert narrowing.check_scale(ScaleRule.CEIL).verdict == "refuted"


@pytest.mark.parametrize(("name", "mistake"), [("_LEAST_WIDE", 0), ("_KEPT", -1), ("_SIGN_WIDE", 0)])
def test_a_conversion_must_round_to_odd_as_integers_do(monkeypatch, name, mistake):
    assert narrowing.check_conversion().verdict == "proved"
    monkeypatch.setattr(as_float32, name, mistake)
    assert narrowing.check_conversion().verdict == "refuted"


def test_stochastic_rounding_needs_the_rest(monkeypatch):
    monkeypatch.setattr(as_float32, "rest", lambda x, leading, scale, e: leading & 0)
    assert narrowing.check("e2m1", Rounding.SR, SATURATE).verdict == "refuted"


def test_what_a_product_takes_to_zero_must_not_become_zero(monkeypatch):
    assert about_beyond.check_code("e2m1", Rounding.RTP, SATURATE).verdict == "proved"
    monkeypatch.setattr(any_scale, "_LEAST", -126)
    assert about_beyond.check_code("e2m1", Rounding.RTP, SATURATE).verdict == "refuted"
    assert about_beyond.check_code("e2m1", Rounding.RNE, SATURATE).verdict == "proved"


def test_what_is_too_large_must_stay_so(monkeypatch):
    monkeypatch.setattr(any_scale, "_GREATEST", 127 << 23)
    assert about_beyond.check_code("e2m1", Rounding.RNE, SATURATE).verdict == "refuted"
