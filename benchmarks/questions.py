"""Define the interface of a question, and the session whose settings each question uses.

A question is a module of this package with a `TITLE`, a `TEXT` that says what is compared, and a
function ``measure(session)``, which yields pairs of a table and a measurement. To add a question,
write its module and name it in `NAMES`.
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

#: The questions in the order in which they run; a question without a module is skipped.
NAMES = (
    "conversions", "cliff", "products", "scaling", "threads", "startup", "peers", "nvfp4", "torch", "recipes",
    "cuda", "cuda_speed", "earlier",
)  # fmt: skip

#: Questions that run only if they are named.
ON_REQUEST = ("recipes", "cuda", "cuda_speed", "earlier")

Cells = Iterator[tuple[Table, Measurement]]


class Question(Protocol):
    """The interface of a question's module."""

    TITLE: str
    TEXT: str

    def measure(self, session: Session) -> Cells:
        """Yield pairs of a table and a measurement, one at a time.

        An interrupted run keeps the measurements that were yielded.
        """


@dataclass(frozen=True)
class Case:
    """A function to time against a baseline, for one cell of a table."""

    row: str
    column: str
    #: None if the case cannot run; `skipped` says why.
    run: Callable[[], object] | None
    #: The number of elements or bytes that the case processes, divided by the baseline's number.
    share: float = 1.0
    limit: float | None = None
    skipped: str = ""
    x: float | None = None


@dataclass(frozen=True)
class Session:
    """The settings of a run: which sizes to measure, how often, and for how long."""

    quick: bool = False
    #: The numbers of elements to measure. If None, each question uses its own numbers.
    sizes: tuple[int, ...] | None = None
    seed: int = 1
    #: The maximum number of rounds of a case. After `seconds` seconds, no further round begins.
    rounds: int = 21
    seconds: float = 1.5
    least: int = 3
    #: The measurements of an interrupted run for this question, indexed by (table, row, column).
    earlier: Mapping[tuple[str, str, str], Measurement] = field(default_factory=dict)

    @classmethod
    def quickly(cls, sizes: tuple[int, ...] | None = None, seed: int = 1) -> Session:
        """Return the settings of a smoke test, which has few rounds."""
        return cls(quick=True, sizes=sizes, seed=seed, rounds=5, seconds=0.1, least=2)

    def sizes_or(self, full: tuple[int, ...], quick: tuple[int, ...]) -> tuple[int, ...]:
        """Return the user's sizes.

        If the user gave none, return `quick` in a quick run, and `full` otherwise.
        """
        return self.sizes or (quick if self.quick else full)

    def compare(self, table: Table, baseline: timing.Function, *cases: Case) -> Cells:
        """Yield, for each case, a cell that holds the case's time divided by the baseline's time.

        An error in one case is recorded, and the following cases still run.
        """
        for case in cases:
            yield self.cell(table, case.row, case.column, partial(self._measured, baseline, case))

    def known(self, table: Table, row: str, column: str) -> Measurement | None:
        """Return the measurement of a cell from an interrupted run, or None."""
        return self.earlier.get((table.key, row, column))

    def cell(
        self, table: Table, row: str, column: str, measure: Callable[[], Measurement]
    ) -> tuple[Table, Measurement]:
        """Return a cell; measure the cell only if an interrupted run has not measured it."""
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
