from __future__ import annotations

import sys
from types import SimpleNamespace

import numpy as np
import pytest

from mxnum.lab.mlp.config import Experiment
from mxnum.lab.studies import report, studies
from mxnum.lab.studies.run_study import run_study
from mxnum.recipe import Operand

pytest.importorskip("scipy", reason="the extra 'experiments' is not installed")
pytest.importorskip("threadpoolctl", reason="the extra 'experiments' is not installed")

NO_GPU = SimpleNamespace(cuda=SimpleNamespace(is_available=lambda: False))
TINY = {"width": 32, "layers": 1, "batch": 32, "steps": 6}


def test_second_call_runs_missing_runs_and_reports_all(tmp_path):
    said = []
    keywords = {"changes": TINY, "processes": 0, "say": said.append}
    first = run_study("quick", tmp_path, arms=["FP32"], seeds=1, **keywords)
    assert list(first.table["arms"]) == ["FP32"]
    assert (first.verdict, first.failed) == ([], [])
    second = run_study("quick", tmp_path, arms=["FP32", "E2M1"], seeds=2, **keywords)
    assert {name: len(arm["runs"]) for name, arm in second.table["arms"].items()} == {"FP32": 2, "E2M1": 2}
    assert second.table["arms"]["FP32"]["runs"][0] == first.table["arms"]["FP32"]["runs"][0]
    alike = "E2M1: no pair of runs differs before the horizon (0 of 2 runs against 0 of 2 of 'FP32')."
    assert second.verdict == [alike]
    assert f"quick: 2 arms, 2 seeds from {studies.QUICK_SEED}, 2 tasks to do." in said
    assert sum(line.startswith("done:") for line in said) == 3


def test_a_study_of_ones_own_and_a_failure(tmp_path):
    tiny = Experiment(**TINY)
    broken = tiny.but(weights=Operand("mxfp4_e2m1", scale_rule="released_bump", block_size=24))
    study = studies.Study("mine", "?", {"good": tiny, "broken": broken}, 1, "good")
    outcome = run_study(study, tmp_path, processes=1, say=lambda line: None)
    assert [(f.arm, f.seed) for f in outcome.failed] == [("broken", 39304300)]
    assert list(outcome.table["arms"]) == ["good"]


def test_study_whose_runs_all_fail_has_an_empty_table(tmp_path):
    broken = Experiment(**TINY).but(weights=Operand("mxfp4_e2m1", scale_rule="released_bump", block_size=24))
    outcome = run_study(studies.Study("mine", "?", {"broken": broken}, 1, "broken"), tmp_path, processes=0)
    assert (outcome.table["arms"], outcome.verdict, len(outcome.failed)) == ({}, [], 1)


def test_runs_of_another_configuration_are_refused_before_anything_runs(tmp_path):
    run_study("quick", tmp_path, arms=["FP32"], seeds=1, changes=TINY, processes=0, say=lambda line: None)
    with pytest.raises(ValueError, match=r"does not have the configuration of arm 'FP32' \(rate 0.034, not 0.5\)"):
        run_study("quick", tmp_path, seeds=2, changes=TINY | {"rate": 0.5}, processes=0)
    assert len(list(tmp_path.rglob("seed-*.json"))) == 1


def test_the_table_is_of_the_seeds_that_were_asked_for(tmp_path):
    # Regression: the runs of the new seeds were trained, but the table listed the runs with the
    # lowest seeds in the folder.
    study = studies.Study("mine", "?", {"a": Experiment(**TINY)}, 2, "a")
    for first, seeds in ((9, None), (100, None), (100, 1), (9, 3)):
        table = run_study(study, tmp_path, first_seed=first, seeds=seeds, processes=0, say=lambda line: None).table
        count = max(2, seeds or 2)
        assert [run["seed"] for run in table["arms"]["a"]["runs"]] == list(range(first, first + count))
    assert report.seeds_text(table) == "9 to 11"


@pytest.mark.parametrize("keeps", [True, False])
def test_more_steps_prolong_the_runs_that_are_there(tmp_path, keeps):
    tiny = Experiment(**TINY)
    study = studies.Study("mine", "?", {"a": tiny, "b": tiny.but(rate=0.1)}, 2, "a", keeps_checkpoints=keeps)
    run_study(study, tmp_path / "r", processes=0)
    assert len(list(tmp_path.rglob("checkpoint-*"))) == (2 if keeps else 0)
    said: list[str] = []
    run_study(study, tmp_path / "r", arms=["b"], changes={"steps": 9}, processes=0, say=said.append)
    assert said[0].endswith("1 tasks to do.")
    run_study(study, tmp_path / "at once", arms=["b"], changes={"steps": 9}, processes=0)
    for seed in (39304300, 39304301):
        prolonged, whole = (next((tmp_path / store).rglob(f"b/seed-{seed}.npz")) for store in ("r", "at once"))
        assert np.load(prolonged)["losses"].tobytes() == np.load(whole)["losses"].tobytes()
    # The runs already have more steps than the study asks for, so no task is left.
    outcome = run_study(study, tmp_path / "r", processes=0, say=said.append)
    assert "0 tasks to do" in said[-1]
    assert [
        line.endswith("has 9 steps, not 6; the run is kept, and all its steps are reported.") for line in said[-3:]
    ] == [
        True,
        True,
        False,
    ]
    report.write(study, tmp_path / "r", tmp_path / "results", add=True)
    again = report.write(study, tmp_path / "r", tmp_path / "results", unfinished=True, add=True)
    for table in (outcome.table, again):
        steps = {name: [run["steps"] for run in arm["runs"]] for name, arm in table["arms"].items()}
        assert steps == {"a": [6, 6], "b": [9, 9]}
        assert report.horizon_of(table) == 9


def test_mistakes(tmp_path):
    with pytest.raises(ValueError, match="did you mean 'quick'"):
        run_study("quik", tmp_path)
    with pytest.raises(ValueError, match="did you mean 'E2M1'"):
        run_study("quick", tmp_path, arms=["E2M2"])
    with pytest.raises(ValueError, match="Argument 'seeds' must be between 1"):
        run_study("quick", tmp_path, seeds=0)


@pytest.mark.parametrize(
    ("module", "message"), [(None, "Package 'torch' is not installed"), (NO_GPU, "reason: PyTorch finds no GPU")]
)
def test_a_gpu_that_is_not_there_is_told_before_anything_runs(module, message, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", module)
    with pytest.raises((ModuleNotFoundError, RuntimeError), match=message):
        run_study("quick", tmp_path / "runs", machine="cuda")
    assert not (tmp_path / "runs").exists()
