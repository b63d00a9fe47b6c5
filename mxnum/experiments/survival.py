"""Time to divergence as survival data: runs that reached the horizon are censored there."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mxnum import errors


def _scipy_stats() -> Any:
    try:
        import scipy.stats
    except ImportError:
        raise ModuleNotFoundError("This needs scipy: pip install mxnum[experiments].") from None
    return scipy.stats


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
        parts = (tuple(values[i] for i in kept) for values in (self.times, self.diverged, self.seeds))
        return Arm(self.name, *parts)

    @property
    def runs(self) -> int:
        return len(self.times)

    @property
    def events(self) -> int:
        return sum(self.diverged)

    def median_time(self) -> float | None:
        """The first time at which the Kaplan-Meier curve is at most a half; None if it never is."""
        times, survival = kaplan_meier(self)[:2]
        below = np.nonzero(survival <= 0.5)[0]
        return float(times[below[0]]) if len(below) else None


def pooled(arms: Iterable[Arm]) -> Arm:
    """The runs of several arms as those of one."""
    parts = list(arms)
    return Arm("pooled", tuple(t for a in parts for t in a.times), tuple(d for a in parts for d in a.diverged))


def kaplan_meier(arm: Arm, confidence: float = 0.95) -> tuple[Any, Any, Any, Any]:
    """Times, the survival function after each, and its log-log confidence limits."""
    stats = _scipy_stats()
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


def log_rank(a: Arm, b: Arm) -> float | None:
    """Two-sided p-value of the log-rank test; None where the data cannot tell, as where neither arm has an event."""
    if a.events + b.events == 0:
        return None
    stats = _scipy_stats()
    samples = []
    for arm in (a, b):
        times, events = np.array(arm.times, float), np.array(arm.diverged)
        samples.append(stats.CensoredData(times[events], right=times[~events]))
    with np.errstate(all="ignore"):
        p = float(stats.logrank(*samples).pvalue)
    return None if math.isnan(p) else p


def fisher(a: Arm, b: Arm) -> float:
    """Two-sided p-value of Fisher's exact test on the numbers that diverged before the horizon."""
    table = [[arm.events, arm.runs - arm.events] for arm in (a, b)]
    return float(_scipy_stats().fisher_exact(table).pvalue)


def peto(a: Arm, b: Arm, confidence: float = 0.95) -> tuple[float, float, float] | None:
    """Peto's estimate of the hazard ratio of `a` to `b`, with limits; None unless both arms have events.

    exp((O - E) / V), with O the events of `a`, and E and V their hypergeometric expectation and variance over the
    event times of both arms.
    """
    if a.events == 0 or b.events == 0:
        return None
    observed = expected = variance = 0.0
    for time in sorted({t for arm in (a, b) for t, d in zip(arm.times, arm.diverged, strict=True) if d}):
        at_risk = [sum(t >= time for t in arm.times) for arm in (a, b)]
        events = [sum(d and t == time for t, d in zip(arm.times, arm.diverged, strict=True)) for arm in (a, b)]
        total, died = sum(at_risk), sum(events)
        observed += events[0]
        expected += died * at_risk[0] / total
        if total > 1:
            variance += died * (total - died) * at_risk[0] * at_risk[1] / (total**2 * (total - 1))
    if variance == 0:
        return None
    reach = _scipy_stats().norm.ppf((1 + confidence) / 2) / math.sqrt(variance)
    centre = (observed - expected) / variance
    return math.exp(centre), math.exp(centre - reach), math.exp(centre + reach)


def wilson(events: int, runs: int, confidence: float = 0.95) -> tuple[float, float]:
    """Wilson's interval of a proportion."""
    errors.require(0 <= events <= runs and runs > 0, "events", f"between 0 and runs={runs}", events)
    low, high = _scipy_stats().binomtest(events, runs).proportion_ci(confidence, method="wilson")
    return float(low), float(high)


def mean_interval(values: Sequence[float], confidence: float = 0.95) -> tuple[float, float, float] | None:
    """The mean and its limits by Student's t; None for fewer than three values."""
    if len(values) < 3:
        return None
    mean, error = float(np.mean(values)), float(np.std(values, ddof=1)) / math.sqrt(len(values))
    reach = float(_scipy_stats().t.ppf((1 + confidence) / 2, len(values) - 1)) * error
    return mean, mean - reach, mean + reach
