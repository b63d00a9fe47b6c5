"""Compare shares of draws that went away from zero with their exact probabilities, and explain the differences."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from mxnum.conformance import binomial
from mxnum.conformance.chances import EVEN, NEAREST, TRUNCATED, UP, Chance
from mxnum.conformance.exact_text import fraction_text
from mxnum.conformance.task import Task
from mxnum.memory.dtypes import Array

#: Numbers of random bits that are tried as explanations.
BITS = range(1, 33)
#: Groups of cases that are also judged together, because a small bias that they share shows there
#: first.
GROUPS: dict[str, Callable[[Chance], bool]] = {
    "All cases": lambda chance: True,
    "Positive numbers": lambda chance: chance.value > 0,
    "Negative numbers": lambda chance: chance.value < 0,
    "Subnormal results": lambda chance: chance.is_subnormal,
    "Normal results": lambda chance: not chance.is_subnormal,
}
#: Wrong rules that kernels follow by mistake, as functions of the probability p and the sign.
MISTAKES: dict[str, Callable[[Array, Array], Array]] = {
    "1 - p, the fraction taken the wrong way round": lambda p, negative: 1 - p,
    "1 - p for negative numbers alone": lambda p, negative: np.where(negative, 1 - p, p),
    "1 - p for positive numbers alone": lambda p, negative: np.where(negative, p, 1 - p),
    "one half whatever the fraction": lambda p, negative: np.full(len(p), 0.5),
    "half the fraction": lambda p, negative: p / 2,
    "the square of the fraction": lambda p, negative: p**2,
}


@dataclass(frozen=True)
class Levels:
    """The significance levels, for one case and for one group.

    They are the probabilities that a right kernel is contradicted.
    """

    case: float
    group: float

    @classmethod
    def of(cls, false_alarm: float, cases: int) -> Levels:
        """Make the levels by Bonferroni's correction.

        The probability of a false alarm is at most `false_alarm` for all cases together, and also
        for all groups together.
        """
        return cls(false_alarm / cases, false_alarm / len(GROUPS))


@dataclass(frozen=True)
class Shares:
    """For each case, the number of draws and the number of those that went away from zero."""

    chances: list[Chance]
    draws: Array
    ups: Array

    def contradicted(self, p: Array, level: float) -> Iterator[tuple[int, float]]:
        """Yield the cases whose shares contradict the probabilities p, with their p-values, the farthest first."""
        spread = np.sqrt(np.maximum(self.draws * p * (1 - p), 1e-9))
        for i in np.argsort(-abs(self.ups - self.draws * p) / spread, kind="stable").tolist():
            value = binomial.p_value(int(self.ups[i]), int(self.draws[i]), float(p[i])) if self.draws[i] else 1.0
            if value <= level:
                yield i, value

    def biases(self, p: Array, level: float) -> dict[str, float]:
        """Return the groups that go away from zero too often or too rarely, with the bias as a share of their draws."""
        found = {}
        for name, belongs in GROUPS.items():
            chosen = np.array([belongs(chance) for chance in self.chances])
            excess = float((self.ups - self.draws * p)[chosen].sum())
            if abs(excess) > binomial.deviation((self.draws * p * (1 - p))[chosen].sum(), level):
                found[name] = excess / float(self.draws[chosen].sum())
        return found

    def fits(self, p: Array, levels: Levels) -> bool:
        """Return True if nothing contradicts these probabilities."""
        return next(self.contradicted(p, levels.case), None) is None and not self.biases(p, levels.group)

    def guarantees(self, sr_bits: int | None, precise: int, levels: Levels, bias: float, power: float) -> list[str]:
        """Return sentences that say which biases the test detects.

        Cases after the first `precise` have fewer draws.
        """
        p = self.probabilities(sr_bits)
        both = zip(self.draws[:precise].tolist(), p[:precise].tolist(), strict=True)
        seen = min(binomial.weakest(n, each, bias, levels.case) for n, each in set(both))
        variance, total = float((self.draws * p * (1 - p)).sum()), float(self.draws.sum())
        common = (
            float(binomial.deviation(variance, levels.group) + binomial.deviation(variance, 2 * (1 - power))) / total
        )
        found = [
            f"A bias of {_one_in(bias)} in one of {precise} cases would have been seen with "
            f"probability {math.floor(seen * 1e4) / 1e4:g}, one of {_one_in(common)} in all of them with {power:g}."
        ]
        if len(p) > precise:
            fewest = int(self.draws[precise:].min())
            coarse = bias
            while coarse < 0.5 and binomial.weakest(fewest, 0.5, coarse, levels.case) < power:
                coarse *= 1.05
            found.append(
                f"In each gap between two codes a bias of {_one_in(coarse)} would have been seen with {power:g}."
            )
        return found

    def probabilities(self, sr_bits: int | None, kind: str = TRUNCATED) -> Array:
        """Return the probability that each case goes away from zero."""
        return np.array([chance.probability(sr_bits, kind) for chance in self.chances])


def problems(task: Task, shares: Shares, sr_bits: int | None, levels: Levels, keep: int = 5) -> list[str]:
    """Return sentences that say what is wrong with the shares; an empty list if they are right."""
    p = shares.probabilities(sr_bits)
    found = []
    for name, bias in shares.biases(p, levels.group).items():
        often = "too often" if bias > 0 else "too rarely"
        found.append(f"{name} go away from zero {often}, by {abs(bias):.3g} of their draws (about {_one_in(bias)}).")
    cases = list(shares.contradicted(p, levels.case))
    if cases:
        found.append(f"The shares of {len(cases)} of {len(p)} cases are wrong:")
    for i, value in cases[:keep]:
        share = f"{shares.ups[i]} of {shares.draws[i]} draws ({shares.ups[i] / shares.draws[i]:.6g})"
        found.append(
            f"  {shares.chances[i].text(task)}: {share} went away from zero, where {_probability_text(p[i])} is right; "
            f"chance does that once in {_times(value)}."
        )
    return found


def explanations(shares: Shares, sr_bits: int | None, levels: Levels) -> list[str]:
    """Return the rules that fit all shares: numbers of random bits, or else mistakes."""
    if shares.fits(shares.probabilities(None), levels):
        enough = BITS[-1]
        while enough > 1 and shares.fits(shares.probabilities(enough - 1), levels):
            enough -= 1
        return ["the exact fraction", f"{enough} random bits or more"]
    found = []
    for kind in (TRUNCATED, NEAREST, EVEN, UP):
        fitting = [r for r in BITS if shares.fits(shares.probabilities(r, kind), levels)]
        found += [f"{_bits_text(fitting)}, the fraction {kind}"] if fitting else []
    if found:
        return found
    p, negative = shares.probabilities(sr_bits), np.array([chance.value < 0 for chance in shares.chances])
    return [name for name, rule in MISTAKES.items() if shares.fits(rule(p, negative), levels)]


def _bits_text(bits: list[int]) -> str:
    if len(bits) == 1:
        return f"{bits[0]} random bit{'s' * (bits[0] > 1)}"
    if bits[-1] - bits[0] + 1 == len(bits):
        return f"{bits[0]} to {bits[-1]} random bits"
    return f"{', '.join(map(str, bits))} random bits"


def _probability_text(p: float) -> str:
    return fraction_text(Fraction(p)) if p not in (0, 1) else ("0" if p == 0 else "1")


def _one_in(bias: float) -> str:
    inverse = 1 / abs(bias)
    return f"1/{round(inverse)}" if inverse > 50 or abs(inverse - round(inverse)) < 1e-6 else f"{abs(bias):.2g}"


def _times(value: float) -> str:
    return f"{1 / value:.1g} runs" if value > 1e-300 else "more than 1e300 runs"
