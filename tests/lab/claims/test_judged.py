"""Rules that every check shares."""

from __future__ import annotations

import pytest

from mxnum.lab.claims import Comparison, Evidence, Statement
from mxnum.lab.claims.judged import answered, unanimous

GOOD, BAD = Comparison("a", 1, 1, 0), Comparison("b", 1, 2, 0)


def test_an_answer_stands_only_if_all_agrees():
    yes = Statement("it is", True)
    assert answered(Evidence((GOOD,), (yes,)), "It is.").answer == "It is."
    for comparisons, statements in (
        ((GOOD, BAD), ()),
        ((GOOD,), (yes, Statement("so", None))),
        ((), (Statement("", False),)),
    ):
        assert not answered(Evidence(comparisons, statements), "It is.").answer


def test_the_number_counts_figures_unless_given():
    assert answered(Evidence((GOOD, BAD)), "").number == "1 of 2 figures"
    assert answered(Evidence((GOOD, BAD)), "", "4.25 bits").number == "4.25 bits"


@pytest.mark.parametrize(
    ("holds", "all_say"),
    [
        ([True, True], True),
        ([False], False),
        ([None, None], None),
        ([True, None], None),
        ([True, False], None),
        ([], None),
    ],
)
def test_unanimous(holds, all_say):
    assert unanimous(Statement("", each) for each in holds) is all_say
