"""Measure how far wrong sums are from right sums, in units in the last place of the result."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from mxnum.conformance.bits import as_floats
from mxnum.conformance.task import Columns, Task
from mxnum.memory.dtypes import Array


def in_last_places(task: Task, got: Array, want: Array) -> Array:
    """Return the signed distance of each answer from the right answer; NaN if either is not finite.

    Distances are in units in the last place of the larger magnitude, at the precision of the
    operation's results.
    """
    bits = task.operation.result_bits(task)
    with np.errstate(all="ignore"):
        values = [as_floats(x, task.source)[:, 0].astype(np.float64) for x in (got, want)]
        largest = np.maximum(abs(values[0]), abs(values[1]))
        exponent = np.maximum(np.frexp(np.where(np.isfinite(largest), largest, 0))[1] - 1, task.source.emin)
        exponent = np.where(largest == 0, task.source.emin, exponent)
        return np.asarray((values[0] - values[1]) / np.ldexp(1.0, exponent - (bits or 0)))


def signed(distance: float) -> str:
    """Return a distance with its sign, as text."""
    return f"{distance:+.6g}"


@dataclass
class Distances:
    """The distances of the wrong answers from the right answers.

    `nearer` and `farther` count the wrong answers that are nearer zero, or farther from zero, than
    the right answers.
    """

    #: The signed distance (answer minus right answer) with the largest magnitude. `where` is the
    #: location of its test case.
    largest: float = 0.0
    where: str = ""
    nearer: int = 0
    farther: int = 0
    _all: list[Array] = field(default_factory=list)

    def add(self, task: Task, answers: Columns, want: Columns, rows: Array, where: Callable[[int], str]) -> None:
        """Record the distances of the wrong answers in `rows`.

        `where(row)` returns the location of a test case as text.
        """
        found = in_last_places(task, answers["value"][rows], want["value"][rows])
        finite = np.isfinite(found) & (found != 0)
        if not finite.any():
            return
        self._all.append(found[finite])
        magnitudes = [abs(as_floats(x["value"][rows], task.source)[:, 0]) for x in (answers, want)]
        self.nearer += int((finite & (magnitudes[0] < magnitudes[1])).sum())
        self.farther += int((finite & (magnitudes[0] > magnitudes[1])).sum())
        at = int(np.where(finite, abs(found), 0).argmax())
        if abs(found[at]) > abs(self.largest):
            self.largest, self.where = float(found[at]), where(int(rows[at]))

    @property
    def count(self) -> int:
        """The number of wrong answers that are finite and have a finite right answer."""
        return sum(map(len, self._all))

    @property
    def median(self) -> float:
        """The median of the signed distances."""
        return float(np.median(np.concatenate(self._all)))

    def sentence(self) -> str:
        """Return sentences that describe the distances."""
        return (
            f"Distances of {self.count} wrong answers from the right answers, in units in the last place: largest "
            f"{signed(self.largest)} ({self.where}), median {signed(self.median)}. "
            f"{self.nearer} wrong answers are nearer zero than the right answers, {self.farther} are farther from zero."
        )

    def as_dict(self) -> dict[str, Any]:
        """Return the distances as a dictionary for scripts."""
        counts = {"count": self.count, "nearer zero": self.nearer, "farther from zero": self.farther}
        return {"largest": self.largest, "median": self.median, **counts} if self.count else counts
