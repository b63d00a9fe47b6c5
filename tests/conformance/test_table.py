"""Tests that the conformance page of the documentation agrees with the installed libraries."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from mxnum.conformance import libraries
from mxnum.conformance.libraries import Peer, page_of, peers, row_of, section, version

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "conformance.md"


def published(library):
    """Return the library's version and the text about it on the conformance page."""
    text = PAGE.read_text()
    found = re.search(rf"^## {library} (\S+)\n(.*?)(?=^## |\Z)", text, re.S | re.M)
    assert found, library
    return found[1], found[2]


@pytest.mark.parametrize("library", ["ml_dtypes", "torch", "gguf"])
def test_the_published_rows_are_what_is_found_here(library):
    if version(library) is None:
        pytest.skip(f"{library} is not installed")
    at, text = published(library)
    if version(library) != at:
        pytest.skip(f"the page is about {library} {at}, but {version(library)} is installed")
    for peer in peers(library):
        if peer.claims.get("source", "float32") == "float32" and peer.format in ("mxfp8_e5m2", "mxfp4_e2m1"):
            row = row_of(peer)
            assert f"| {' | '.join(row.cells())} |" in text
            assert row.finding() is None or row.finding() in text


def test_a_wrong_conversion_is_found_with_its_smallest_input():
    import mxnum as mx

    away = Peer("here", "away", "encode", "mxfp4_e2m1", lambda x: mx.encode(x, "e2m1", rounding="rna"))
    row = row_of(away)
    assert row.report.bugs == 8
    assert "all 8 wrong answers are what rounding rna gives" in row.finding()
    assert "- tie (8): x = bits:3FA00000 (1.25)" in row.finding() or "(0.25)" in row.finding()
    right = row_of(Peer("here", "right", "encode", "mxfp4_e2m1", lambda x: mx.encode(x, "e2m1")))
    assert right.finding() is None
    assert "| 0 |" in section("ml_dtypes", [right])


def test_the_page_says_what_is_not_installed(monkeypatch):
    monkeypatch.setattr(libraries, "rows_of", lambda library, advance: [])
    text = page_of(["ml_dtypes"])
    assert text.startswith("# Conformance of other libraries")
    assert "## ml_dtypes" in text
    monkeypatch.setattr(libraries, "version", lambda library: None)
    assert "This library was not installed on the machine that made this page." in page_of(["torch"])
