"""Count the runs whose loss stays high, or ends high, after a jump, for several thresholds."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from mxnum.lab.studies import report

#: The thresholds for the loss, as multiples of the base. The base is the least running median of
#: the loss before a jump.
LINES = (2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 20.0)
#: The headings of the columns: arm, runs that jump, then the runs at or above each threshold.
HEADINGS = ("arm", "runs that jump", *(f"above {line:g} x" for line in LINES))


def least_after(table: dict[str, Any], arm: str) -> list[float]:
    """Return, for each run that jumps, the least loss after the first jump, divided by the base.

    The losses are the stored medians over bins of steps. If a run has no bin that begins after the
    start of its jump, its result is infinite.

    >>> run = {"steps": 40, "final_loss": 3.0, "curve": [1.0] * 20 + [9.0, 4.0] + [6.0] * 18}
    >>> run["excursions"] = [{"start": 20, "end": None, "base": 1.0, "peak": 9.0, "area": 1.0}]
    >>> least_after({"arms": {"a": {"experiment": {"steps": 40}, "runs": [run]}}}, "a")
    [4.0]
    """
    found = []
    for run, course in zip(table["arms"][arm]["runs"], report.courses(table, arm), strict=True):
        if course.excursions:
            first, starts = course.excursions[0], np.linspace(0, run["steps"], report.CURVE_POINTS + 1).astype(int)
            later = [v for v, at in zip(run["curve"], starts, strict=False) if at > first.start and v is not None]
            found.append(min(later, default=math.inf) / first.base)
    return found


def at_the_end(table: dict[str, Any], arm: str) -> list[float]:
    """Return, for each run that jumps, the final loss divided by the base before the first jump."""
    runs = [run for run in report.courses(table, arm) if run.excursions]
    return [(math.inf if run.final is None else run.final) / run.excursions[0].base for run in runs]


def rows(table: dict[str, Any], arms: Sequence[str], *, ever: bool) -> list[tuple[str, ...]]:
    """Return a row for each arm: how many runs jump, and how many are at or above each threshold.

    The thresholds are `LINES`. If `ever` is True, the numbers that `least_after` returns are
    compared with the thresholds; otherwise, those that `at_the_end` returns.
    """
    found = []
    for arm in arms:
        values = least_after(table, arm) if ever else at_the_end(table, arm)
        counts = (str(sum(value >= line for value in values)) for line in LINES)
        found.append((arm, f"{len(values)} of {len(table['arms'][arm]['runs'])}", *counts))
    return found
