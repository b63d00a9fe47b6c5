"""Tests of ``mxnum lab language-model`` with a study of one run."""

from __future__ import annotations

import json

import pytest

pytest.importorskip("typer", reason="the extra cli is not installed")
pytest.importorskip("torch", reason="the extra torch is not installed")

from mxnum.cli.main import main

TEXT = """
seeds = 1
measure_every = 0
[base]
vocabulary = 8
choices = 2
width = 8
heads = 1
layers = 1
context = 4
sequences = 1
steps = 2
[arms.plain]
"""


def test_a_study_is_run_and_shown(tmp_path, capsys):
    config, out = tmp_path / "one.toml", tmp_path / "out"
    config.write_text(TEXT)
    assert main(["lab", "language-model", str(config), "-o", str(out), "--json"]) == 0
    table = json.loads(capsys.readouterr().out)
    assert table["arms"]["plain"]["runs"][0]["steps"] == 2
    assert (out / "one.json").exists()
    assert main(["lab", "language-model", str(config), "-o", str(out), "--seeds", "2"]) == 0
    assert "plain" in capsys.readouterr().out
    table = json.loads((out / "one.json").read_text())
    assert [run["seed"] for run in table["arms"]["plain"]["runs"]] == [1, 2], "--seeds overrides the file"


def test_a_folder_of_something_else_is_refused(tmp_path, capsys):
    (tmp_path / "one.toml").write_text(TEXT)
    (tmp_path / "one.csv").write_text("mine")
    assert main(["lab", "language-model", str(tmp_path / "one.toml"), "-o", str(tmp_path)]) == 2
    assert "must be empty, or one that this command made before" in capsys.readouterr().err
    assert (tmp_path / "one.csv").read_text() == "mine"


def test_a_study_of_which_all_runs_fail_says_why_and_no_more(tmp_path, capsys):
    (tmp_path / "short.txt").write_text("too short")
    source = f"source = 'text'\ntext = '{tmp_path / 'short.txt'}'\nvocabulary = 256"
    (tmp_path / "one.toml").write_text(TEXT.replace("vocabulary = 8", source))
    assert main(["lab", "language-model", str(tmp_path / "one.toml"), "-o", str(tmp_path / "out")]) == 1
    said = capsys.readouterr().err
    assert "'text' must be a file with at least" in said
    assert "Error:" not in said.replace("ValueError:", "")


def test_the_same_on_a_cluster(tmp_path):
    distributed = pytest.importorskip("distributed", reason="the extra 'distributed' is not installed")
    config, out = tmp_path / "one.toml", tmp_path / "out"
    config.write_text(TEXT + "[arms.wide]\nwidth = 16\n")
    options = {"n_workers": 1, "threads_per_worker": 1, "processes": False, "dashboard_address": None}
    with distributed.LocalCluster(**options) as cluster:
        assert (
            main(["lab", "language-model", str(config), "-o", str(out), "--scheduler", cluster.scheduler_address]) == 0
        )
    table = json.loads((out / "one.json").read_text())
    assert {name: len(arm["runs"]) for name, arm in table["arms"].items()} == {"plain": 1, "wide": 1}
    assert main(["lab", "language-model", str(config), "-o", str(tmp_path / "here")]) == 0
    here = json.loads((tmp_path / "here" / "one.json").read_text())
    assert [arm["runs"][0]["evaluation"] for arm in here["arms"].values()] == [
        arm["runs"][0]["evaluation"] for arm in table["arms"].values()
    ], "bit for bit"


def test_a_wrong_file_is_an_error(tmp_path, capsys):
    config = tmp_path / "one.toml"
    config.write_text(TEXT.replace("width = 8", "width = 9"))
    assert main(["lab", "language-model", str(config)]) != 0
    assert "'width' must be a multiple of 2" in capsys.readouterr().err
