"""Tests of claim M11: conclusions from the published speed-ups."""

from __future__ import annotations

import pytest

from mxnum.lab.claims import (
    Verdict,
    reproduce,
)
from mxnum.lab.claims.rows import (
    m11,
)
from mxnum.lab.theory import Recipe, project_shares


@pytest.mark.parametrize("calibrate", [m11.squared, m11.nominal])
def test_calibrations_give_what_they_were_made_from(calibrate):
    model = calibrate(1.72, 2.73)
    shares = {"mlp": model.linear, "rest": 1 - model.linear}
    rates = {"fp8": model.fp8, "fp4": model.fp4}
    for name, want in (("fp8", 1.72), ("fp4", 2.73)):
        got = project_shares(shares, Recipe.of(name), rates=rates, conversion=model.conversion)
        assert got.speed_up == pytest.approx(want, rel=1e-12)


def test_calibrated_parameters():
    squared, nominal = m11.squared(1.72, 2.73), m11.nominal(1.72, 2.73)
    assert squared.linear == pytest.approx(0.861, abs=5e-4)
    assert squared.fp8 == pytest.approx(1.946, abs=5e-4)
    assert nominal.linear == pytest.approx(0.860, abs=5e-4)
    assert nominal.conversion == pytest.approx(0.0135, abs=5e-5)


def test_the_verdict_and_what_it_rests_on():
    entry = reproduce(["M11"])["M11"]
    assert entry.verdict == Verdict.DIFFERS
    held = {s.what.split(":")[0][:40]: s.holds for s in entry.evidence.statements}
    assert list(held.values()) == [True, True, True, False, True, False, False, False, False, True]
    (alone,) = entry.evidence.comparisons
    assert (alone.claimed, alone.agrees) == (2.48, False)
    assert alone.found == pytest.approx(2.0846, abs=1e-4)
    told = " ".join(str(s) for s in entry.evidence.statements)
    for figure in (
        "94.2%",
        "82.1%",
        "26.6%",
        "2.28 with two gradient products",
        "1.96 with one, 1.72 with none",
        "2.99",
        "3.12",
    ):
        assert figure in told
    assert "2.470 (2.465 to 2.476" in entry.evidence.note


def test_mlps_that_had_the_share_would_be_seen(monkeypatch):
    from mxnum.lab.theory import TransformerShape

    wide = TransformerShape(126, 16384, 184_000, 128, 8, 128256, 8192)
    monkeypatch.setitem(m11.SHAPES, m11.SHAPE, wide)
    evidence = reproduce(["M11"])["M11"].evidence
    assert evidence.comparisons[0].agrees
    assert evidence.statements[5].holds


def test_rounding_widens():
    value, low, high = m11.rounded(lambda a: 2 * a, "FP8")
    assert (value, low, high) == pytest.approx((3.44, 3.43, 3.45))
