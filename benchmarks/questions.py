"""The questions, and the session that each of them measures with.

A question is a module of this package with a `TITLE`, a `TEXT` that says what is compared with
what, and a function ``measure(session)`` that yields a table and a measurement at a time. To add
one, write the module and name it in `NAMES`.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from typing import Protocol

from benchmarks import timing
from benchmarks.record import Measurement, Table

#: The questions in the order in which they are asked. One whose module does not exist is left out.
NAMES = (
    "conversions", "cliff", "products", "scaling", "threads", "startup", "peers", "nvfp4", "torch", "cuda",
    "cuda_speed", "earlier",
)  # fmt: skip

#: Questions that are asked only by name.
ON_REQUEST = ("cuda", "cuda_speed", "earlier")

Cells = Iterator[tuple[Table, Measurement]]


class Question(Protocol):
    """The interface of a question's module."""

    TITLE: str
    TEXT: str

    def measure(self, session: Session) -> Cells:
        """Yield tables and measurements, one at a time.

        An interrupted run so keeps those before.
        """


@dataclass(frozen=True)
class Case:
    """Something to time against a baseline: one cell of a table."""

    row: str
    column: str
    #: None if it cannot be run, for the reason in `skipped`.
    run: Callable[[], object] | None
    #: The share of the baseline's work that the case does.
    share: float = 1.0
    limit: float | None = None
    skipped: str = ""
    x: float | None = None


@dataclass(frozen=True)
class Session:
    """The settings of a run: how thorough it is."""

    quick: bool = False
    #: Element counts to use in place of a question's own.
    sizes: tuple[int, ...] | None = None
    seed: int = 1
    #: The most rounds of a case, and the seconds after which it begins no further round.
    rounds: int = 21
    seconds: float = 1.5
    least: int = 3
    #: The measurements that an interrupted run has of this question, by table, row and column.
    earlier: Mapping[tuple[str, str, str], Measurement] = field(default_factory=dict)

    @classmethod
    def quickly(cls, sizes: tuple[int, ...] | None = None, seed: int = 1) -> Session:
        """Return the settings of a smoke test: a few rounds each."""
        return cls(quick=True, sizes=sizes, seed=seed, rounds=5, seconds=0.1, least=2)

    def sizes_or(self, full: tuple[int, ...], quick: tuple[int, ...]) -> tuple[int, ...]:
        """Return the sizes to measure at."""
        return self.sizes or (quick if self.quick else full)

    def compare(self, table: Table, baseline: timing.Function, *cases: Case) -> Cells:
        """Compare each case with the baseline.

        An error in one is recorded and does not end the others.
        """
        for case in cases:
            yield self.cell(table, case.row, case.column, partial(self._measured, baseline, case))

    def known(self, table: Table, row: str, column: str) -> Measurement | None:
        """Return what an interrupted run has measured, or None."""
        return self.earlier.get((table.key, row, column))

    def cell(
        self, table: Table, row: str, column: str, measure: Callable[[], Measurement]
    ) -> tuple[Table, Measurement]:
        """Return a cell, measured unless it is known."""
        return table, self.known(table, row, column) or measure()

    def _measured(self, baseline: timing.Function, case: Case) -> Measurement:
        if case.run is None:
            return Measurement(case.row, case.column, skipped=case.skipped, x=case.x)
        try:
            found = timing.ratios(baseline, case.run, rounds=self.rounds, seconds=self.seconds, least=self.least)
        except Exception as error:
            problem = f"{type(error).__name__}: {error}".splitlines()[0]
            return Measurement(case.row, case.column, failed=problem, limit=case.limit, x=case.x)
        s = timing.spread([ratio / case.share for ratio in found])
        return Measurement(
            case.row, case.column, s.median, s.low, s.high, s.repetitions, limit=case.limit, x=case.x
        )  # fmt: skip


def names() -> tuple[str, ...]:
    """Return the questions whose modules exist."""
    return tuple(name for name in NAMES if importlib.util.find_spec(f"benchmarks.{name}"))


def get(name: str) -> Question:
    """Return the module of a question."""
    module: Question = import_module(f"benchmarks.{name}")
    return module
