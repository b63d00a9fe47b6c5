"""Measure critical learning rates: of SGD under noise (claim B2), and of formats (claim B6)."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from mxnum.lab import storage
from mxnum.lab.mlp.config import Experiment, Injection
from mxnum.lab.mlp.loop import train
from mxnum.lab.studies import report
from mxnum.lab.studies.statistics import mean_interval
from mxnum.lab.theory import stability_limit


def predicted_ratio(mean: float, deviation: float) -> float:
    """Return the factor by which noise zeta changes the largest stable rate of SGD on a quadratic.

    The docstring of `mxnum.lab.theory.stability_limit` states the formula.

    >>> predicted_ratio(0, 0), predicted_ratio(-0.5, 0), predicted_ratio(0, 1)
    (1.0, 2.0, 0.5)
    """
    return float(stability_limit(mean, deviation**2) / stability_limit())


def critical_rate(
    experiment: Experiment, seed: int, low: float, high: float, *, tolerance: float = 0.02
) -> tuple[float, float]:
    """Return a stable and a diverging learning rate between which a seed's critical rate lies.

    The function bisects the logarithm of the rate until the two rates differ by at most the factor
    1 + `tolerance`. `low` must be stable, and `high` must diverge.
    """
    if diverges(experiment.but(rate=low), seed) or not diverges(experiment.but(rate=high), seed):
        raise ValueError(f"Arguments 'low' and 'high' must enclose the limit of seed {seed}, not {low!r} and {high!r}.")
    while high / low > 1 + tolerance:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if diverges(experiment.but(rate=middle), seed) else (middle, high)
    return low, high


def diverges(experiment: Experiment, seed: int) -> bool:
    """Return True if the run of a seed diverges within the steps of the experiment."""
    return train(experiment, (seed,))[0].diverged is not None


#: The small network whose largest stable learning rate is measured. The network and `CONDITIONS`
#: were fixed before the seeds were drawn.
NETWORK = Experiment(width=32, layers=2, batch=64, optimizer="sgd", steps=300)
#: A learning rate that is stable for every seed, and a learning rate that always diverges.
BOUNDS = (0.5, 500.0)
#: The kinds of gradient noise for which the largest stable learning rate is measured.
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
    kept: Path | None = None,
) -> dict[str, Any]:
    """Measure the factor by which each noise changes the largest stable rate.

    The result also has the predicted factor for each noise. The function writes each measured rate
    to the file `kept` at once, and does not measure rates that are already in this file.
    """
    known = _Kept(kept)
    plain = known.limits(experiment, seeds)
    say(f"stable rates without noise: {', '.join(f'{low:.3g}' for low, _ in plain.values())}")
    rows = []
    for injection in conditions:
        limits = known.limits(experiment.but(injection=injection), seeds)
        ratios = [math.sqrt(math.prod(limits[s]) / math.prod(plain[s])) for s in seeds]
        predicted = predicted_ratio(injection.mean, injection.deviation)
        rows.append(asdict(injection) | {"ratios": ratios, "predicted": predicted})
        say(f"{describe(rows[-1])}: {', '.join(f'{r:.3f}' for r in ratios)}; predicted {predicted:.3f}")
    limits_without = {str(seed): limit for seed, limit in plain.items()}
    table = {"experiment": experiment.to_dict(), "seeds": list(seeds), "without": limits_without, "rows": rows}
    return table | {"environment": storage.environment()}


class _Kept:
    """Stable and diverging rates that an interrupted `sgd_limits` stored in this environment."""

    def __init__(self, path: Path | None) -> None:
        self.path, self.environment = path, storage.environment()
        self.found: dict[str, list[float]] = {}
        if path is not None and path.exists():
            before = storage.read_json(path)
            if before["environment"] == self.environment:
                self.found = before["limits"]

    def limits(self, experiment: Experiment, seeds: tuple[int, ...]) -> dict[int, tuple[float, float]]:
        """Return each seed's stable and diverging rate, and measure rates that are not stored."""
        found = {}
        for seed in seeds:
            asked = json.dumps([experiment.to_dict(), seed], sort_keys=True)
            if asked not in self.found:
                self.found[asked] = list(critical_rate(experiment, seed, *BOUNDS))
                if self.path is not None:
                    storage.write_json(self.path, {"environment": self.environment, "limits": self.found})
            stable, unstable = self.found[asked]
            found[seed] = stable, unstable
        return found


def write_sgd_limits(
    path: Path,
    seeds: tuple[int, ...],
    experiment: Experiment = NETWORK,
    conditions: Iterable[Injection] = CONDITIONS,
    say: Callable[[str], None] = print,
) -> None:
    """Write the table of `sgd_limits` to a file.

    If a call is interrupted, the next call with the same arguments continues the measurement.
    """
    kept = path.with_suffix(".partial.json")
    storage.write_json(path, sgd_limits(seeds, experiment, conditions, say, kept))
    kept.unlink(missing_ok=True)


def describe(row: Mapping[str, Any]) -> str:
    """Return a description of the noise of a row of `sgd_limits`."""
    kind = "" if not row["deviation"] else ", common to all elements" if row["common"] else ", drawn for each element"
    return f"mean {row['mean']:g}, deviation {row['deviation']:g}{kind}"


def rate_of(arm: str) -> tuple[str, float]:
    """Return the precision and the learning rate of an arm of the study `critical-rate`.

    >>> rate_of("E2M1 even, rate 0.024")
    ('E2M1 even', 0.024)
    """
    kind, _, rate = arm.rpartition(", rate ")
    return kind, float(rate)


def curve(table: dict[str, Any]) -> dict[str, list[tuple[float, int, int]]]:
    """Return a list of triples for each precision.

    A triple has a rate, the number of runs with an excursion, and the number of all runs.
    """
    found: dict[str, list[tuple[float, int, int]]] = {}
    for name in sorted(table["arms"], key=lambda arm: rate_of(arm)[1]):
        kind, rate = rate_of(name)
        arm = report.arm_of(table, name)
        found.setdefault(kind, []).append((rate, arm.events, arm.runs))
    return found


def shift(table: dict[str, Any], kind: str) -> tuple[float, float, float] | None:
    """Return the ratio of a precision's critical learning rate to FP32's, with 95 % limits.

    The ratio is computed for each seed, from the rates at which both precisions were run. The
    critical rate of a seed is the lowest rate at which the run with this seed has an excursion. If
    no run of a seed has an excursion, the function assumes a critical rate one step above the
    highest rate. The true critical rate of this seed may be higher still. The mean log ratio may
    therefore be closer to zero than the true value.
    """
    rates = sorted(set.intersection(*({r for r, _, _ in curve(table).get(k, [])} for k in (kind, "FP32"))))
    if len(rates) < 2:
        return None
    beyond = math.log(rates[-1]) + (math.log(rates[-1]) - math.log(rates[0])) / (len(rates) - 1)
    lowest: dict[str, dict[int, float]] = {kind: {}, "FP32": {}}
    for which, seeds in lowest.items():
        for rate in reversed(rates):
            for run in report.courses(table, f"{which}, rate {rate:g}"):
                before = seeds.get(run.seed, beyond)
                seeds[run.seed] = before if run.first is None else math.log(rate)
    both = lowest[kind].keys() & lowest["FP32"].keys()
    limits = mean_interval([lowest[kind][seed] - lowest["FP32"][seed] for seed in sorted(both)])
    return None if limits is None else (math.exp(limits[0]), math.exp(limits[1]), math.exp(limits[2]))
