"""The largest rate at which gradient descent is stable, by bisection, with and without synthetic zeta (row B2)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from mxnum.analysis import stability_limit
from mxnum.experiments import storage
from mxnum.experiments.config import Experiment, Injection, to_dict
from mxnum.experiments.loop import train


def predicted_ratio(mean: float, deviation: float) -> float:
    """The limit of SGD on a quadratic under zeta, relative to none; see `mxnum.analysis.stability_limit`.

    >>> predicted_ratio(0, 0), predicted_ratio(-0.5, 0), predicted_ratio(0, 1)
    (1.0, 2.0, 0.5)
    """
    return float(stability_limit(mean, deviation**2) / stability_limit())


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


#: A small network and the conditions under which its limit is measured; fixed before the seeds were drawn.
NETWORK = Experiment(width=32, layers=2, batch=64, optimizer="sgd", steps=300)
BOUNDS = (0.5, 500.0)
CONDITIONS = (
    Injection(-0.5, 0),
    Injection(0.5, 0),
    Injection(0, 0.5, common=True),
    Injection(0, 1, common=True),
    Injection(-0.5, 0.5, common=True),
    Injection(0, 0.5),
    Injection(0, 1),
)


def sgd_limits(
    seeds: tuple[int, ...],
    experiment: Experiment = NETWORK,
    conditions: Iterable[Injection] = CONDITIONS,
    say: Callable[[str], None] = print,
) -> dict[str, Any]:
    """The limit under each injection relative to that without, seed by seed, beside the prediction of the quadratic."""
    plain = critical_rate(experiment, seeds, *BOUNDS)
    say(f"no injection: {', '.join(f'{low:.3g}' for low, _ in plain.values())}")
    rows = []
    for injection in conditions:
        limits = critical_rate(experiment.but(injection=injection), seeds, *BOUNDS)
        ratios = [math.sqrt(math.prod(limits[s]) / math.prod(plain[s])) for s in seeds]
        predicted = predicted_ratio(injection.mean, injection.deviation)
        rows.append(to_dict(injection) | {"ratios": ratios, "predicted": predicted})
        say(f"{describe(rows[-1])}: {', '.join(f'{r:.3f}' for r in ratios)}; predicted {predicted:.3f}")
    limits_without = {str(seed): limit for seed, limit in plain.items()}
    table = {"experiment": to_dict(experiment), "seeds": list(seeds), "without": limits_without, "rows": rows}
    return table | {"environment": storage.environment()}


def describe(row: Mapping[str, Any]) -> str:
    """A condition in words."""
    kind = "" if not row["deviation"] else ", common to all elements" if row["common"] else ", drawn for each element"
    return f"mean {row['mean']:g}, deviation {row['deviation']:g}{kind}"
