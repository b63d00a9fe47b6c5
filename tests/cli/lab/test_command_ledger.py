"""Tests of ``mxnum lab ledger``, which writes the page of claims."""

from __future__ import annotations

import json
from unittest.mock import patch

import pytest

from mxnum.lab.claims import CLAIMS, Evidence, Statement

BITS = Evidence(statements=(Statement("bits are bits", True),))


@pytest.fixture(autouse=True)
def one_check(monkeypatch, tmp_path):
    """Run each test with only two claims: M9, which holds, and I6a, whose results are missing."""
    monkeypatch.setattr(CLAIMS["M9"], "run", lambda context: BITS)
    monkeypatch.chdir(tmp_path)
    with patch.dict(CLAIMS, {id: CLAIMS[id] for id in ("I6a", "M9")}, clear=True):
        yield


def test_writes_the_page(run, tmp_path):
    (tmp_path / "docs" / "lab").mkdir(parents=True)
    assert "1 reproduced, 1 not run" in run("lab", "ledger")
    assert "bits are bits: yes" in (tmp_path / "docs" / "lab" / "claims.md").read_text()


def test_some_claims_are_printed_and_no_page_is_written(run, tmp_path):
    said = run("lab", "ledger", "--only", "M9, I6a")
    assert said.startswith("2 claims: ")
    assert "bits are bits: yes" in said
    assert list(tmp_path.iterdir()) == []
    assert [c["id"] for c in json.loads(run("lab", "ledger", "--only", "M9, I6a", "--json"))["claims"]] == ["M9", "I6a"]


def test_out_writes_the_page_to_another_file(run, tmp_path):
    run("lab", "ledger", "--out", "page.md")
    assert (tmp_path / "page.md").exists()


def test_errors_are_one_sentence(run):
    said = run("lab", "ledger", status=2)
    assert said == (
        "Error: Folder 'docs/lab' does not exist; run this command in a checkout of mxnum, or give another "
        "file with --out.\n"
    )
    assert "Option --only must be one of" in run("lab", "ledger", "--only", "M99", status=2)


def test_wrong_arguments_raise_before_checks_run(run, tmp_path, monkeypatch):
    """Check that wrong arguments raise errors before a check runs or a page is written."""
    monkeypatch.setattr(CLAIMS["M9"], "run", lambda context: pytest.fail("it was run"))
    run("lab", "ledger", status=2)
    (tmp_path / "docs" / "lab").mkdir(parents=True)
    said = run("lab", "ledger", "--results", "doc/results", status=2)
    assert said == "Error: Option --results must be a folder, not 'doc/results'.\n"
    assert list((tmp_path / "docs" / "lab").iterdir()) == []


def test_a_broken_check_writes_no_page_and_fails(run, tmp_path, monkeypatch):
    (tmp_path / "docs" / "lab").mkdir(parents=True)
    monkeypatch.setattr(CLAIMS["M9"], "run", lambda context: 1 / 0)
    assert "Error: the check of M9 raised an error: ZeroDivisionError" in run("lab", "ledger", status=2)
    assert list((tmp_path / "docs" / "lab").iterdir()) == []
