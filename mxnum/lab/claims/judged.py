"""From numbers to a statement, by the same rules in every check."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from mxnum.lab.claims.evidence import Evidence, Statement
from mxnum.lab.studies.inference import mean_interval, rank_correlation

#: The level at which a correlation counts.
LEVEL = 0.05


def answered(evidence: Evidence, answer: str, number: str = "") -> Evidence:
    """Return the evidence with an answer that is dropped unless all of it agrees; the number counts figures by default.

    Without an answer the page gives the counts and what does not agree.
    """
    agree = [c.agrees for c in evidence.comparisons]
    settled = all(agree) and all(s.holds for s in evidence.statements)
    number = number or f"{sum(agree)} of {len(agree)} figures"
    return replace(evidence, answer=answer if settled else "", number=number)


def unanimous(statements: Iterable[Statement]) -> bool | None:
    """Return what all statements say; None where they differ, cannot be decided, or are none."""
    found = {s.holds for s in statements}
    return found.pop() if len(found) == 1 else None


def decided(holds: bool, refuted: bool) -> bool | None:
    """By two limits, between which nothing can be told."""
    return True if holds else False if refuted else None


def below(values: Sequence[float], limit: float, level: float) -> bool | None:
    """Whether the mean lies below a limit, by Student's limits at that level; None where they enclose it."""
    found = mean_interval(values, 1 - level)
    if found is None:
        return None
    return decided(found[2] < limit, found[1] > limit)


def rho(points: Mapping[str, tuple[float, float]]) -> float | None:
    """Return Spearman's coefficient of points; None of too few."""
    found = rank_correlation((name, *pair) for name, pair in points.items())
    return None if found is None else found.rho


def correlates(what: str, points: Mapping[str, tuple[float, float]], told: Callable[[float], str]) -> Statement:
    """Whether the second number of each point, a gap, rises with the first, an error, by rank."""
    found = rank_correlation((name, error, gap) for name, (error, gap) in points.items())
    if found is None:
        return Statement(what, None, "too few recipes")
    listed = "; ".join(f"{name} {error:.3f}, {told(gap)}" for name, (error, gap) in points.items())
    holds = found.rho > 0 if found.p < LEVEL else None
    numbers = f"Spearman's coefficient {found.rho:.2f} over {found.points} recipes, two-sided p {found.p:.2g}: {listed}"
    return Statement(what, holds, numbers)
