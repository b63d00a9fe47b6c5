"""Times to an event as survival data: runs that reached the horizon are censored there. `inference` compares them."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mxnum import errors


def scipy_stats() -> Any:
    """`scipy.stats`, which an extra installs."""
    return errors.package("scipy.stats", "experiments")


@dataclass(frozen=True)
class Arm:
    """Times of one arm: the step of the divergence, or the number of steps that were run without one."""

    name: str
    times: tuple[int, ...]
    diverged: tuple[bool, ...]
    #: The seed of each run, where runs are to be compared in pairs.
    seeds: tuple[int, ...] = ()

    @classmethod
    def of(
        cls, name: str, first: Sequence[int | None], steps: Sequence[int], horizon: int | None = None,
        seeds: Sequence[int] = (),
    ) -> Arm:  # fmt: skip
        """From the first divergence (None: none) and the steps of each run; events after the horizon are censored."""
        limit = max(steps, default=0) if horizon is None else horizon
        times = [min(s if f is None else f, limit) for f, s in zip(first, steps, strict=True)]
        return cls(name, tuple(times), tuple(f is not None and f < limit for f in first), tuple(seeds))

    def by_seed(self) -> dict[int, tuple[int, bool]]:
        """Time and event of each seed."""
        return dict(zip(self.seeds, zip(self.times, self.diverged, strict=True), strict=True))

    def without(self, seed: int) -> Arm:
        """The arm but for one seed."""
        kept = [index for index, each in enumerate(self.seeds) if each != seed]
        times, events = tuple(self.times[i] for i in kept), tuple(self.diverged[i] for i in kept)
        return Arm(self.name, times, events, tuple(self.seeds[i] for i in kept))

    @property
    def runs(self) -> int:
        return len(self.times)

    @property
    def events(self) -> int:
        return sum(self.diverged)

    def median_time(self) -> float | None:
        """The first time at which the Kaplan-Meier curve is at most a half; None if it never is."""
        times, survival = kaplan_meier(self)[:2]
        below = np.nonzero(survival <= 0.5 + 1e-9)[0]  # of 24 runs it is 0.5000000000000001 after 12 events
        return float(times[below[0]]) if len(below) else None


def kaplan_meier(arm: Arm, confidence: float = 0.95) -> tuple[Any, Any, Any, Any]:
    """Times, the survival function after each, and its log-log confidence limits."""
    stats = scipy_stats()
    if arm.events == 0:
        ones = np.ones(1)
        return np.zeros(1), ones, ones * math.nan, ones
    times, events = np.array(arm.times, float), np.array(arm.diverged)
    data = stats.CensoredData(times[events], right=times[~events])
    survival = stats.ecdf(data).sf
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # the limits are undefined where nobody is left
        interval = survival.confidence_interval(confidence, method="log-log")
    return survival.quantiles, survival.probabilities, interval.low.probabilities, interval.high.probabilities
