"""The verdict follows from the evidence by the rule, in every case."""

from __future__ import annotations

import pytest

from mxnum.claims import Comparison, Evidence, Statement, Verdict

YES, NO, OPEN = (Statement("it is so", holds) for holds in (True, False, None))
AGREES, DIFFERS = Comparison("x", 1.0, 1.004, 0.005), Comparison("x", 1.0, 1.006, 0.005)


@pytest.mark.parametrize(
    ("comparisons", "statements", "verdict"),
    [
        ((), (), Verdict.UNDECIDED),
        ((), (OPEN,), Verdict.UNDECIDED),
        ((AGREES,), (), Verdict.REPRODUCED),
        ((), (YES,), Verdict.REPRODUCED),
        ((AGREES,), (YES,), Verdict.REPRODUCED),
        ((AGREES,), (YES, OPEN), Verdict.UNDECIDED),
        ((DIFFERS,), (), Verdict.DIFFERS),
        ((AGREES, DIFFERS), (), Verdict.DIFFERS),
        ((AGREES,), (NO,), Verdict.DIFFERS),
        ((DIFFERS,), (YES,), Verdict.DIFFERS),
        ((), (YES, NO), Verdict.DIFFERS),
        ((), (YES, NO, OPEN), Verdict.DIFFERS),
        ((), (NO, NO), Verdict.NOT_REPRODUCED),
        ((), (NO, OPEN), Verdict.NOT_REPRODUCED),
        ((DIFFERS,), (NO,), Verdict.NOT_REPRODUCED),
    ],
)
def test_rule(comparisons, statements, verdict):
    assert Evidence(comparisons, statements).verdict == verdict


def test_nan_never_agrees():
    assert not Comparison("x", 1.0, float("nan"), 10.0).agrees


def test_text_gives_both_numbers():
    assert str(AGREES) == "x: 1.004 = 1 (±0.005)"
    assert str(DIFFERS) == "x: 1.006 against 1 (±0.005)"
    assert str(OPEN) == "it is so: cannot be told"
    assert str(Statement("it is so", False, "3 of 4")) == "it is so: no (3 of 4)"
