"""Collect theorems and check them in worker processes.

A theorem's check is a closure, which cannot be sent to another process. So each worker collects the
theorems itself and receives only their names. If a worker dies or takes too long, only the theorem
that it was checking fails.
"""

from __future__ import annotations

import importlib
import multiprocessing
import pkgutil
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from multiprocessing.connection import Connection, wait
from statistics import median
from typing import Any

import proofs.theorems
from proofs.theorem import Outcome, Theorem

#: Modules outside `proofs.theorems` that state theorems and may need packages that are not
#: installed.
OPTIONAL_MODULES = ("proofs.machines.llvm", "proofs.machines.ptx", "proofs.mutants.planted", "proofs.exhaustive")
#: Seconds after which a theorem's check is stopped.
HARD_LIMIT = {"fast": 900, "full": 6 * 3600}
#: The longest time of a theorem in a `sample`, as a multiple of the median time of all theorems:
#: QUICK_FAMILY for the quickest theorem of a family, QUICK for the other theorems of the family.
QUICK_FAMILY, QUICK = 4.0, 0.1


@dataclass(frozen=True)
class Collection:
    """The theorems by name, and why each skipped module could not be imported."""

    theorems: dict[str, Theorem]
    skipped: dict[str, str]


@cache
def collect() -> Collection:
    """Return all theorems of the project, in a stable order."""
    found: dict[str, Theorem] = {}
    skipped: dict[str, str] = {}
    required = [f"proofs.theorems.{module.name}" for module in pkgutil.iter_modules(proofs.theorems.__path__)]
    for module in (*sorted(required), *OPTIONAL_MODULES):
        try:
            stated = importlib.import_module(module).theorems()
        except ImportError as problem:
            if module in required:
                raise
            skipped[module] = str(problem)
            continue
        for theorem in stated:
            if theorem.name in found:
                raise ValueError(f"two theorems are called {theorem.name!r}")
            found[theorem.name] = theorem
    return Collection(found, skipped)


def choose(theorems: Iterable[Theorem], tier: str, pattern: str | None = None) -> list[Theorem]:
    """Return the theorems of a tier whose names match a glob or contain a string.

    The tier "full" includes "fast".
    """
    return [
        theorem
        for theorem in theorems
        if (tier == "full" or theorem.tier == "fast")
        and (pattern is None or pattern in theorem.name or fnmatchcase(theorem.name, pattern))
    ]


def sample(families: Iterable[Sequence[Theorem]], seconds: Mapping[str, float]) -> list[Theorem]:
    """Return a few quick theorems of each family.

    The test suite proves the returned theorems again in each run. They cover as many elements,
    roundings and sources of a family as quick theorems can. A family whose quickest theorem takes
    long is left out. The ledger records the proofs of all theorems.
    """
    chosen: list[Theorem] = []
    usual = median(seconds.values()) if seconds else 1.0
    for family in families:
        by_time = sorted(family, key=lambda theorem: seconds.get(theorem.name, 0.0))
        parts = [set(enumerate(theorem.name.split("/"))) for theorem in by_time]
        counts = Counter(part for some in parts for part in some)
        new = {part for part, count in counts.items() if count > 1}
        for theorem, some in zip(by_time, parts, strict=True):
            is_first = theorem is by_time[0]
            most = usual * (QUICK_FAMILY if is_first else QUICK)
            if seconds.get(theorem.name, 0.0) <= most and (is_first or some & new):
                chosen.append(theorem)
                new -= some
    return chosen


def check(theorem: Theorem) -> Outcome:
    """Return the theorem's outcome, which is "error" if its check raises an exception."""
    started = time.perf_counter()
    try:
        return theorem.check()
    except Exception as problem:
        return Outcome("error", "-", time.perf_counter() - started, f"{type(problem).__name__}: {problem}")


def _work(connection: Connection, get: Callable[[], Collection]) -> None:
    theorems = get().theorems
    while (name := connection.recv()) is not None:
        connection.send(check(theorems[name]))


class _Worker:
    """A process that checks one theorem at a time."""

    def __init__(self, get: Callable[[], Collection]) -> None:
        context = multiprocessing.get_context("spawn")
        self.connection, theirs = context.Pipe()
        self.process = context.Process(target=_work, args=(theirs, get), daemon=True)
        self.process.start()
        theirs.close()
        self.theorem: Theorem | None = None
        self.started = 0.0

    def begin(self, theorem: Theorem) -> None:
        """Begin to check a theorem."""
        self.theorem, self.started = theorem, time.perf_counter()
        with suppress(OSError):  # If the process is dead, the next wait in `check_all` detects this.
            self.connection.send(theorem.name)

    def end(self) -> None:
        """Stop the process."""
        self.process.terminate()
        self.process.join()
        self.connection.close()


def check_all(
    theorems: Sequence[Theorem],
    jobs: int,
    report: Callable[[Theorem, Outcome], Any] = lambda theorem, outcome: None,
    expected_seconds: dict[str, float] | None = None,
    get: Callable[[], Collection] = collect,
    limits: Mapping[str, float] = HARD_LIMIT,
) -> dict[str, Outcome]:
    """Check theorems in `jobs` worker processes, and return their outcomes by name.

    The theorems that take longest start first. Each worker calls `get` to collect the theorems.
    """
    expected = expected_seconds or {}
    queue = sorted(theorems, key=lambda theorem: expected.get(theorem.name, 1e9))
    outcomes: dict[str, Outcome] = {}
    workers: list[_Worker] = []

    def finish(worker: _Worker, outcome: Outcome) -> None:
        assert worker.theorem is not None
        outcomes[worker.theorem.name] = outcome
        report(worker.theorem, outcome)
        worker.theorem = None

    def replace(worker: _Worker, outcome: Outcome) -> None:
        finish(worker, outcome)
        workers.remove(worker)
        worker.end()

    try:
        while queue or any(worker.theorem for worker in workers):
            while queue and len(workers) < jobs:
                workers.append(_Worker(get))
            for worker in workers:
                if worker.theorem is None and queue:
                    worker.begin(queue.pop())
            busy = [worker for worker in workers if worker.theorem is not None]
            ready = wait([worker.connection for worker in busy], timeout=1.0)
            for worker in busy:
                seconds = time.perf_counter() - worker.started
                assert worker.theorem is not None
                if worker.connection in ready:
                    try:
                        finish(worker, worker.connection.recv())
                    except (EOFError, ConnectionError):
                        worker.process.join()
                        reason = f"the process died with exit code {worker.process.exitcode}"
                        replace(worker, Outcome("error", "-", seconds, reason))
                elif seconds > limits[worker.theorem.tier]:
                    replace(worker, Outcome("unknown", "-", seconds, f"stopped after {seconds:.0f} s"))
    finally:
        for worker in workers:
            worker.end()
    return outcomes
