from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from mxnum.experiments import conduct, studies
from mxnum.experiments.command import main
from mxnum.experiments.config import Experiment

pytest.importorskip("scipy", reason="the extra 'experiments' is not installed")
pytest.importorskip("threadpoolctl", reason="the extra 'experiments' is not installed")

SMALL = ["--set", "width=32", "--set", "layers=1", "--set", "batch=32", "--set", "steps=8", "--processes", "1"]


def test_quick_runs_continues_and_reports(tmp_path, capsys):
    arguments = ["quick", "--seeds", "2", "--arms", "FP32;E2M1", "--runs", str(tmp_path / "runs"), *SMALL]
    assert main(arguments) == 0
    assert "| E2M1 | 0 of 2 |" in capsys.readouterr().out
    assert (tmp_path / "runs" / "results" / "quick.json").exists()
    assert main(arguments) == 0
    assert "0 tasks to do" in capsys.readouterr().out


def test_tables_have_the_arms_of_earlier_calls(tmp_path, capsys, monkeypatch):
    tiny = Experiment(width=32, layers=1, batch=32, steps=6)
    study = studies.Study("tiny", "?", {"a": tiny, "b": tiny.but(rate=0.1)}, 1, "a")
    monkeypatch.setattr(studies, "STUDIES", {"tiny": study})
    for arm in ("b", "a"):
        assert main(["run", "tiny", "--arms", arm, "--runs", str(tmp_path), "--processes", "1"]) == 0
    assert "| a | 0 of 1 |" in (last := capsys.readouterr().out.rpartition("# tiny")[2])
    assert "| b | 0 of 1 |" in last


def test_fresh_seeds_are_others(tmp_path, capsys):
    arguments = ["run", "quick", "--fresh", "--seeds", "1", "--arms", "FP32", "--runs", str(tmp_path), *SMALL]
    assert main(arguments) == 0
    (folder,) = tmp_path.glob("seeds-*")
    assert folder.name.removeprefix("seeds-") in capsys.readouterr().out


def test_sweep_of_a_file(tmp_path, capsys):
    path = tmp_path / "mine.toml"
    path.write_text("seeds = 1\n[base]\nwidth = 32\nlayers = 1\nbatch = 32\nsteps = 6\n[arms.only]\n")
    assert main(["sweep", str(path), "--runs", str(tmp_path / "runs"), "--processes", "1"]) == 0
    assert "| only | 0 of 1 |" in capsys.readouterr().out
    assert (tmp_path / "runs" / "results" / "mine.md").exists()
    assert main(["sweep", str(tmp_path / "absent.toml")]) == 2
    assert "absent.toml" in capsys.readouterr().err


def test_a_sweep_goes_where_that_of_the_other_command_goes(tmp_path, monkeypatch):
    seen = []
    table = {"arms": {}}
    monkeypatch.setattr(
        conduct,
        "conduct",
        lambda study, runs, **kw: seen.append((runs, kw["stack"])) or conduct.Outcome(table, [], [], 0),
    )
    monkeypatch.setattr("mxnum.experiments.command.conduct", conduct.conduct)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.toml").write_text('name = "own"\n[arms.only]\n')
    assert main(["sweep", "mine.toml"]) == 0
    pytest.importorskip("typer", reason="the extra cli is not installed")
    from mxnum.cli.main import main as other

    assert other(["sweep", "mine.toml"]) == 0
    assert seen == [(Path("own/runs"), 3)] * 2


@pytest.mark.parametrize("command", [["sweep", "mine.toml"], ["quick"]])
def test_a_machine_that_is_not_there_is_told_before_anything_runs(command, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.toml").write_text("[arms.only]\n")
    assert main([*command, "--machine", "tpu"]) == 2
    assert capsys.readouterr() == (
        "",
        "Error: Argument 'machine' must be one of ['cpu', 'cuda'], not 'tpu'; did you mean 'cpu'?\n",
    )
    assert [p.name for p in tmp_path.iterdir()] == ["mine.toml"]


def test_list():
    done = subprocess.run(
        [sys.executable, "-m", "mxnum.experiments", "list"], capture_output=True, text=True, check=True
    )
    assert "mechanism (" in done.stdout
    assert "    E2M1, LN FP32" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["quick", "--arms", "E2M2"], "did you mean 'E2M1'"),
        (["quick", "--set", "rat=1"], "did you mean 'rate'"),
        (["quick", "--set", "rate=fast"], "must give a number for 'rate', not 'fast'"),
    ],
)
def test_errors(arguments, message, capsys):
    assert main(arguments) == 2
    assert message in capsys.readouterr().err
