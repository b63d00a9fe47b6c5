"""``mxnum language-model``: a study of one run, and its table."""

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
    assert main(["language-model", str(config), "-o", str(out), "--json"]) == 0
    table = json.loads(capsys.readouterr().out)
    assert table["arms"]["plain"]["runs"][0]["steps"] == 2
    assert (out / "one.json").exists()
    assert main(["language-model", str(config), "-o", str(out)]) == 0
    assert "plain" in capsys.readouterr().out


def test_a_wrong_file_is_an_error(tmp_path, capsys):
    config = tmp_path / "one.toml"
    config.write_text(TEXT.replace("width = 8", "width = 9"))
    assert main(["language-model", str(config)]) != 0
    assert "'width' must be a multiple of 2" in capsys.readouterr().err
