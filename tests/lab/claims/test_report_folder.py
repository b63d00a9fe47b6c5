from __future__ import annotations

import json

import numpy as np
import pytest

from mxnum.lab.claims import CLAIMS, Comparison, Entry, Evidence, Statement, Verdict, report_folder
from mxnum.lab.claims.report_folder import ReportFolder
from mxnum.lab.studies.study import FIRST_SEED

FOUND = Evidence((Comparison("a", 1, 2, 0.5),), (Statement("b", None, "c"),), "d", {"seeds": [1, 2]})


def test_stored_evidence_is_used_until_the_code_changes(tmp_path, monkeypatch):
    store = ReportFolder(tmp_path / "x")
    store.open()
    assert store.entry("M4") is None
    store.keep(Entry(CLAIMS["M4"], FOUND.verdict, FOUND))
    assert store.entry("M4") == Entry(CLAIMS["M4"], Verdict.DIFFERS, FOUND)
    stored = json.loads((store.data / "checks" / "M4.json").read_text())
    assert stored["verdict"] == "differs"
    assert {"mxnum", "numpy", "machine"} <= set(stored["machine"])
    store.keep(Entry(CLAIMS["M4"], Verdict.FAILED, remark="broke"))
    assert store.entry("M4") is None
    store.keep(Entry(CLAIMS["M4"], FOUND.verdict, FOUND))
    monkeypatch.setattr(report_folder, "code", lambda: "other")
    assert store.entry("M4") is None


def test_a_folder_keeps_its_seeds(tmp_path):
    store = ReportFolder(tmp_path)
    assert store.open()["first_seed"] == FIRST_SEED
    with pytest.raises(ValueError, match="use another folder for fresh seeds"):
        store.open(fresh=True)
    other = ReportFolder(tmp_path / "fresh")
    first = other.open(fresh=True)
    assert first["first_seed"] != FIRST_SEED
    assert {other.open()["first_seed"], other.open(fresh=True)["first_seed"]} == {first["first_seed"]}


def test_somebody_elses_folder_is_left_alone(tmp_path):
    (tmp_path / "thesis.txt").write_text("mine")
    with pytest.raises(ValueError, match="must be empty, or one that this command made before"):
        ReportFolder(tmp_path).open()
    with pytest.raises(ValueError, match="must be a folder, not a file"):
        ReportFolder(tmp_path / "thesis.txt").open()
    assert [p.name for p in tmp_path.iterdir()] == ["thesis.txt"]


def test_arrays(tmp_path):
    store = ReportFolder(tmp_path)
    assert store.context().kept("x") is None
    store.context().keep("x", {"a": np.arange(3)})
    assert store.context().kept("x")["a"].tolist() == [0, 1, 2]


def test_hash_of_the_code_repeats():
    assert len(report_folder.code()) == 16
    assert report_folder.code() == report_folder.code()
