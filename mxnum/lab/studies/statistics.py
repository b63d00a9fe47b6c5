"""Compute the statistics of studies: times to an event, and exact tests of paired seeds.

Runs that reach the horizon without an event are censored at the horizon. Tests are exact: if two
arms do not differ, the two outcomes of a seed are interchangeable. For n seeds a test counts all
2^n ways to swap the outcomes of seeds, so few seeds cannot give a small p-value. Confidence limits
of a mean come from Student's t, with n - 1 degrees of freedom.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import permutations
from typing import Any

import numpy as np

from mxnum import errors

#: Two sums of floats count as equal if they differ by less than this share of the largest sum.
_TIE = 1e-9
#: The largest number of values of a sign-flip test; more values would have too many sums to list.
_MOST = 44
#: The number of random permutations for a rank correlation of more than eight points, and their
#: seed.
_DRAWS, _SEED = 99_999, 20260101
#: The confidence level of intervals and limits.
CONFIDENCE = 0.95


def scipy_stats() -> Any:
    """Return `scipy.stats`; raise an error if the extra ``experiments`` is not installed."""
    return errors.package("scipy.stats", "experiments")


@dataclass(frozen=True)
class Arm:
    """The runs of one arm; the time of a run is the step of its event or of its censoring."""

    name: str
    times: tuple[int, ...]
    diverged: tuple[bool, ...]
    #: The seed of each run; empty if runs are not compared in pairs.
    seeds: tuple[int, ...] = ()

    @classmethod
    def of(
        cls, name: str, first: Sequence[int | None], steps: Sequence[int], horizon: int | None = None,
        seeds: Sequence[int] = (),
    ) -> Arm:  # fmt: skip
        """Return an arm of runs.

        `first` has the step of each run's first event, or None if the run has no event. `steps` has
        the number of steps of each run. A run whose event comes at or after the horizon is censored
        at the horizon.
        """
        limit = max(steps, default=0) if horizon is None else horizon
        times = [min(s if f is None else f, limit) for f, s in zip(first, steps, strict=True)]
        return cls(name, tuple(times), tuple(f is not None and f < limit for f in first), tuple(seeds))

    def by_seed(self) -> dict[int, tuple[int, bool]]:
        """Return a dict from each seed to the run's time, and True if the run has an event."""
        return dict(zip(self.seeds, zip(self.times, self.diverged, strict=True), strict=True))

    def without(self, seed: int) -> Arm:
        """Return the arm without one seed."""
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
        """Return the first time at which the Kaplan-Meier curve is at most a half, or None."""
        times, survival = kaplan_meier(self)[:2]
        # The tolerance is needed: 12 events in 24 runs leave the curve at 0.5000000000000001.
        below = np.nonzero(survival <= 0.5 + 1e-9)[0]
        return float(times[below[0]]) if len(below) else None


def kaplan_meier(arm: Arm) -> tuple[Any, Any, Any, Any]:
    """Return four arrays: times, survival after each time, its lower and its upper 95 % limit."""
    stats = scipy_stats()
    if arm.events == 0:
        ones = np.ones(1)
        return np.zeros(1), ones, ones * math.nan, ones
    times, events = np.array(arm.times, float), np.array(arm.diverged)
    data = stats.CensoredData(times[events], right=times[~events])
    survival = stats.ecdf(data).sf
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # the limits are undefined if no run is left
        interval = survival.confidence_interval(CONFIDENCE, method="log-log")
    return survival.quantiles, survival.probabilities, interval.low.probabilities, interval.high.probabilities


def sign_flip(values: Sequence[float]) -> float:
    """Return the exact two-sided p-value of the sign-flip test that values are symmetric about 0.

    The test covers all 2^n choices of the signs without listing them. The values are split
    into two halves. For each signed sum of the first half, a binary search counts the signed sums
    of the second half that make the total large enough. Values of 0 are ignored.

    >>> sign_flip([1.0, 2.0, 3.0]), sign_flip([])
    (0.25, 1.0)
    """
    kept = np.array([abs(v) for v in values if v], np.float64)
    if len(kept) == 0:
        return 1.0
    errors.require(len(kept) <= _MOST, "values", f"at most {_MOST} numbers other than 0", len(kept))
    total = abs(math.fsum(v for v in values if v))
    left, right = (_sums(half) for half in np.array_split(kept, 2))
    least = total - _TIE * float(kept.sum())
    right.sort()
    below = np.searchsorted(right, least - left, side="left")
    return min(1.0, 2 * float((len(right) - below).sum()) / 2.0 ** len(kept)) if least > 0 else 1.0


def _sums(values: Any) -> Any:
    sums = np.zeros(1)
    for value in values:
        sums = np.concatenate([sums + value, sums - value])
    return sums


@dataclass(frozen=True)
class Comparison:
    """The comparison of two arms on the same seeds."""

    #: The exact two-sided p-value; None if no pair of runs differs.
    p: float | None
    #: The number of seeds that both arms share.
    seeds: int
    #: The log-rank statistic: the number of events of the first arm minus the number expected if
    #: the arms do not differ.
    score: float
    #: The number of pairs of runs in which the first arm's event came first, and the number in
    #: which the second arm's event came first.
    sooner: int
    later: int
    #: The hazard ratio with its limits; None if too few events or seeds are available.
    ratio: tuple[float, float, float] | None = None
    #: p after Holm's correction over a family of tests; None if p was not corrected.
    corrected_p: float | None = None

    @property
    def comes_sooner(self) -> bool:
        return self.score > 0

    def __str__(self) -> str:
        words = f"sooner in {self.sooner} and later in {self.later} pairs"
        words += "" if self.p is None else f", exact p {self.p:.2g}"
        return words + ("" if self.corrected_p is None else f", {self.corrected_p:.2g} after Holm")


def compare(strata: Iterable[tuple[Arm, Arm]], *, with_ratio: bool = True) -> Comparison:
    """Compare arms by the exact log-rank test, stratified by a condition such as the learning rate.

    A stratum is a pair of arms under one condition. The score of a run is its number of events (0
    or 1) minus the number of events expected until its event or end. The log-rank statistic of a
    stratum is the sum of the first arm's scores. The test swaps the two runs of a seed, in all
    strata at once. A swap only changes the sign of the seed's part of the statistic.
    """
    pairs = list(strata)
    by_seed: dict[int, float] = {}
    sooner = later = 0
    for a, b in pairs:
        ours, theirs = a.by_seed(), b.by_seed()
        both = sorted(ours.keys() & theirs.keys())
        scores = log_rank_scores([ours[s] for s in both] + [theirs[s] for s in both])
        for index, seed in enumerate(both):
            first = _first(ours[seed], theirs[seed])
            sooner, later = sooner + (first > 0), later + (first < 0)
            by_seed[seed] = by_seed.get(seed, 0.0) + (scores[index] - scores[len(both) + index]) / 2
    score = math.fsum(by_seed.values())
    p = sign_flip(list(by_seed.values())) if sooner + later else None
    return Comparison(p, len(by_seed), score, sooner, later, hazard_ratio(pairs) if with_ratio else None)


def power(stored: tuple[Arm, Arm], pairs: int, level: float, draws: int = 2000) -> float:
    """Return the share of samples in which the first arm's events come significantly sooner.

    Each sample consists of `pairs` seeds, drawn with replacement. The two runs of a seed stay
    together. `level` is the level of significance.
    """
    ours, theirs = (arm.by_seed() for arm in stored)
    seeds, generator, shown = sorted(ours.keys() & theirs.keys()), np.random.default_rng(_SEED), 0
    for _ in range(draws):
        drawn = generator.choice(seeds, pairs)
        sample = [
            Arm(arm.name, tuple(runs[s][0] for s in drawn), tuple(runs[s][1] for s in drawn), tuple(range(pairs)))
            for arm, runs in zip(stored, (ours, theirs), strict=True)
        ]
        found = compare([(sample[0], sample[1])], with_ratio=False)
        shown += found.p is not None and found.p < level and found.comes_sooner
    return shown / draws


def log_rank_scores(runs: Sequence[tuple[int, bool]]) -> list[float]:
    """Return each run's events (0 or 1) minus the cumulative Nelson-Aalen hazard at its time."""
    hazard, found = 0.0, {}
    for time in sorted({t for t, _ in runs}):
        hazard += sum(event and t == time for t, event in runs) / sum(t >= time for t, _ in runs)
        found[time] = hazard
    return [event - found[time] for time, event in runs]


def _first(a: tuple[int, bool], b: tuple[int, bool]) -> int:
    """Return 1 if run `a` had its event before run `b`, -1 if `b` had its event first, else 0.

    The result is 0 if both events came at the same step, if neither run has an event, or if
    censoring hides the order.
    """
    (at, event), (bt, other) = a, b
    if event and (at < bt or (at == bt and not other)):
        return 1
    if other and (bt < at or (at == bt and not event)):
        return -1
    return 0


def hazard_ratio(strata: Iterable[tuple[Arm, Arm]]) -> tuple[float, float, float] | None:
    """Return Cox's hazard ratio of the first to the second arms, as (ratio, lowest, highest).

    The ratio is stratified by condition. The limits come from a jackknife over seeds, with
    Student's t; the jackknife leaves out all runs of a seed together. Return None unless there are
    at least three seeds, and each arm has events on at least two seeds.
    """
    pairs = list(strata)
    whole = _cox(pairs)
    seeds = sorted({seed for a, b in pairs for seed in a.by_seed().keys() & b.by_seed().keys()})
    if whole is None or len(seeds) < 3:
        return None
    parts = [_cox([(a.without(seed), b.without(seed)) for a, b in pairs]) for seed in seeds]
    found = [part for part in parts if part is not None]
    if len(found) < len(parts):
        return None
    n = len(found)
    error = math.sqrt((n - 1) / n * float(np.square(np.array(found) - np.mean(found)).sum()))
    reach = float(scipy_stats().t.ppf((1 + CONFIDENCE) / 2, n - 1)) * error
    return math.exp(whole), math.exp(whole - reach), math.exp(whole + reach)


def _cox(pairs: Sequence[tuple[Arm, Arm]]) -> float | None:
    """Return the log hazard ratio that maximizes Cox's partial likelihood.

    Tied events are treated by Breslow's method. Return None if one of the arms has no event while
    runs of both arms are at risk.
    """
    sets = []  # for each event time: events in a, events in a and b together, runs at risk in a, runs at risk in b
    for a, b in pairs:
        for time in sorted({t for arm in (a, b) for t, d in zip(arm.times, arm.diverged, strict=True) if d}):
            events = [sum(d and t == time for t, d in zip(arm.times, arm.diverged, strict=True)) for arm in (a, b)]
            risk = [sum(t >= time for t in arm.times) for arm in (a, b)]
            if all(risk):
                sets.append((events[0], sum(events), *risk))
    table = np.array(sets, float).reshape(-1, 4)
    ours, both, in_a, in_b = table.T
    if ours.sum() in (0, both.sum()):
        return None
    theta = 0.0
    for _ in range(100):
        share = in_a * math.exp(theta) / (in_a * math.exp(theta) + in_b)
        step = float((ours - both * share).sum() / (both * share * (1 - share)).sum())
        theta += max(-1.0, min(1.0, step))
        if abs(step) < 1e-12:
            break
    return theta


def holm(p_values: Mapping[str, float]) -> dict[str, float]:
    """Return p-values after Holm's correction for the number of tests.

    >>> holm({"a": 0.01, "b": 0.04, "c": 0.03})
    {'a': 0.03, 'b': 0.06, 'c': 0.06}
    """
    corrected, largest = {}, 0.0
    for rank, (name, p) in enumerate(sorted(p_values.items(), key=lambda item: item[1])):
        largest = max(largest, min(1.0, p * (len(p_values) - rank)))
        corrected[name] = largest
    return {name: corrected[name] for name in p_values}


def corrected(tests: Mapping[str, Comparison]) -> dict[str, Comparison]:
    """Return tests of one family with p-values corrected by `holm`.

    If no pair of runs differs in a test, the correction uses p = 1 for this test.
    """
    p = holm({name: 1.0 if test.p is None else test.p for name, test in tests.items()})
    return {name: replace(test, corrected_p=p[name]) for name, test in tests.items()}


def wilson(events: int, runs: int) -> tuple[float, float]:
    """Return Wilson's interval of a proportion, at 95 %."""
    errors.require(0 <= events <= runs and runs > 0, "events", f"between 0 and runs={runs}", events)
    low, high = scipy_stats().binomtest(events, runs).proportion_ci(CONFIDENCE, method="wilson")
    return float(low), float(high)


def mean_interval(values: Sequence[float], confidence: float = CONFIDENCE) -> tuple[float, float, float] | None:
    """Return the mean and its limits by Student's t; None for fewer than three values."""
    if len(values) < 3:
        return None
    mean, error = float(np.mean(values)), float(np.std(values, ddof=1)) / math.sqrt(len(values))
    reach = float(scipy_stats().t.ppf((1 + confidence) / 2, len(values) - 1)) * error
    return mean, mean - reach, mean + reach


@dataclass(frozen=True)
class Correlation:
    """Spearman's rank correlation."""

    rho: float
    p: float
    points: int


def rank_correlation(points: Iterable[tuple[Hashable, float, float]]) -> Correlation | None:
    """Return Spearman's rank correlation of (key, x, y) points; None for fewer than four keys.

    If several points have the same key (the same arm), only the first of them counts. The p-value
    uses all permutations of up to eight points, and 99,999 random permutations of more points.
    """
    once: dict[Hashable, tuple[float, float]] = {}
    for key, x, y in points:
        once.setdefault(key, (x, y))
    if len(once) < 4:
        return None
    stats = scipy_stats()
    x, y = (stats.rankdata(column) for column in zip(*once.values(), strict=True))
    x, y = x - x.mean(), y - y.mean()
    norm = math.sqrt(float(x @ x) * float(y @ y))
    if norm == 0:
        return None
    found = float(x @ y)
    if len(once) <= 8:
        products = np.array([x @ y[list(order)] for order in permutations(range(len(y)))])
        p = float(np.mean(np.abs(products) >= abs(found) - _TIE * norm))
    else:
        products = np.random.default_rng(_SEED).permuted(np.tile(y, (_DRAWS, 1)), axis=1) @ x
        p = (1 + int(np.sum(np.abs(products) >= abs(found) - _TIE * norm))) / (_DRAWS + 1)
    return Correlation(found / norm, p, len(once))
