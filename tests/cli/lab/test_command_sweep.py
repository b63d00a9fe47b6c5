from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest

pytest.importorskip("scipy", reason="the extra 'experiments' is not installed")
pytest.importorskip("threadpoolctl", reason="the extra 'experiments' is not installed")

GOOD = """
name = "mine"
seeds = 2
[base]
width = 32
layers = 1
batch = 32
steps = 6
[arms.plain]
[arms.coarse]
gamma = "mxfp4_e2m1"
"""
BROKEN = "[arms.broken]\nweights = {format = 'mxfp4_e2m1', scale_rule = 'released_bump', block_size = 24}\n"


def test_runs_continues_and_compares(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.toml").write_text(GOOD)
    printed = run("lab", "sweep", "mine.toml", "--processes", 1)
    assert "Runs and tables: mine" in printed
    assert "Final loss, median over seeds: plain " in printed
    assert next(line for line in printed.splitlines() if "of 2" in line).split()[:4] == ["plain", "0", "of", "2"]
    assert sorted(p.name for p in (tmp_path / "mine").iterdir()) == ["mine.json", "mine.md", "runs"]
    before = {p: p.stat().st_mtime_ns for p in tmp_path.rglob("seed-*")}
    got = run.json("lab", "sweep", "mine.toml", "--seeds", 3, "--processes", 1)
    assert {name: len(runs) for name, runs in got["runs"].items()} == {"plain": 3, "coarse": 3}
    assert [row["arm"] for row in got["table"]] == ["plain", "coarse"]
    assert got["failures"] == []
    assert all(p.stat().st_mtime_ns == t for p, t in before.items()), "a stored run was repeated"


def test_one_arm_alone(run, tmp_path):
    (tmp_path / "mine.toml").write_text(GOOD)
    sweep = "lab", "sweep", tmp_path / "mine.toml", "--out", tmp_path / "o", "--processes", 1
    assert list(run.json(*sweep, "--arms", "coarse")["runs"]) == ["coarse"]
    told = run(*sweep, "--arms", "fine", status=2)
    assert "--arms must be one of ['plain', 'coarse'], not 'fine'" in told


def test_a_failure_is_isolated_and_named(run, tmp_path):
    (tmp_path / "mine.toml").write_text(GOOD + BROKEN)
    out = tmp_path / "o"
    printed = run("lab", "sweep", tmp_path / "mine.toml", "--out", out, "--processes", 2, status=1)
    assert "Failed: broken, seed 39304300: ValueError: " in printed
    assert "2 runs failed; run the same command to try again." in printed
    assert "0 of 2" in printed
    assert len(list(out.rglob("seed-*.json"))) == 4
    assert len(list(out.rglob("failed-*.txt"))) == 2


def test_the_same_on_a_cluster(run, tmp_path):
    distributed = pytest.importorskip("distributed", reason="the extra 'distributed' is not installed")
    (tmp_path / "mine.toml").write_text(GOOD.replace("seeds = 2", "seeds = 1") + BROKEN)
    options = {"n_workers": 1, "threads_per_worker": 1, "processes": False, "dashboard_address": None}
    with distributed.LocalCluster(**options) as cluster:
        from mxnum.cli.main import main

        address = cluster.scheduler_address
        arguments = ["lab", "sweep", str(tmp_path / "mine.toml"), "--out", str(tmp_path / "o"), "--scheduler", address]
        assert main(arguments) == 1
    assert len(list((tmp_path / "o").rglob("seed-*.json"))) == 2
    assert len(list((tmp_path / "o").rglob("failed-*.txt"))) == 1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("layers", "layer"), "did you mean 'layers'?"),
        (("seeds = 2", "seeds = 'two'"), "'seeds' must be an integer, not 'two'"),
        (("[base]", "[base"), "must be TOML"),
    ],
)
def test_mistakes(run, tmp_path, change, message):
    (tmp_path / "mine.toml").write_text(GOOD.replace(*change))
    told = run("lab", "sweep", tmp_path / "mine.toml", "--out", tmp_path / "o", status=2)
    assert told.startswith("Error: ")
    assert message in told
    assert not (tmp_path / "o").exists()


def test_a_missing_file(run, tmp_path):
    told = run("lab", "sweep", tmp_path / "none.toml", status=2)
    assert "must be a TOML file or one of quick, " in told
    assert "none.toml" in told


def test_a_study_that_ships_is_run_by_its_name(run, tmp_path, monkeypatch):
    from mxnum.lab.studies import studies

    (tmp_path / "short.toml").write_text(GOOD)
    monkeypatch.setitem(studies.SHIPPED["mlp"], "parts", tmp_path / "short.toml")
    assert run.json("lab", "sweep", "parts", "--out", tmp_path / "o", "--processes", 1)["study"] == "mine"


def test_a_machine_that_is_not_there(run, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    (tmp_path / "mine.toml").write_text(GOOD)
    options = "--out", tmp_path / "o", "--machine"
    told = run("lab", "sweep", tmp_path / "mine.toml", *options, "tpu", status=2)
    assert told.startswith("Error: ")
    assert " must be one of ['cpu', 'amx', 'avx512_bf16', 'torch', 'cuda'], not 'tpu'" in told
    assert run("lab", "sweep", tmp_path / "mine.toml", *options, "cuda", status=2).count("\n") == 1
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=SimpleNamespace(is_available=lambda: False)))
    assert "PyTorch finds no GPU" in run("lab", "sweep", tmp_path / "mine.toml", *options, "cuda", status=2)
    assert not (tmp_path / "o").exists()
