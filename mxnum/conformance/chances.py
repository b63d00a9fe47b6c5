"""Numbers between two codes, and the exact probability that stochastic rounding takes the code away from zero."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

import mxnum as mx
from mxnum.conformance import grid
from mxnum.conformance.exact_text import fraction_text, number
from mxnum.conformance.expected import as_floats
from mxnum.conformance.randomness import Words
from mxnum.conformance.task import Task
from mxnum.conformance.words import hexadecimal, plain

#: Most gaps between neighbouring values in which small fractions are tested. If there are more
#: gaps, `survey` tests each of them coarsely.
GAPS = 16
#: How an implementation may reduce a fraction of the gap to r bits. The library truncates.
TRUNCATED, NEAREST, EVEN, UP = "truncated", "to nearest", "to nearest, ties to even", "rounded up"
_WHOLE: dict[str, Callable[[Fraction], int]] = {
    TRUNCATED: math.floor,
    NEAREST: lambda steps: math.floor(steps + Fraction(1, 2)),
    EVEN: round,
    UP: math.ceil,
}


@dataclass(frozen=True)
class Chance:
    """A number, divided by its scale, that is rounded stochastically."""

    value: float
    #: The position of its magnitude between those of the codes `below` and `above`, 0 < delta < 1.
    delta: Fraction
    below: int
    above: int
    is_subnormal: bool

    def probability(self, sr_bits: int | None, kind: str = TRUNCATED) -> float:
        """Return the probability of rounding away from zero.

        It is the fraction itself, or the fraction reduced to `sr_bits` random bits in the way of
        `kind`.
        """
        if sr_bits is None:
            return float(self.delta)
        return float(Fraction(_WHOLE[kind](self.delta * 2**sr_bits), 2**sr_bits))

    def text(self, task: Task) -> str:
        """Return the number and its neighbours in words."""
        below, above = (self.code_text(task, code) for code in (self.below, self.above))
        at = fraction_text(self.delta)
        return f"{number(self.value)}, at {at} of the way from {below} to {above}"

    @staticmethod
    def code_text(task: Task, code: int) -> str:
        """Return a code with its value, as text."""
        if code >= 1 << task.element.bits:
            return f"what is no code of {task.element.bits} bits"
        return f"{plain(task.element.value(code))} ({hexadecimal(code, task.element.bits)})"


def chances(task: Task, words: Words, bias: float, reach: float = math.inf) -> list[Chance]:
    """Return cases in at most `GAPS` gaps, with both signs: irregular fractions, halves and small fractions.

    The small fractions are 2**-j and 1 - 2**-j for j up to a limit, which grows as `bias`, the
    smallest bias to be detected, shrinks. `reach` is the largest magnitude that may occur.
    """
    gaps = gaps_of(task, reach)
    if len(gaps) > GAPS:
        gaps = [gaps[i] for i in np.linspace(0, len(gaps) - 1, GAPS).round().astype(int)]
    rungs = min(15, max(4, round(2 * math.log2(1 / bias)) - 1))
    wanted = [2.0**-j for j in range(1, rungs + 1)] + [1 - 2.0**-j for j in range(2, rungs + 1)]
    wanted += [2.0**-60] * 2  # nearly zero; the source can represent it in the first gap only
    asked = [(i % len(gaps) if delta > 2.0**-60 else 0, delta) for i, delta in enumerate(wanted)]
    for _ in range(1 if len(gaps) > GAPS // 2 else 2):
        asked += [(i, delta) for i in range(len(gaps)) for delta in irregular(words, 2)]
    signs = np.where(words.chance(0.5, len(asked)), -1, 1)
    signs[len(wanted) - 2 :] = np.resize([1, -1], len(asked) - len(wanted) + 2)
    return between(task, [(*gaps[i], delta, sign) for (i, delta), sign in zip(asked, signs.tolist(), strict=True)])


def survey(task: Task, words: Words, reach: float = math.inf) -> list[Chance]:
    """Return two cases in each gap, with alternating signs, if there are more than `GAPS` gaps; otherwise none."""
    gaps = gaps_of(task, reach)
    if len(gaps) <= GAPS:
        return []
    fractions = irregular(words, 2 * len(gaps))
    return between(
        task, [(*gap, delta, (-1) ** i) for i, (gap, delta) in enumerate(zip(gaps * 2, fractions, strict=True))]
    )


def constant(task: Task, delta: float, reach: float = math.inf) -> Chance:
    """Return one number at exactly that fraction of a gap. Gaps in the middle of the range come first."""
    gaps = gaps_of(task, reach)
    for i in sorted(range(len(gaps)), key=lambda i: abs(2 * i - len(gaps))):
        found = between(task, [(*gaps[i], delta, 1)])
        if found and found[0].delta == delta:
            return found[0]
    raise ValueError(
        f"Format {task.format.name!r} must have a gap of which {Fraction(delta)} is exact in {task.source.name}."
    )


def irregular(words: Words, count: int) -> list[float]:
    """Return random fractions between 1/8 and 7/8 with 17 bits."""
    return [float(odd) / 2**17 for odd in 2 * words.integers(2**13, 7 * 2**13 - 1, count) + 1]


def gaps_of(task: Task, reach: float) -> list[tuple[float, float]]:
    """Return pairs of neighbouring magnitudes between which numbers up to `reach` lie."""
    values = grid.magnitudes(task.element)
    gaps = list(zip(values[:-1].tolist(), values[1:].tolist(), strict=True))
    if not task.overflow.saturates and task.element.nan_code is not None:  # the gap to infinity, or to NaN
        gaps.append((float(values[-1]), float(grid.neighbours(values[-1:], task.element)[1][0])))
    return [gap for gap in gaps if gap[1] <= reach]


def between(task: Task, asked: list[tuple[float, float, float, int]]) -> list[Chance]:
    """Return the cases at (below, above, fraction, sign), rounded to numbers of the source, without duplicates."""
    columns = np.array(asked, np.float64).reshape(-1, 4).T
    values = columns[3] * (columns[0] + columns[2] * (columns[1] - columns[0]))
    x = np.unique(as_floats(grid.narrowed(values, task.source), task.source).astype(np.float64))
    x = x[np.isfinite(x)]
    below, above = grid.neighbours(np.abs(x), task.element)
    inside = np.abs(x) > below
    ends = [mx.encode(np.copysign(end, x), task.element, overflow=task.overflow) for end in (below, above)]
    found = []
    for i in np.flatnonzero(inside).tolist():
        low, high, at = Fraction(below[i]), Fraction(above[i]), Fraction(abs(x[i]))
        delta = (at - low) / (high - low)
        codes = int(ends[0][i]), int(ends[1][i])
        found.append(Chance(float(x[i]), delta, *codes, bool(at < Fraction(task.element.min_normal))))
    return found
