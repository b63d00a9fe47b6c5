from __future__ import annotations

import pytest

from mxnum.experiments import sweep
from mxnum.experiments.config import Experiment, Operand
from mxnum.experiments.sweep import arm_directory, run_all, run_task, tasks_for

pytest.importorskip("threadpoolctl", reason="the extra 'experiments' is not installed")

TINY = Experiment(width=32, layers=1, batch=32, steps=6)
ARMS = {"FP32": TINY, "E2M1, gamma": TINY.but(gamma=Operand("mxfp4_e2m1"))}


def test_tasks_are_what_is_left(tmp_path):
    tasks = tasks_for(ARMS, range(5), tmp_path, stack=2)
    assert [(t.arm, t.seeds) for t in tasks[:3]] == [("FP32", (0, 1)), ("E2M1, gamma", (0, 1)), ("FP32", (2, 3))]
    run_task(tasks[0])
    left = tasks_for(ARMS, range(5), tmp_path, stack=2)
    assert len(left) == len(tasks) - 1
    (tmp_path / "FP32" / "seed-0.json").unlink()
    assert tasks_for(ARMS, range(5), tmp_path, stack=2)[0].seeds == (0,)
    assert tasks[2].label == "FP32, seeds 2 to 3"


def test_directories():
    assert arm_directory(tmp := sweep.Path("x"), "LN E2M1, blocks of 8").name == "LN-E2M1-blocks-of-8"
    assert arm_directory(tmp, "zeta mean -0.25, deviation 0").name == "zeta-mean-0.25-deviation-0"


def test_processes_run_everything_and_isolate_failures(tmp_path):
    broken = TINY.but(weights=Operand("mxfp4_e2m1", scale_rule="released_bump", block_size=24))
    tasks = tasks_for(ARMS | {"broken": broken}, range(3), tmp_path, stack=3)
    said = []
    failed = run_all(tasks, processes=2, say=said.append)
    assert failed == ["broken, seeds 0 to 2"]
    assert any("needs rows of whole blocks of 24" in line for line in said)
    assert "whole blocks" in (tmp_path / "broken" / "failed-0.txt").read_text()
    assert sum(line.startswith("done:") for line in said) == 2
    assert [t.arm for t in tasks_for(ARMS | {"broken": broken}, range(3), tmp_path)] == ["broken"]


def test_names_of_arms_that_share_a_folder_are_refused(tmp_path):
    with pytest.raises(ValueError, match="share the folder"):
        tasks_for({"a b": TINY, "a-b": TINY}, range(1), tmp_path)


def test_a_cluster_does_the_same(tmp_path):
    distributed = pytest.importorskip("distributed", reason="the extra 'distributed' is not installed")
    with distributed.LocalCluster(
        n_workers=1, threads_per_worker=1, processes=False, dashboard_address=None
    ) as cluster:
        tasks = tasks_for(ARMS, range(2), tmp_path)
        assert sweep.run_on_cluster(tasks, cluster.scheduler_address, say=lambda line: None) == []
    assert tasks_for(ARMS, range(2), tmp_path) == []
