"""Tests of claim I1: its answer says which values rounding without clamping would give.

The check of the claim must fail with a wrong scale rule.
"""

from __future__ import annotations

from mxnum.lab.claims import (
    Verdict,
    reproduce,
)
from mxnum.lab.claims.rows import (
    i01,
)


def test_the_answer_of_i1_says_what_rounding_alone_gives():
    answer = reproduce(["I1"])["I1"].evidence.answer
    assert answer.startswith("All 5 weights become 448; rounding without clamping would give 448 too. In")


def test_a_wrong_scale_rule_is_noticed(monkeypatch):
    real = i01.measure
    monkeypatch.setattr(i01, "measure", lambda *a, **k: real(*a, **k, scale_rule="even"))
    assert reproduce(["I1"])["I1"].verdict == Verdict.DIFFERS
