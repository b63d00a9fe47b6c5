"""The bound on block sums is noticed when it does not hold."""

import pytest

from mxnum.engine import panels
from proofs.theorems import products


def test_a_plan_that_trusts_floats_too_far_is_refuted(monkeypatch: pytest.MonkeyPatch) -> None:
    assert products.check("e3m2", "e3m2").verdict == "proved"
    monkeypatch.setattr(panels, "_EXACT", {"float32": 30, "float64": 53})
    outcome = products.check("e3m2", "e3m2")
    assert outcome.verdict == "refuted"
    assert "can exceed 2**24 units" in outcome.detail


def test_units_that_are_too_coarse_are_refuted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(panels, "plan", lambda a, b, run: panels.Plan("float64", False, -2, -3))
    assert products.check("e2m3", "e2m3").verdict == "refuted"


def test_no_plan_at_all_is_refuted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(panels, "plan", lambda a, b, run: None)
    assert "nothing was checked" in products.check("e2m1", "e2m1").detail
