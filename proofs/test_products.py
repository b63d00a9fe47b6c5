"""Tests that the theorem about block sums fails if one of its bounds does not hold."""

from dataclasses import replace

import pytest

from mxnum.engine.products import exactness, integers, panels
from mxnum.formats import ELEMENTS
from proofs.theorems import products


def test_a_plan_that_trusts_floats_too_far_is_refuted(monkeypatch: pytest.MonkeyPatch) -> None:
    assert products.check("e3m2", "e3m2").verdict == "proved"
    monkeypatch.setattr(exactness, "_EXACT", {"float32": 30, "float64": 53})
    monkeypatch.setattr(exactness, "exactness_of", exactness.exactness_of.__wrapped__)
    outcome = products.check("e3m2", "e3m2")
    assert outcome.verdict == "refuted"
    assert "can exceed 2**24 units" in outcome.detail


def test_units_that_are_too_coarse_are_refuted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exactness, "exactness_of", lambda *_: exactness.Exactness("float64", True, True, -2, -3))
    assert products.check("e2m3", "e2m3").verdict == "refuted"


def test_no_plan_at_all_is_refuted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exactness, "exactness_of", lambda *_: None)
    assert "nothing was checked" in products.check("e2m1", "e2m1").detail


@pytest.mark.parametrize("word", ["int8", "int16"])
def test_integers_that_words_do_not_hold_are_refuted(word: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert products.check("e2m1", "int8").verdict == "proved"
    monkeypatch.setattr(integers, "word_for", lambda a, b, run, instructions: word if run % 4 == 0 else None)
    monkeypatch.setattr(exactness, "exactness_of", exactness.exactness_of.__wrapped__)
    assert f"{word} does not hold" in products.check("e2m1", "int8").detail


def test_scales_with_too_many_bits_are_refuted(monkeypatch: pytest.MonkeyPatch) -> None:
    original = exactness.exactness_of
    monkeypatch.setattr(exactness, "exactness_of", lambda a, b, run, given="", extra=0: original(a, b, run, given))
    assert "scales with 1 and 24 bits may be too long for float32" in products.check("e2m1", "e2m1").detail
    assert "may be too long for float64" in products.check("e4m3", "e4m3").detail
    assert "an operand is split" in products.check("e5m2", "e5m2").detail


def test_integers_that_are_unpacked_wrongly_are_refuted(monkeypatch: pytest.MonkeyPatch) -> None:
    original = integers.integers_of
    monkeypatch.setattr(integers, "integers_of", lambda element: replace(original(element), unit=0))
    assert "unpacked to a wrong value" in products.check("e2m3", "e2m3").detail


def test_widths_that_are_too_small_are_refuted(monkeypatch: pytest.MonkeyPatch) -> None:
    assert products.check("e5m2", "e5m2").verdict == "proved"
    original = exactness.bits_between
    monkeypatch.setattr(exactness, "bits_between", lambda *args: original(*args) - 1)
    assert "returns too few bits" in products.check("e5m2", "e5m2").detail


def test_widths_that_are_compared_with_too_many_bits_are_refuted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exactness, "bits_to_spare", lambda run: 54 - run.bit_length())
    assert "too many bits" in products.check("e5m2", "e4m3").detail


def test_codes_that_are_unpacked_wrongly_are_refuted(monkeypatch: pytest.MonkeyPatch) -> None:
    original = panels.decoder
    monkeypatch.setattr(panels, "decoder", lambda element: original(ELEMENTS["e2m1"]))
    assert "unpacked to a wrong value" in products.check("e2m1", "e3m0").detail
