"""The command that writes the ledger."""

from __future__ import annotations

import json

import pytest

from mxnum.lab.claims import Evidence, Statement, check, registry


@pytest.fixture(autouse=True)
def one_check(monkeypatch, tmp_path):
    monkeypatch.setattr(registry, "MODULES", ())
    monkeypatch.setattr(registry, "_CHECKS", {})
    monkeypatch.chdir(tmp_path)
    check("M9")(lambda context: Evidence(statements=(Statement("bits are bits", True),)))


def test_writes_the_page(run, tmp_path):
    (tmp_path / "docs" / "lab").mkdir(parents=True)
    assert "1 reproduced, 34 not run" in run("lab", "ledger")
    assert "bits are bits: yes" in (tmp_path / "docs" / "lab" / "claims.md").read_text()


def test_some_claims_print_and_write_nothing(run, tmp_path):
    said = run("lab", "ledger", "--only", "M9, I6a")
    assert said.startswith("2 claims: ")
    assert "bits are bits: yes" in said
    assert list(tmp_path.iterdir()) == []
    assert [c["id"] for c in json.loads(run("lab", "ledger", "--only", "M9, I6a", "--json"))["claims"]] == ["M9", "I6a"]


def test_another_file(run, tmp_path):
    run("lab", "ledger", "--out", "page.md")
    assert (tmp_path / "page.md").exists()


def test_errors_are_one_sentence(run):
    said = run("lab", "ledger", status=2)
    assert said == "Error: Folder 'docs/lab' does not exist; run this where it does, or give another file.\n"
    assert "Option --only must be one of" in run("lab", "ledger", "--only", "M99", status=2)


def test_mistakes_are_said_before_any_check_is_run_and_cost_no_page(run, tmp_path):
    """A folder of results that is not there wrote a page on which nothing had been run."""
    check("I1")(lambda context: pytest.fail("it was run"))
    run("lab", "ledger", status=2)
    (tmp_path / "docs" / "lab").mkdir(parents=True)
    said = run("lab", "ledger", "--results", "doc/results", status=2)
    assert said == "Error: Option --results must be a folder, not 'doc/results'.\n"
    assert list((tmp_path / "docs" / "lab").iterdir()) == []


def test_a_broken_check_writes_no_page_and_fails(run, tmp_path):
    (tmp_path / "docs" / "lab").mkdir(parents=True)
    check("I1")(lambda context: 1 / 0)
    assert "Error: the check of I1 broke: ZeroDivisionError" in run("lab", "ledger", status=2)
    assert list((tmp_path / "docs" / "lab").iterdir()) == []
