"""The verdict follows from the evidence by the rule, in every case."""

from __future__ import annotations

import json
from dataclasses import asdict

import numpy as np
import pytest

from mxnum.claims import Comparison, Evidence, Statement, Verdict

YES, NO, OPEN = (Statement("it is so", holds) for holds in (True, False, None))
AGREES, DIFFERS = Comparison("x", 1.0, 1.004, 0.005), Comparison("x", 1.0, 1.006, 0.005)


@pytest.mark.parametrize(
    ("comparisons", "statements", "verdict"),
    [
        ((), (), Verdict.NOT_RUN),
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


def test_in_brief():
    from mxnum.claims import Comparison, Evidence, Statement

    comparisons = tuple(Comparison(f"f{i}", 1, found, 0.1) for i, found in enumerate((1, 2, 3, 4)))
    statements = (Statement("s", True), Statement("t", False, "so"), Statement("u", None))
    assert Evidence(comparisons, statements).brief() == (
        "1 of 2 statements hold, 1 of 4 figures agree, 1 cannot be told. "
        "Not so: t: no (so); f1: 2 against 1 (±0.1); and 2 more."
    )
    assert Evidence(statements=statements[:1]).brief() == "1 of 1 statements hold."
    assert Evidence().brief() == ""


def test_evidence_through_json():
    import dataclasses
    import json

    from mxnum.claims import Comparison, Evidence, Statement
    from mxnum.claims.evidence import evidence_from

    found = Evidence((Comparison("a", 1, 2, 0.5),), (Statement("b", None, "c"),), "d", {"e": [1]})
    assert evidence_from(json.loads(json.dumps(dataclasses.asdict(found)))) == found


@pytest.mark.parametrize("holds", [np.True_, np.False_])
def test_what_numpy_found_can_be_stored(holds):
    statement = Statement("it is so", holds)
    assert json.loads(json.dumps(asdict(statement)))["holds"] is bool(holds)
