"""Tests that the ledger page is complete, linked, and up to date."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from mxnum.lab.claims import CLAIMS, Comparison, Context, Entry, Evidence, Report, Statement, Verdict
from mxnum.lab.claims.page import COMMAND, markdown

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "lab" / "claims.md").read_text()


#: Matches a row of the table: id, verdict, sentence, number.
ROW = re.compile(r"^\| \[([IMDB]\d+[abc]?)\]\(#[^)]*\) \| .+? \| ([a-z ]+) \| (.+) \| (.*) \|$", re.MULTILINE)


def written_verdicts(text):
    return {id: verdict for id, verdict, _, _ in ROW.findall(text)}


def test_every_claim_is_on_the_page_word_for_word():
    for claim in CLAIMS.values():
        assert claim.sentence in PAGE, f"out of date: run {COMMAND}"
        assert claim.how in PAGE
    assert list(written_verdicts(PAGE)) == list(CLAIMS)


def test_unsettled_claims_have_a_sentence_and_a_number():
    """Check that the row of an unsettled claim has a sentence and a number as its answer."""
    not_settled = (Verdict.UNDECIDED, Verdict.CORRECTED, Verdict.DIFFERS, Verdict.NOT_REPRODUCED)
    rows = [row for row in ROW.findall(PAGE) if row[1] in not_settled]
    assert rows
    for id, _, sentence, number in rows:
        assert sentence.endswith("."), id
        assert len(sentence.split()) <= 45, id
        assert "statements hold" not in sentence, id
        assert number, id


RESULTS = ROOT / "docs" / "lab" / "results"
DECIDABLE = [id for id, claim in CLAIMS.items() if not claim.missing(Context(RESULTS))]


# The check of I10 fits many scaling laws to the published losses, which takes long.
@pytest.mark.parametrize("id", [pytest.param(id, marks=pytest.mark.full) if id == "I10" else id for id in DECIDABLE])
def test_verdicts_on_the_page_are_those_of_the_checks(id, checked):
    assert written_verdicts(PAGE)[id] == checked(id).verdict, f"out of date: run {COMMAND}"


def test_what_cannot_be_decided_here_is_not_run():
    undecided = {id for id, verdict in written_verdicts(PAGE).items() if verdict == Verdict.NOT_RUN}
    assert undecided == set(CLAIMS) - set(DECIDABLE), f"out of date: run {COMMAND}"


def test_links_lead_to_headings():
    headings = {
        re.sub(r"[^\w -]", "", h.lower()).replace(" ", "-") for h in re.findall(r"^### (.*)$", PAGE, re.MULTILINE)
    }
    assert set(re.findall(r"\(#([^)]*)\)", PAGE)) == headings


def test_the_verdicts_are_explained_above_the_table():
    head = " ".join(PAGE.partition("| | claim |")[0].split())
    assert "*confirmed* (as expected) or *corrected* (not as expected)" in head


def test_page_shows_all_evidence():
    comparisons, statements = (Comparison("rate", 0.5, 0.75, 0.01),), (Statement("it falls", None, "1 of 2"),)
    evidence = Evidence(comparisons, statements, "A note.", {"shape": (2, 3), "seeds": [1, 2]}, "It is so.", "3 nats")
    entry = Entry(CLAIMS["M5"], evidence.verdict, evidence)
    text = markdown(Report((entry,), {"mxnum": "1"}))
    for piece in (
        "- rate: 0.75 against 0.5 (±0.01)", "- it falls: undecided (1 of 2)", "A note.", "shape 2x3; seeds 1, 2",
        "**differs**. It is so.", "| differs | It is so. | 3 nats |",
        CLAIMS["M5"].scale, "Made with mxnum 1. Verdicts: 1 differs.",
    ):  # fmt: skip
        assert piece in text
    not_run = markdown(Report((Entry(CLAIMS["I6a"], Verdict.NOT_RUN, remark="Needs x: run `y`."),), {}))
    assert "**not run**. Needs x: run `y`." in not_run
