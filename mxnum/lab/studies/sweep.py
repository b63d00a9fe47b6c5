"""Train many runs on several processes, show their progress, and continue interrupted runs."""

from __future__ import annotations

import ctypes
import math
import multiprocessing
import os
import queue
import re
import signal
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import (
    FIRST_COMPLETED,
    BrokenExecutor,
    Executor,
    Future,
    ProcessPoolExecutor,
    ThreadPoolExecutor,
    wait,
)
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from mxnum import errors
from mxnum.lab import storage
from mxnum.lab.studies.study import Study, model_of

Say = Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class Task:
    """Runs of one arm with different seeds, which one process trains.

    After an interruption, a task can run again.
    """

    arm: str
    #: An `Experiment` for an MLP, or a `Setting` for a language model.
    configuration: Any
    seeds: tuple[int, ...]
    #: The folder for results and failures.
    directory: Path
    measure_every: int = 0
    measure_above: float | None = None
    machine: str = "cpu"
    keeps_checkpoint: bool = False
    keeps_operands: bool = False

    @property
    def label(self) -> str:
        seeds = self.seeds
        return f"{self.arm}, seed {seeds[0]}" if len(seeds) == 1 else f"{self.arm}, seeds {seeds[0]} to {seeds[-1]}"

    @property
    def steps(self) -> int:
        """The number of training steps, summed over all seeds."""
        return int(self.configuration.steps) * len(self.seeds)

    def run(self, progress: Any = None) -> None:
        """Train and save the runs, and report progress.

        At most once a second, training puts (label, step) into the queue `progress`.
        """
        model_of(self.configuration).train(self, progress)
        for seed in self.seeds:
            (self.directory / f"failed-{seed}.txt").unlink(missing_ok=True)


@dataclass(frozen=True)
class Failure:
    """A run that ended with an exception."""

    arm: str
    seed: int
    #: The exception in one sentence.
    reason: str
    #: The file that holds the whole traceback.
    log: Path | None = None

    def __str__(self) -> str:
        return f"{self.arm}, seed {self.seed}: {self.reason}"


@dataclass(frozen=True)
class State:
    """The progress of a sweep in training steps, summed over seeds.

    The counts exclude the steps that earlier calls trained.
    """

    done: int
    total: int
    #: The step that each running task has reached, by the label of the task.
    running: Mapping[str, int] = field(default_factory=dict)

    def __str__(self) -> str:
        running = "; ".join(f"{label}: step {step}" for label, step in self.running.items())
        return running or ("done" if self.done == self.total else "starting")


#: A function that shows the state of a sweep. `follow` calls it about once a second.
Show = Callable[[State], None]


def arm_directory(root: Path, arm: str) -> Path:
    """Return the folder of an arm.

    The folder has the name of the arm, but "-" replaces all characters except letters, digits and
    dots.
    """
    return root / re.sub(r"[^A-Za-z0-9.]+", "-", arm).strip("-")


def check_folders(arms: Iterable[str]) -> None:
    """Raise ValueError if two arms would use the same folder."""
    by_folder: dict[Path, str] = {}
    for arm in arms:
        other = by_folder.setdefault(arm_directory(Path(), arm), arm)
        if other != arm:
            raise ValueError(
                f"Argument 'arms' must have names with different folders, but {other!r} and {arm!r} "
                "lead to the same folder."
            )


def tasks_for(
    study: Study,
    seeds: Iterable[int],
    root: Path,
    *,
    stack: int | None = None,
    machine: str = "cpu",
    keep_operands: bool = False,
) -> list[Task]:
    """Return tasks for the runs that are not complete on disk.

    Each task trains at most `stack` seeds of one arm. The list begins with the first seeds of every
    arm.
    """
    seeds, stack, tasks = list(seeds), stack or study.model.stack, []
    check_folders(study.arms)

    def is_there(run: Path, steps: int) -> bool:
        if not run.exists() or storage.read_json(run)[study.model.key]["steps"] < steps:
            return False
        return not keep_operands or run.with_name(f"{run.stem}-operands.npz").exists()

    for start in range(0, len(seeds), stack):
        for arm, configuration in study.arms.items():
            directory, group = arm_directory(root / study.folder, arm), seeds[start : start + stack]
            left = [s for s in group if not is_there(directory / f"seed-{s}.json", configuration.steps)]
            if left:
                task = Task(
                    arm=arm, configuration=configuration, seeds=tuple(left), directory=directory,
                    measure_every=study.measure_every, measure_above=study.measure_above, machine=machine,
                    keeps_checkpoint=study.keeps_checkpoints, keeps_operands=keep_operands,
                )  # fmt: skip
                tasks.append(task)
    return tasks


def telling(label: str, progress: Any) -> Callable[[int], None]:
    """Return a function `tell(step)` that puts (label, step) into the queue `progress`.

    `tell` does so at most once a second. If `progress` is None, `tell` does nothing.
    """
    last = -math.inf

    def tell(step: int) -> None:
        nonlocal last
        if progress is not None and time.monotonic() - last > 1:
            last = time.monotonic()
            progress.put((label, step))

    return tell


def _guarded(task: Task) -> list[Failure]:
    """Run a task and return its failures; if a task of several seeds fails, run each seed alone."""
    try:
        task.run(_progress)
    except Exception as problem:
        if len(task.seeds) == 1:
            return [failed(task, problem, traceback.format_exc())]
        return [f for seed in task.seeds for f in _guarded(replace(task, seeds=(seed,)))]
    return []


def failed(task: Task, problem: BaseException, details: str = "") -> Failure:
    """Return a `Failure` for a task with one seed, and write the traceback to the task's folder."""
    message = " ".join(str(problem).split())
    reason = f"{type(problem).__name__}: {message}" if message else type(problem).__name__
    log = task.directory / f"failed-{task.seeds[0]}.txt"
    task.directory.mkdir(parents=True, exist_ok=True)
    log.write_text(details or reason + "\n")
    return Failure(task.arm, task.seeds[0], reason, log)


_progress: Any = None


def _start_worker(progress: Any, niceness: int) -> None:
    global _progress
    _progress = progress
    os.nice(niceness)
    signal.signal(
        signal.SIGINT, signal.SIG_IGN
    )  # Ctrl-C reaches all processes of the group, but only the parent must act on it
    _keep_freed_memory()
    threading.Thread(target=_end_with_the_parent, daemon=True).start()
    signal.signal(signal.SIGTERM, _leave)  # last, because SystemExit in this initializer would break the pool


def _keep_freed_memory() -> None:
    """Stop glibc from returning freed memory to the operating system.

    If glibc returned memory, the system would have to clear new memory at every training step.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if os.name == "posix" else None
    if mallopt is not None:
        trim_threshold, mmap_threshold = -1, -3  # values from malloc.h
        for parameter in (trim_threshold, mmap_threshold):
            mallopt(parameter, 2**31 - 1)


def _leave(number: int, frame: Any) -> None:
    raise SystemExit  # raise, rather than exit at once, so that `with` statements remove partial files


def _end_with_the_parent() -> None:
    """Stop this process when its parent dies, because then nobody reads the results."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


class Workers(Executor):
    """A pool of processes, each of which runs one task at a time.

    If a process dies, only its current task fails.
    """

    def __init__(self, count: int, niceness: int = 0) -> None:
        self._context = multiprocessing.get_context("spawn")
        self.progress: Any = self._context.Queue()
        self._niceness, self._local = niceness, threading.local()
        self._threads = ThreadPoolExecutor(count)
        self._pools: set[ProcessPoolExecutor] = set()

    def submit(self, function: Callable[..., Any], /, *arguments: Any, **named: Any) -> Future[Any]:
        """Run a function on the next free process, and return a future for its result."""
        return self._threads.submit(self._call, function, *arguments, **named)

    def _call(self, function: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        pool = getattr(self._local, "pool", None)
        if pool is None:
            pool = ProcessPoolExecutor(1, self._context, _start_worker, (self.progress, self._niceness))
            self._local.pool = pool
            self._pools.add(pool)
        try:
            return pool.submit(function, *arguments, **named).result()
        except BrokenExecutor:
            self._local.pool = None
            raise RuntimeError("the process of the task died; perhaps there was not enough memory") from None
        except SystemExit:  # `_leave` raised it in the worker; uncaught, it would end the parent with status 0
            raise RuntimeError(
                "the process of the task received SIGTERM; the task can continue from its last checkpoint"
            ) from None

    def terminate(self) -> None:
        """Stop the processes now; their runs can continue from their last checkpoints."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        for pool in list(self._pools):
            for process in list((pool._processes or {}).values()):
                process.terminate()

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Stop the processes when the tasks are done."""
        self._threads.shutdown(wait=wait, cancel_futures=cancel_futures)
        for pool in self._pools:
            pool.shutdown(wait=wait, cancel_futures=cancel_futures)
        self.progress.close()
        self.progress.cancel_join_thread()


def run_all(
    tasks: Sequence[Task],
    *,
    processes: int | None = None,
    niceness: int = 0,
    say: Say = print,
    show: Show | None = None,
) -> list[Failure]:
    """Run tasks on processes of this machine, and return the failures.

    ``processes=0`` runs the tasks in this process. To continue after an interruption, call the
    function again with a new result of `tasks_for`. Only the steps since the last checkpoints are
    lost.
    """
    if processes == 0 or not tasks:
        return [failure for task in tasks for failure in _announced(task, _guarded(task), say)]
    workers = Workers(min(processes or os.cpu_count() or 1, len(tasks)), niceness)
    try:
        return follow(workers, tasks, workers.progress, say, show)
    except BaseException as problem:
        if isinstance(problem, KeyboardInterrupt):
            say("Interrupted: ending the processes. A process that is compiling finishes the compilation first.")
        workers.terminate()
        raise
    finally:
        workers.shutdown(cancel_futures=True)


def run_on_cluster(
    tasks: Sequence[Task], scheduler: str, *, say: Say = print, show: Show | None = None
) -> list[Failure]:
    """Run tasks on a dask.distributed cluster, and return the failures.

    The cluster must have access to the runs' folder.
    """
    with cluster(scheduler) as executor:
        return follow(executor, tasks, None, say, show) if tasks else []


@contextmanager
def cluster(scheduler: str) -> Iterator[Executor]:
    """Yield an executor for the dask.distributed cluster whose scheduler has the given address."""
    distributed = errors.package("distributed", "distributed")
    with distributed.Client(scheduler) as client:
        yield client.get_executor(pure=False)


def follow(
    executor: Executor, tasks: Sequence[Task], progress: Any, say: Say, show: Show | None = None
) -> list[Failure]:
    """Run the tasks on an executor, show their progress, and return the failures."""
    futures: dict[Future[list[Failure]], Task] = {executor.submit(_guarded, task): task for task in tasks}
    by_label = {task.label: task for task in tasks}
    began: dict[str, int] = {}
    now: dict[str, int] = {}
    waiting, failures, done = set(futures), [], 0
    total = sum(task.steps for task in tasks)
    show = show or every(10, say)
    while waiting:
        finished, waiting = wait(waiting, timeout=1, return_when=FIRST_COMPLETED)
        try:
            while progress is not None:
                label, step = progress.get_nowait()
                if label in by_label:
                    began.setdefault(label, step - 1)  # earlier calls trained all steps before this one
                    now[label] = step
        except queue.Empty:
            pass
        for future in finished:
            task = futures[future]
            try:
                found = future.result()
            except Exception as problem:
                found = [failed(replace(task, seeds=(seed,)), problem) for seed in task.seeds]
            now.pop(task.label, None)
            done += task.steps
            failures += _announced(task, found, say, f" ({len(tasks) - len(waiting)} of {len(tasks)})")
        part = done + sum(step * len(by_label[label].seeds) for label, step in now.items())
        held = sum(step * len(by_label[label].seeds) for label, step in began.items())
        show(State(part - held, total - held, dict(now)))
    return failures


def _announced(task: Task, failures: list[Failure], say: Say, count: str = "") -> list[Failure]:
    """Show that a task has ended, and return its failures."""
    say(f"{'failed' if failures else 'done'}: {task.label}{count}")
    for failure in failures:
        say(f"  {failure}")
    return failures


def every(seconds: float, say: Say) -> Show:
    """Return a function that reports progress through `say`, at most once in `seconds` seconds."""
    shown = time.monotonic()
    began: float | None = None

    def show(state: State) -> None:
        nonlocal shown, began
        now = time.monotonic()
        began = began or (now if state.running else None)
        if began and now - shown >= seconds and state.done < state.total:
            shown = now
            has_started = 100 * state.done >= state.total  # the first 1 % of the steps is mostly compilation
            left = (now - began) * (state.total - state.done) / max(state.done, 1)
            say(f"{state.done / state.total:4.0%}{f', at most {duration(left)} left' * has_started}. {state}")

    return show


def duration(seconds: float) -> str:
    """Return a duration as text, rounded to seconds, minutes or tenths of an hour.

    >>> duration(40), duration(100), duration(3 * 3600)
    ('40 s', '2 min', '3.0 h')
    """
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
