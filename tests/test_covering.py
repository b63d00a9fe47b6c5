"""Tests that a covering array has every promised combination of values, in few cases."""

from __future__ import annotations

from itertools import combinations, product

import pytest

from tests.covering import covering

CHOICES = {"a": range(8), "b": range(7), "c": ["floor", "ceil", "even", "rceil"], "d": (True, False), "e": "xyz"}


def meetings(cases, names):
    """Return the combinations of values that the parameters `names` have in `cases`."""
    return {tuple(case[name] for name in names) for case in cases}


@pytest.mark.parametrize("strength", [1, 2, 3])
def test_all_combinations_of_strength_choices_occur(strength):
    found = covering(strength=strength, **CHOICES)
    for names in combinations(CHOICES, strength):
        assert meetings(found, names) == set(product(*(CHOICES[name] for name in names)))
    assert found.missing() == 0
    assert len(found) < {1: 9, 2: 70, 3: 300}[strength] < len(found.possible) == 8 * 7 * 4 * 2 * 3


def test_the_cases_are_the_same_in_every_run():
    assert covering(**CHOICES).chosen == covering(**CHOICES).chosen


def test_missing_counts_combinations_that_no_case_has():
    found = covering(**CHOICES)
    fewer = [n for n in found.chosen if (found.case(n)["a"], found.case(n)["c"]) != (3, "even")]
    assert found.missing(fewer) >= 1
    assert found.missing([]) == 217 == sum(len(p) * len(q) for p, q in combinations(CHOICES.values(), 2))


def test_all_pairs_occur_even_among_very_many_cases():
    many = {name: range(5) for name in "abcdefg"}
    found = covering(**many)
    assert len(found.possible) == 5**7
    assert len(found) < 60
    for names in combinations(many, 2):
        assert len(meetings(found, names)) == 25


def test_impossible_combinations_do_not_occur_and_are_not_missing():
    found = covering(**CHOICES, where=lambda a, d, **rest: a > 3 or d)
    assert all(case["a"] > 3 or case["d"] for case in map(found.case, range(len(found.possible))))
    assert found.missing() == 0
    assert meetings(found, "ad") == {(a, d) for a in range(8) for d in (True, False) if a > 3 or d}


def test_pairs_in_apart_need_no_cases():
    found = covering(**CHOICES, apart=[("a", "b")])
    assert found.missing() == 0
    assert len(found) <= 40
    for names in combinations(CHOICES, 2):
        if names != ("a", "b"):
            assert meetings(found, names) == set(product(*(CHOICES[name] for name in names)))
    alone = covering(a=range(8), b=range(7), apart=[("a", "b")])
    assert len(alone) == 8
    assert meetings(alone, "b") == {(b,) for b in range(7)}


def test_text_says_what_is_covered():
    told = str(covering(a=range(3), b=range(2), c=range(2), apart=[("a", "b")]))
    assert told == "6 of 12 cases of a (3), b (2), c (2). All combinations of these occur: a with c; b with c."


def test_kinds_occur_with_all_values_of_other_choices():
    found = covering(a=range(8), b=range(7), kinds={"a": lambda a: a % 3})
    assert found.missing() == 0
    assert {(case["a"] % 3, case["b"]) for case in found} == set(product(range(3), range(7)))
    assert meetings(found, "a") == {(a,) for a in range(8)}
    assert len(found) == 21
    assert (
        str(found) == "21 of 56 cases of a (8, 3 kinds), b (7). All combinations of these occur: kind of a with b; a."
    )


def test_cases_outside_the_covering_are_in_the_full_tier():
    found = covering(a=range(4), b=range(3), c=range(2))
    fast = found.parametrize.args[1]
    assert [row.values for row in fast] == [tuple(case.values()) for case in found]
    rows = found.parametrize_in_tiers.args[1]
    assert [row.values for row in rows if not row.marks] == [row.values for row in fast]
    assert len(rows) == 24
    assert {mark.name for row in [*fast, *rows] for mark in row.marks} == {"full"}


def test_too_many_combinations_raise():
    with pytest.raises(ValueError, match="2000000 combinations are too many"):
        covering(a=range(2000), b=range(1000))
