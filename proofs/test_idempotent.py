"""Tests that the theorems on quantizing twice leave out only cases for which they are false."""

from __future__ import annotations

from typing import Any

import pytest

from proofs.specs import tables
from proofs.theorems import idempotent


@pytest.mark.parametrize(
    ("element", "rule", "rounding"),
    [("e4m3", "even", "rtz"), ("e5m2", "ceil", idempotent.INFINITY)],
)
def test_what_is_left_out_is_false(element: Any, rule: Any, rounding: Any) -> None:
    assert rounding not in idempotent.roundings(element, rule)
    assert idempotent.check("float32", element, rule, rounding).verdict == "refuted"


def test_nothing_else_is_left_out() -> None:
    for element in tables.ELEMENTS:
        for rule in ("floor", "ceil", "even", "rceil"):
            modes = set(idempotent.roundings(element, rule))
            assert (modes >= set(idempotent.ANY)) == ((element, rule) != ("e4m3", "even"))
            assert (idempotent.INFINITY in modes) == (rule != "ceil")


def test_an_element_whose_values_do_not_double_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    class Odd:
        max_code = 3

        def value(self, code: int) -> float:
            return (0.0, 1.0, 3.0, 4.0)[code]

    assert idempotent.doubles("int8")
    monkeypatch.setitem(idempotent.ELEMENTS, "int8", Odd())  # type: ignore[arg-type]
    assert idempotent.check_all("float32", "int8", "floor").verdict == "refuted"
