"""Tests that the check of claim I4 notices a scale rule under which nothing is clamped."""

from __future__ import annotations

from functools import partial

from mxnum.lab.claims import reproduce
from mxnum.lab.claims.rows import i04


def test_without_clamping_zeta_has_no_common_sign(monkeypatch):
    monkeypatch.setattr(i04, "fake_quantize", partial(i04.fake_quantize, scale_rule="rceil"))
    held = {s.what: s.holds for s in reproduce(["I4"])["I4"].evidence.statements}
    assert held["if weights are clamped, the gradient is (I + zeta) times the exact gradient"]
    assert not held["if weights are clamped, zeta has one sign across each block"]
