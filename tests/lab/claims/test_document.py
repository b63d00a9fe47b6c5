"""Tests that the report page is well-formed, self-contained and complete HTML."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import pytest

from mxnum.lab.claims import (
    CLAIMS,
    Comparison,
    Context,
    Entry,
    Evidence,
    Report,
    Statement,
    Verdict,
    Whose,
    document,
    stored,
)

VOID = {"meta", "link", "br", "img", "hr", "input"}


class Checked(HTMLParser):
    """An HTML parser that fails if tags are not closed in the right order."""

    def __init__(self, text):
        super().__init__()
        self.open, self.ids = [], []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag, attributes):
        self.ids += [value for name, value in attributes if name == "id"]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.ids += [value for name, value in attributes if name == "id"]

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def page(entries, tmp_path, interrupted=False):
    facts = {"started": "2026-01-01", "seconds": 100.0, "first_seed": 7, "environment": {"numpy": "2.0"}}
    report = Report(tuple(entries), {"mxnum": "1", "sympy": "1.14"}, interrupted)
    return document.html(report, "mxnum reproduce --quick", facts, Context(tmp_path))


def entry(id, *statements, comparisons=(), note=""):
    evidence = Evidence(tuple(comparisons), statements, note, {"seeds": [1, 2]})
    return Entry(CLAIMS[id], evidence.verdict, evidence)


def test_page_has_all_parts_and_escapes_text(tmp_path):
    text = page([
        entry("I9", Statement("a <b> & c", True, "3 < 4"), Statement("no", False), Statement("who knows", None)),
        entry("M11", comparisons=[Comparison("rate", 0.5, 0.75, 0.01)], note="see `x`"),
        Entry(CLAIMS["I10"], Verdict.NOT_RUN, remark="Needs more: `mxnum reproduce --full`."),
    ], tmp_path)  # fmt: skip
    found = Checked(text)
    assert {"I9", "M11", "I10"} <= set(found.ids)
    for piece in (
        "a &lt;b&gt; &amp; c",
        "(3 &lt; 4)", "who knows", "<td>0.5</td><td>0.75</td><td>±0.01</td>", "see <code>x</code>",
        "Needs more: <code>mxnum reproduce --full</code>.", "<b>2</b>differs</li>", "<b>1</b>not run</li>",
        "1 of 2 statements hold, 1 undecided", "seeds 1, 2", 'name="viewport"', "prefers-color-scheme: dark",
        "mxnum reproduce --quick --only M11", "sympy 1.14", "2 min of work",
    ):  # fmt: skip
        assert piece in text, piece
    assert "not complete" not in text
    assert "not complete" in page([], tmp_path, interrupted=True)


def test_page_loads_nothing_from_elsewhere(tmp_path):
    pytest.importorskip("matplotlib", reason="the extra 'plots' is not installed")
    text = page([entry("I3", Statement("so", True))], tmp_path)
    Checked(text)
    assert "<svg" in text
    assert "<script" not in text
    links = re.findall(r'(?:src|href|url\()=?"?([^"\s)>]*)', text)
    assert links
    assert all(link.startswith("#") for link in links), links


def test_many_statements_that_hold_are_folded(tmp_path):
    statements = [Statement(f"s{i}", i != 3) for i in range(12)]
    text = page([entry("I9", *statements)], tmp_path)
    assert "<summary>11 statements hold</summary>" in text
    assert text.index("s3") < text.index("11 statements hold") < text.index("s0")


def test_without_matplotlib_the_page_says_so(tmp_path, monkeypatch):
    real = document.importlib.util.find_spec
    monkeypatch.setattr(document.importlib.util, "find_spec", lambda n: None if n == "matplotlib" else real(n))
    text = page([entry("I3", Statement("so", True))], tmp_path)
    assert "<svg" not in text
    assert 'pip install "mxnum[plots]"' in text


def test_the_top_says_what_was_found_and_shows_two_figures(tmp_path):
    pytest.importorskip("matplotlib", reason="the extra plots is not installed")
    evidence = Evidence(statements=(Statement("so", True),), answer="E2M1 runs away sooner.", number="p = 0.001")
    i6c = Entry(CLAIMS["I6c"], Verdict.CONFIRMED, evidence.of(Whose.OURS))
    b1 = Entry(CLAIMS["B1"], Verdict.CONFIRMED, Evidence(statements=(Statement("so", True),)).of(Whose.OURS))
    text = page([entry("I1", Statement("so", True)), entry("I2", Statement("no", False)), i6c, b1], tmp_path)
    top = text[text.index("<body>") : text.index("mxnum reproduce --quick</code>")]
    first, added, numbers, counts = re.findall("^<p>(.*)</p>$", top, re.MULTILINE)
    assert first == "Yes. E2M1 runs away sooner (exact paired log-rank test, p = 0.001; row I6c)."
    assert added == stored.sentence()
    assert added.startswith("Stored studies, which this run did not repeat, found: ")
    assert numbers.startswith("In E4M3 under the floor rule, a block overflows if its largest number has a mantissa")
    assert counts == (
        "1 of 2 decided claims of papers came out as stated (I2 does not); 2 of 2 decided claims of this "
        "project came out as expected."
    )
    assert top.count("<svg") == text.count("<svg") == 2  # each figure occurs once
    assert '<a href="#I1">I1</a>' in top
    nothing = page([Entry(CLAIMS["I6c"], Verdict.NOT_RUN)], tmp_path)
    assert "The runs could decide none of the 1 claim" in nothing
    assert "No training was run that could show" in nothing
