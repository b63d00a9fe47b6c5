"""Many runs on several processes: resumable, with progress; a run that fails does not stop the others."""

from __future__ import annotations

import multiprocessing
import os
import queue
import re
import time
import traceback
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import FIRST_COMPLETED, Executor, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mxnum.experiments.config import Experiment

Say = Callable[[str], None]


@dataclass(frozen=True)
class Task:
    """Some seeds of one arm, trained together."""

    arm: str
    experiment: Experiment
    seeds: tuple[int, ...]
    directory: Path
    measure_every: int = 0
    stop_when_diverged: bool = True

    @property
    def label(self) -> str:
        seeds = self.seeds
        return f"{self.arm}, seed {seeds[0]}" if len(seeds) == 1 else f"{self.arm}, seeds {seeds[0]} to {seeds[-1]}"

    @property
    def steps(self) -> int:
        return self.experiment.steps * len(self.seeds)


def arm_directory(root: Path, arm: str) -> Path:
    """The folder of an arm: its name with anything but letters, digits and dots replaced."""
    return root / re.sub(r"[^A-Za-z0-9.]+", "-", arm).strip("-")


def tasks_for(
    arms: Mapping[str, Experiment],
    seeds: Iterable[int],
    root: Path,
    *,
    stack: int = 3,
    measure_every: int = 0,
    stop_when_diverged: bool = True,
) -> list[Task]:
    """The runs that are not yet on disk, seeds in groups of `stack`, first seeds of every arm first."""
    seeds = list(seeds)
    if len({arm_directory(root, arm) for arm in arms}) < len(arms):
        raise ValueError(f"Argument 'arms' must not have names that share the folder of their runs: {sorted(arms)}.")
    tasks = []
    for start in range(0, len(seeds), stack):
        for arm, experiment in arms.items():
            directory = arm_directory(root, arm)
            group = tuple(s for s in seeds[start : start + stack] if not (directory / f"seed-{s}.json").exists())
            if group:
                tasks.append(Task(arm, experiment, group, directory, measure_every, stop_when_diverged))
    return tasks


def run_task(task: Task, progress: Any = None) -> None:
    """Train and save; continue from a checkpoint if there is one."""
    from mxnum.experiments.loop import train

    name = f"checkpoint-{task.seeds[0]}-{task.seeds[-1]}-{len(task.seeds)}.npz"
    last = time.monotonic()

    def report(step: int, losses: Any, active: list[Any]) -> None:
        nonlocal last
        if progress is not None and time.monotonic() - last > 2:
            last = time.monotonic()
            progress.put((task.label, step, len(active)))

    runs = train(
        task.experiment,
        task.seeds,
        stop_when_diverged=task.stop_when_diverged,
        measure_every=task.measure_every,
        checkpoint=task.directory / name,
        report=report,
    )
    for run in runs:
        run.save(task.directory)


def _guarded(task: Task) -> str | None:
    try:
        run_task(task, _progress)
    except Exception:
        return traceback.format_exc()
    return None


_progress: Any = None


def _start_worker(progress: Any, niceness: int) -> None:
    global _progress
    _progress = progress
    os.nice(niceness)


def run_all(tasks: list[Task], *, processes: int | None = None, niceness: int = 0, say: Say = print) -> list[str]:
    """Run tasks on processes of this machine; the labels of those that failed come back.

    An interruption loses nothing but the steps since the last checkpoints: call it again with what `tasks_for` gives.
    """
    if not tasks:
        return []
    context = multiprocessing.get_context("spawn")
    progress = context.Queue()
    count = min(processes or os.cpu_count() or 1, len(tasks))
    executor = ProcessPoolExecutor(count, context, _start_worker, (progress, niceness))
    try:
        return follow(executor, tasks, progress, say)
    except KeyboardInterrupt:
        for process in list((executor._processes or {}).values()):
            process.terminate()
        raise
    finally:
        executor.shutdown(cancel_futures=True)


def run_on_cluster(tasks: list[Task], scheduler: str, *, say: Say = print) -> list[str]:
    """The same on an existing dask.distributed cluster whose workers see the same folder."""
    try:
        from distributed import Client
    except ImportError:
        raise ModuleNotFoundError("This needs dask.distributed: pip install mxnum[distributed].") from None
    with Client(scheduler) as client:
        return follow(client.get_executor(pure=False), tasks, None, say)


def follow(executor: Executor, tasks: list[Task], progress: Any, say: Say) -> list[str]:
    """Submit the tasks, show what is going on every ten seconds, and collect the failures."""
    started, shown = time.monotonic(), time.monotonic()
    futures: dict[Future[str | None], Task] = {executor.submit(_guarded, task): task for task in tasks}
    by_label = {task.label: task for task in tasks}
    now: dict[str, tuple[int, int]] = {}
    waiting, failed, done = set(futures), [], 0
    total = sum(task.steps for task in tasks)
    while waiting:
        finished, waiting = wait(waiting, timeout=1, return_when=FIRST_COMPLETED)
        try:
            while progress is not None:
                label, step, active = progress.get_nowait()
                now[label] = (step, active)
        except queue.Empty:
            pass
        for future in finished:
            task, error = futures[future], future.result()
            now.pop(task.label, None)
            done += task.steps
            say(f"{'failed' if error else 'done'}: {task.label} ({len(tasks) - len(waiting)} of {len(tasks)})")
            if error:
                failed.append(task.label)
                task.directory.mkdir(parents=True, exist_ok=True)
                (task.directory / f"failed-{task.seeds[0]}.txt").write_text(error)
                say(error)
        if time.monotonic() - shown > 10 and waiting:
            shown = time.monotonic()
            part = done + sum(step * len(by_label[label].seeds) for label, (step, _) in now.items())
            left = (shown - started) * (total - part) / max(part, 1)
            running = "; ".join(f"{label}: step {step}, {active} running" for label, (step, active) in now.items())
            say(f"{part / total:4.0%}, at most {left / 60:.0f} min left. {running}")
    return failed
