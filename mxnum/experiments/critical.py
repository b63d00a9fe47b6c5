"""The largest rate at which gradient descent is stable, by bisection, with and without synthetic zeta (row B2)."""

from __future__ import annotations

import math
from collections.abc import Iterable

from mxnum import errors
from mxnum.experiments.config import Experiment, Injection
from mxnum.experiments.loop import train


def predicted_ratio(mean: float, deviation: float) -> float:
    """The limit of SGD on a quadratic under zeta, relative to none: (1 + b) / ((1 + b)^2 + s^2), for 1 + b > 0.

    >>> predicted_ratio(0, 0), predicted_ratio(-0.5, 0), predicted_ratio(0, 1)
    (1.0, 2.0, 0.5)
    """
    errors.require(mean > -1, "mean", "above -1", mean)
    return (1 + mean) / ((1 + mean) ** 2 + deviation**2)


def critical_rate(
    experiment: Experiment, seeds: tuple[int, ...], low: float, high: float, *, tolerance: float = 0.02
) -> dict[int, tuple[float, float]]:
    """For each seed an interval of rates: stable at the first, diverged within `experiment.steps` at the second.

    Bisection on the logarithm, down to a relative width of `tolerance`; `low` must be stable and `high` not.
    """
    limits = {}
    for seed in seeds:
        stable, unstable = low, high
        if diverges(experiment.but(rate=low), seed) or not diverges(experiment.but(rate=high), seed):
            raise ValueError(
                f"Arguments 'low' and 'high' must enclose the limit of seed {seed}, not {low!r} and {high!r}."
            )
        while unstable / stable > 1 + tolerance:
            middle = math.sqrt(stable * unstable)
            if diverges(experiment.but(rate=middle), seed):
                unstable = middle
            else:
                stable = middle
        limits[seed] = (stable, unstable)
    return limits


def diverges(experiment: Experiment, seed: int) -> bool:
    """Whether this run diverges within its steps."""
    return train(experiment, (seed,))[0].diverged is not None


def sgd_limits(
    experiment: Experiment, conditions: Iterable[Injection], seeds: tuple[int, ...], low: float, high: float
) -> list[dict[str, object]]:
    """The limit under each injection relative to that without, seed by seed, beside the prediction of the quadratic."""
    plain = critical_rate(experiment, seeds, low, high)
    rows: list[dict[str, object]] = []
    for injection in conditions:
        limits = critical_rate(experiment.but(injection=injection), seeds, low, high)
        ratios = [math.sqrt(math.prod(limits[s]) / math.prod(plain[s])) for s in seeds]
        rows.append(
            {
                "mean": injection.mean,
                "deviation": injection.deviation,
                "common": injection.common,
                "ratios": ratios,
                "predicted": predicted_ratio(injection.mean, injection.deviation),
            }
        )
    return rows
