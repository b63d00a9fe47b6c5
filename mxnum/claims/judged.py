"""From numbers to a statement, by the same rules in every check."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from mxnum.claims.evidence import Statement
from mxnum.experiments.inference import mean_interval, rank_correlation

#: The level at which a correlation counts.
LEVEL = 0.05


def decided(holds: bool, refuted: bool) -> bool | None:
    """By two limits, between which nothing can be told."""
    return True if holds else False if refuted else None


def below(values: Sequence[float], limit: float, level: float) -> bool | None:
    """Whether the mean lies below a limit, by Student's limits at that level; None where they enclose it."""
    found = mean_interval(values, 1 - level)
    if found is None:
        return None
    return decided(found[2] < limit, found[1] > limit)


def correlates(what: str, points: Mapping[str, tuple[float, float]], told: Callable[[float], str]) -> Statement:
    """Whether the second number of each point, a gap, rises with the first, an error, by rank."""
    found = rank_correlation((name, error, gap) for name, (error, gap) in points.items())
    if found is None:
        return Statement(what, None, "too few recipes")
    listed = "; ".join(f"{name} {error:.3f}, {told(gap)}" for name, (error, gap) in points.items())
    holds = found.rho > 0 if found.p < LEVEL else None
    numbers = f"Spearman's coefficient {found.rho:.2f} over {found.points} recipes, two-sided p {found.p:.2g}: {listed}"
    return Statement(what, holds, numbers)
