from __future__ import annotations

import os
import platform
import queue
import signal
from concurrent.futures import Executor, Future

import numpy as np
import pytest

from mxnum.lab.mlp.config import Experiment
from mxnum.lab.studies import sweep
from mxnum.lab.studies.study import Study
from mxnum.lab.studies.sweep import arm_directory, run_all
from mxnum.recipe import Operand

pytest.importorskip("threadpoolctl", reason="the extra 'experiments' is not installed")

TINY = Experiment(width=32, layers=1, batch=32, steps=6)
ARMS = {"FP32": TINY, "E2M1, gamma": TINY.but(gamma=Operand("mxfp4_e2m1"))}


def tasks_for(arms, seeds, root, stack=3, **how):
    study = Study("s", "?", arms, 1, next(iter(arms)), measure_every=0, own_folder="")
    return sweep.tasks_for(study, seeds, root, stack=stack, **how)


def test_tasks_are_the_runs_that_are_missing(tmp_path):
    tasks = tasks_for(ARMS, range(5), tmp_path, stack=2)
    assert [(t.arm, t.seeds) for t in tasks[:3]] == [("FP32", (0, 1)), ("E2M1, gamma", (0, 1)), ("FP32", (2, 3))]
    tasks[0].run()
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
    said, seen = [], []
    failures = run_all(tasks, processes=2, say=said.append, show=seen.append)
    assert [(f.arm, f.seed) for f in failures] == [("broken", 0), ("broken", 1), ("broken", 2)]
    assert all("needs rows of whole blocks of 24" in f.reason and "\n" not in f.reason for f in failures)
    assert f"  {failures[1]}" in said
    assert "Traceback" in failures[0].log.read_text()
    assert sum(line.startswith("done:") for line in said) == 2
    assert (seen[-1].done, seen[-1].total) == (54, 54)
    assert [t.arm for t in tasks_for(ARMS | {"broken": broken}, range(3), tmp_path)] == ["broken"]


def test_a_failure_is_that_of_a_seed(tmp_path, monkeypatch):
    real = sweep.Task.run

    def run(task, progress=None):
        if 1 in task.seeds:
            raise ArithmeticError("bad\n  seed")
        real(task)

    monkeypatch.setattr(sweep.Task, "run", run)
    (failure,) = sweep._guarded(tasks_for({"FP32": TINY}, range(3), tmp_path)[0])
    assert str(failure) == "FP32, seed 1: ArithmeticError: bad seed"
    monkeypatch.undo()
    (left,) = tasks_for({"FP32": TINY}, range(3), tmp_path)
    assert left.seeds == (1,)
    assert sweep._guarded(left) == []
    assert sorted(p.name for p in failure.log.parent.iterdir()) == [
        f"seed-{s}.{e}" for s in range(3) for e in ("json", "npz")
    ]


def test_a_process_that_dies_fails_its_task_alone():
    workers = sweep.Workers(1)
    try:
        with pytest.raises(RuntimeError, match="process of the task died"):
            workers.submit(os._exit, 3).result()
        assert workers.submit(abs, -3).result() == 3
        # Regression: SIGTERM to a worker ended the sweep with exit status 0.
        with pytest.raises(RuntimeError, match="process of the task received SIGTERM"):
            workers.submit(signal.raise_signal, signal.SIGTERM).result()
        assert workers.submit(abs, -3).result() == 3
    finally:
        workers.shutdown()


def page_faults(megabytes):
    """Create an array twice; return the page faults of the second creation, then of the first."""
    import resource

    counts = []
    for _ in range(2):
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        np.ones(megabytes << 17)
        counts.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
    return counts[::-1]


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="needs glibc")
def test_freed_memory_stays_with_a_process():
    workers = sweep.Workers(1)
    try:
        again, first = workers.submit(page_faults, 64).result()
    finally:
        workers.shutdown()
    assert again < first / 10


def test_an_interruption_says_that_it_waits(monkeypatch, tmp_path):
    """Check the message after Ctrl-C, which says that compilations are finished first."""
    told = []
    monkeypatch.setattr(sweep, "follow", lambda *arguments: (_ for _ in ()).throw(KeyboardInterrupt))
    tasks = tasks_for({"plain": Experiment(steps=1)}, [1], tmp_path)
    with pytest.raises(KeyboardInterrupt):
        run_all(tasks, processes=1, say=told.append)
    assert told == ["Interrupted: ending the processes. A process that is compiling finishes the compilation first."]


def test_a_state_and_its_estimate(monkeypatch):
    clock = iter([0.0, 5.0, 35.0])
    monkeypatch.setattr(sweep.time, "monotonic", lambda: next(clock))
    said = []
    show = sweep.every(10, said.append)
    for done in (0, 26):
        show(sweep.State(done, 100, {"FP32, seed 1": 7}))
    assert said == [" 26%, at most 85 s left. FP32, seed 1: step 7"]


def test_no_estimate_before_a_hundredth_is_done(monkeypatch):
    clock = iter([0.0, 5.0, 30.0])
    monkeypatch.setattr(sweep.time, "monotonic", lambda: next(clock))
    said = []
    show = sweep.every(10, said.append)
    for done in (1, 5):
        show(sweep.State(done, 1000, {"FP32, seed 1": 7}))
    assert len(said) == 1
    assert "left" not in said[0]


def test_steps_before_a_checkpoint_do_not_count_in_the_speed(monkeypatch, tmp_path):
    fresh, resumed = tasks_for({"fresh": TINY.but(steps=100), "resumed": TINY.but(steps=100)}, [1, 2], tmp_path)
    told = [[(fresh.label, 1), (fresh.label, 11)], [(resumed.label, 81), (resumed.label, 91)], []]
    progress, shown = queue.Queue(), []

    class Slow(Executor):
        def submit(self, function, *arguments):
            return Future()

    def wait(waiting, **_):
        for each in told.pop(0):
            progress.put(each)
        for future in waiting if not told else ():
            future.set_result([])
        return (set(), waiting) if told else (waiting, set())

    monkeypatch.setattr(sweep, "wait", wait)
    sweep.follow(Slow(), [fresh, resumed], progress, lambda text: None, shown.append)
    assert [(state.done, state.total) for state in shown] == [(22, 400), (44, 240), (240, 240)]


def test_the_first_step_is_reported_at_once(monkeypatch):
    """Check that the first step is reported at once, and later steps at most once a second."""
    progress, now = queue.Queue(), iter((5.0, 5.0, 5.5, 6.5, 6.5))
    monkeypatch.setattr(sweep.time, "monotonic", lambda: next(now))
    tell = sweep.telling("a", progress)
    for step in (1, 2, 3):
        tell(step)
    assert [progress.get_nowait() for _ in range(progress.qsize())] == [("a", 1), ("a", 3)]


def test_names_of_arms_that_share_a_folder_are_refused(tmp_path):
    with pytest.raises(ValueError, match="lead to the same folder"):
        tasks_for({"a b": TINY, "a-b": TINY}, range(1), tmp_path)


def test_a_cluster_runs_all_tasks(tmp_path):
    distributed = pytest.importorskip("distributed", reason="the extra 'distributed' is not installed")
    with distributed.LocalCluster(
        n_workers=1, threads_per_worker=1, processes=False, dashboard_address=None
    ) as cluster:
        tasks = tasks_for(ARMS, range(2), tmp_path)
        assert sweep.run_on_cluster(tasks, cluster.scheduler_address, say=lambda line: None) == []
    assert tasks_for(ARMS, range(2), tmp_path) == []


def test_the_machine_reaches_the_training(tmp_path, monkeypatch):
    (task,) = tasks_for({"FP32": TINY}, [0], tmp_path, machine="cuda")
    given = {}
    monkeypatch.setattr("mxnum.lab.studies.mlp.train", lambda *a, **k: given.update(k) or [])
    task.run()
    assert given["machine"] == "cuda"
    assert given["checkpoint"].name == "checkpoint-0-0-1-cuda.npz"
