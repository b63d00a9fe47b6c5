"""Detect a divergence: 20 losses in a row above 100 times the least, or an infinite or NaN loss.

Training detects a divergence during the run. Two modules of `lab.studies` use divergences:
`interventions` changes runs shortly before they diverge, and `critical` finds the lowest learning
rate at which runs diverge. The loss may come down again after a divergence; `excursions` decides
after the run whether it did. In older stored studies, each run stopped at its divergence.
`is_near_spike` decides when training measures more often.
"""

from __future__ import annotations

from typing import Any

import numpy as np

Array = Any
FACTOR, IN_A_ROW = 100.0, 20
#: `is_near_spike` compares the last loss with the least of the last `NEAR` losses.
NEAR = 500


class Watch:
    """A detector of divergence: `first[run]` is the step at which a run began to diverge, or -1."""

    def __init__(self, runs: int):
        self.least = np.full(runs, np.inf)
        self.above = np.zeros(runs, np.int64)
        self.first = np.full(runs, -1, np.int64)

    def see(self, step: int, loss: Array) -> None:
        """Record the losses of one step."""
        finite = np.isfinite(loss)
        self.least = np.where(finite, np.minimum(self.least, loss), self.least)
        self.above = np.where(finite & (loss <= FACTOR * self.least), 0, self.above + 1)
        started = np.where(finite, step - IN_A_ROW + 1, step)
        now = (self.first < 0) & (~finite | (self.above >= IN_A_ROW))
        self.first = np.where(now, started, self.first)


def is_near_spike(losses: list[float], above: float) -> bool:
    """Return True if the last loss is over `above` times the least of the last 500 losses.

    NaN counts as infinity. After 500 losses at the same level, the function returns False even if
    this level is high.

    >>> is_near_spike([1.0, 3.1], 3.0), is_near_spike([1.0, 3.0], 3.0), is_near_spike([1.0, *[9.0] * 500], 3.0)
    (True, False, False)
    """
    recent = np.array(losses[-NEAR:])
    recent[np.isnan(recent)] = np.inf
    return recent.size > 0 and bool(recent[-1] > above * recent.min())


def first_divergence(losses: Array) -> int | None:
    """Return the step at which a history of losses began to diverge, or None.

    >>> first_divergence([1.0] * 5 + [101.0] * 20), first_divergence([1.0] * 5 + [101.0] * 19)
    (5, None)
    """
    watch = Watch(1)
    for step, loss in enumerate(losses):
        watch.see(step, np.array([loss]))
        if watch.first[0] >= 0:
            return int(watch.first[0])
    return None
