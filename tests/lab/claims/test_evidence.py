"""Tests of the rule that derives the verdict on a claim from its evidence."""

from __future__ import annotations

import json
from dataclasses import asdict, replace

import numpy as np
import pytest

from mxnum.lab.claims import CLAIMS, Comparison, Evidence, Statement, Verdict, Whose
from mxnum.lab.claims.evidence import answered, ours, unanimous
from mxnum.lab.claims.page import HEADINGS, headed

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
def test_verdict_follows_from_comparisons_and_statements(comparisons, statements, verdict):
    assert Evidence(comparisons, statements).verdict == verdict


@pytest.mark.parametrize(
    ("comparisons", "statements", "verdict"),
    [
        ((), (), Verdict.NOT_RUN),
        ((), (OPEN,), Verdict.UNDECIDED),
        ((AGREES,), (YES,), Verdict.CONFIRMED),
        ((AGREES,), (YES, OPEN), Verdict.UNDECIDED),
        ((AGREES, DIFFERS), (), Verdict.CORRECTED),
        ((), (YES, NO, OPEN), Verdict.CORRECTED),
        ((), (NO,), Verdict.CORRECTED),
    ],
)
@pytest.mark.parametrize("whose", [Whose.OURS, Whose.KEPT])
def test_rule_where_no_paper_says_anything(comparisons, statements, verdict, whose):
    assert Evidence(comparisons, statements).of(whose).verdict == verdict


@pytest.mark.parametrize("papers", [YES, NO, OPEN])
@pytest.mark.parametrize("others", [YES, NO, OPEN])
def test_our_statements_do_not_change_a_papers_verdict(papers, others):
    kept = replace(DIFFERS, whose=Whose.KEPT)
    mixed = Evidence((kept,), (papers, *ours(others))).of(Whose.PAPER)
    assert mixed.verdict == Evidence(statements=(papers,)).verdict
    assert list(mixed.parts) == [Whose.PAPER, Whose.OURS, Whose.KEPT]
    assert [heading for heading, _ in headed(mixed)] == list(HEADINGS.values())
    assert [item for _, part in headed(mixed) for item in part.items] == [*mixed.statements, *mixed.comparisons]
    assert mixed.counts.endswith("; kept: 0 of 1 figures agree")


def test_statements_keep_their_owner():
    mixed = Evidence(statements=(YES, *ours(NO)))
    assert [s.whose for s in mixed.of(Whose.PAPER).statements] == [Whose.PAPER, Whose.OURS]
    assert mixed.of(Whose.OURS).verdict == Verdict.CORRECTED
    assert [heading for heading, _ in headed(Evidence(statements=(YES,)))] == [""]


def test_rows_beyond_both_papers_are_ours_unless_they_name_a_paper():
    for claim in CLAIMS.values():
        beyond = claim.id in ("M4", "I6c") or (claim.id[0] == "B" and "arXiv" not in claim.sentence)
        assert (claim.whose == Whose.OURS) == beyond, claim.id


def test_nan_never_agrees():
    assert not Comparison("x", 1.0, float("nan"), 10.0).agrees


def test_text_gives_both_numbers():
    assert str(AGREES) == "x: 1.004 = 1 (±0.005)"
    assert str(DIFFERS) == "x: 1.006 against 1 (±0.005)"
    assert str(OPEN) == "it is so: undecided"
    assert str(Statement("it is so", False, "3 of 4")) == "it is so: no (3 of 4)"


def test_brief_counts_and_lists_failures():
    comparisons = tuple(Comparison(f"f{i}", 1, found, 0.1) for i, found in enumerate((1, 2, 3, 4)))
    statements = (Statement("s", True), Statement("t", False, "so"), Statement("u", None))
    assert Evidence(comparisons, statements).brief() == (
        "1 of 2 statements hold, 1 of 4 figures agree, 1 undecided. "
        "Not confirmed: t: no (so); f1: 2 against 1 (±0.1); and 2 more."
    )
    assert Evidence(statements=statements[:1]).brief() == "1 of 1 statements hold."
    assert Evidence().brief() == ""


@pytest.mark.parametrize("holds", [np.True_, np.False_])
def test_numpy_booleans_can_be_stored(holds):
    statement = Statement("it is so", holds)
    assert json.loads(json.dumps(asdict(statement)))["holds"] is bool(holds)


def test_an_answer_stands_only_if_all_agrees():
    assert answered(Evidence((AGREES,), (YES,)), "It is.").answer == "It is."
    for comparisons, statements in (((AGREES, DIFFERS), ()), ((AGREES,), (YES, OPEN)), ((), (NO,))):
        assert not answered(Evidence(comparisons, statements), "It is.").answer


def test_the_number_counts_figures_unless_given():
    assert answered(Evidence((AGREES, DIFFERS)), "").number == "1 of 2 figures"
    assert answered(Evidence((AGREES, DIFFERS)), "", "4.25 bits").number == "4.25 bits"


@pytest.mark.parametrize(
    ("statements", "all_say"),
    [([YES, YES], True), ([NO], False), ([OPEN, OPEN], None), ([YES, OPEN], None), ([YES, NO], None), ([], None)],
)
def test_unanimous(statements, all_say):
    assert unanimous(statements) is all_say
