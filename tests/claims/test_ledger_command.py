"""The command that writes the ledger."""

from __future__ import annotations

import json

import pytest

from mxnum.claims import Evidence, Statement, check, registry
from mxnum.claims.ledger_command import main


@pytest.fixture(autouse=True)
def one_check(monkeypatch, tmp_path):
    monkeypatch.setattr(registry, "MODULES", ())
    monkeypatch.setattr(registry, "_CHECKS", {})
    monkeypatch.chdir(tmp_path)
    check("M9")(lambda context: Evidence(statements=(Statement("bits are bits", True),)))


def test_writes_the_page(tmp_path, capsys):
    (tmp_path / "docs").mkdir()
    assert main([]) == 0
    assert "bits are bits: yes" in (tmp_path / "docs" / "claims.md").read_text()
    assert "1 reproduced, 26 not run" in capsys.readouterr().out


def test_some_claims_print_and_write_nothing(tmp_path, capsys):
    assert main(["--only", "M9, I6", "--json", "found.json"]) == 0
    assert "bits are bits: yes" in capsys.readouterr().out
    assert [p.name for p in tmp_path.iterdir()] == ["found.json"]
    assert [c["id"] for c in json.loads((tmp_path / "found.json").read_text())["claims"]] == ["M9", "I6"]


def test_another_file(tmp_path):
    assert main(["--output", "page.md"]) == 0
    assert (tmp_path / "page.md").exists()


def test_errors_are_one_sentence(capsys):
    assert main([]) == 2
    assert (
        capsys.readouterr().err
        == "Error: Folder 'docs' does not exist; run this where it does, or give another file.\n"
    )
    assert main(["--only", "M99"]) == 2
    assert "'ids' must be one of" in capsys.readouterr().err


def test_a_broken_check_writes_no_page_and_fails(tmp_path, capsys):
    (tmp_path / "docs").mkdir()
    check("I1")(lambda context: 1 / 0)
    assert main([]) == 2
    assert "Error: the check of I1 broke: ZeroDivisionError" in capsys.readouterr().err
    assert list((tmp_path / "docs").iterdir()) == []


def test_it_begins_with_a_sentence(capsys):
    assert main(["--only", "M9"]) == 0
    assert capsys.readouterr().out.startswith("1 claim: 1 reproduced.\n")
    assert main(["--only", "M9,I6"]) == 0
    assert capsys.readouterr().out.startswith("2 claims: 1 reproduced, 1 not run.\n")
