"""Cases for stochastic rounding: how often a number should, and does, round away from zero."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

import mxnum as mx
from mxnum.conformance.bits import Generator, as_floats
from mxnum.conformance.cases import grid
from mxnum.conformance.explain import fraction_text, number
from mxnum.conformance.judging.describe import code_text
from mxnum.conformance.stochastic.statistics import deviation, p_value, weakest
from mxnum.conformance.task import Task
from mxnum.memory.dtypes import Array

#: The largest number of gaps in which `chances` places cases. A gap lies between two neighbouring
#: values of the element format. If the format has more gaps, `survey` adds two cases in each gap.
GAPS = 16
#: The rules by which an implementation may round a number's position in its gap to r bits. The
#: definition uses `TRUNCATED`.
TRUNCATED, NEAREST, EVEN, UP = "truncated", "to nearest", "to nearest, ties to even", "rounded up"
_WHOLE: dict[str, Callable[[Fraction], int]] = {
    TRUNCATED: math.floor,
    NEAREST: lambda steps: math.floor(steps + Fraction(1, 2)),
    EVEN: round,
    UP: math.ceil,
}


@dataclass(frozen=True)
class Chance:
    """A case of the test: a number, divided by its block's scale, that lies between two codes."""

    value: float
    #: The position of the number's magnitude in its gap: 0 at the code `below`, 1 at `above`.
    delta: Fraction
    below: int
    above: int
    is_subnormal: bool

    def probability(self, sr_bits: int | None, kind: str = TRUNCATED) -> float:
        """Return the probability that the number rounds away from zero.

        The probability is `delta`, rounded to `sr_bits` bits by the rule `kind`. If `sr_bits` is
        None, the probability is `delta` itself.
        """
        if sr_bits is None:
            return float(self.delta)
        return float(Fraction(_WHOLE[kind](self.delta * 2**sr_bits), 2**sr_bits))

    def text(self, task: Task) -> str:
        """Return the number and its neighbours in words."""
        below, above = (code_text(task, code) for code in (self.below, self.above))
        at = fraction_text(self.delta)
        return f"{number(self.value)}, at {at} of the way from {below} to {above}"


def chances(task: Task, rng: Generator, bias: float, reach: float = math.inf) -> list[Chance]:
    """Return cases in at most `GAPS` gaps, at simple and at random positions in the gap.

    The simple positions are 2**-60, and 2**-j and 1 - 2**-j for j up to a limit. The limit grows as
    `bias` shrinks, where `bias` is the smallest bias that the test must detect. `reach` is the
    largest magnitude at which a gap may end.
    """
    gaps = gaps_of(task, reach)
    if len(gaps) > GAPS:
        gaps = [gaps[i] for i in np.linspace(0, len(gaps) - 1, GAPS).round().astype(int)]
    rungs = min(15, max(4, round(2 * math.log2(1 / bias)) - 1))
    wanted = [2.0**-j for j in range(1, rungs + 1)] + [1 - 2.0**-j for j in range(2, rungs + 1)]
    wanted += [2.0**-60] * 2  # floats represent this position only in the first gap, next to zero
    asked = [(i % len(gaps) if delta > 2.0**-60 else 0, delta) for i, delta in enumerate(wanted)]
    for _ in range(1 if len(gaps) > GAPS // 2 else 2):
        asked += [(i, delta) for i in range(len(gaps)) for delta in irregular(rng, 2)]
    signs = np.where(rng.chance(0.5, len(asked)), -1, 1)
    signs[len(wanted) - 2 :] = np.resize([1, -1], len(asked) - len(wanted) + 2)
    return between(task, [(*gaps[i], delta, sign) for (i, delta), sign in zip(asked, signs.tolist(), strict=True)])


def survey(task: Task, rng: Generator, reach: float = math.inf) -> list[Chance]:
    """Return two cases in each gap, with signs that alternate from gap to gap.

    If there are at most `GAPS` gaps, return an empty list, because `chances` covers every gap.
    """
    gaps = gaps_of(task, reach)
    if len(gaps) <= GAPS:
        return []
    fractions = irregular(rng, 2 * len(gaps))
    return between(
        task, [(*gap, delta, (-1) ** i) for i, (gap, delta) in enumerate(zip(gaps * 2, fractions, strict=True))]
    )


def constant(task: Task, delta: float, reach: float = math.inf) -> Chance:
    """Return a case whose position in its gap is exactly `delta`.

    The function tries gaps from the middle of the range outwards, until the input's float type
    represents the number exactly.
    """
    gaps = gaps_of(task, reach)
    for i in sorted(range(len(gaps)), key=lambda i: abs(2 * i - len(gaps))):
        found = between(task, [(*gaps[i], delta, 1)])
        if found and found[0].delta == delta:
            return found[0]
    raise ValueError(
        f"In some gap between values of format {task.format.name!r}, the number at {Fraction(delta)} of the gap "
        f"must be exactly representable in {task.source.name}."
    )


def irregular(rng: Generator, count: int) -> list[float]:
    """Return random fractions between 1/8 and 7/8 that are odd multiples of 2**-17."""
    return [float(odd) / 2**17 for odd in 2 * rng.integers(2**13, 7 * 2**13 - 1, count) + 1]


def gaps_of(task: Task, reach: float) -> list[tuple[float, float]]:
    """Return each gap that ends at or below `reach`, as a pair of neighbouring magnitudes."""
    values = grid.magnitudes(task.element)
    gaps = list(zip(values[:-1].tolist(), values[1:].tolist(), strict=True))
    if not task.overflow.saturates and task.element.nan_code is not None:  # large numbers may round to infinity or NaN
        gaps.append((float(values[-1]), float(grid.neighbours(values[-1:], task.element)[1][0])))
    return [gap for gap in gaps if gap[1] <= reach]


def between(task: Task, asked: list[tuple[float, float, float, int]]) -> list[Chance]:
    """Return a case for each tuple (below, above, position in the gap, sign).

    The numbers are rounded to the input's type. Duplicates, and numbers that round to a value of
    the format, are left out.
    """
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


#: The numbers of random bits that `explanations` tries.
BITS = range(1, 33)
#: Groups of cases. The test also judges the sum of the counts of each group, because a sum shows a
#: small bias that all cases of the group share.
GROUPS: dict[str, Callable[[Chance], bool]] = {
    "All cases": lambda chance: True,
    "Positive numbers": lambda chance: chance.value > 0,
    "Negative numbers": lambda chance: chance.value < 0,
    "Subnormal results": lambda chance: chance.is_subnormal,
    "Normal results": lambda chance: not chance.is_subnormal,
}
#: Wrong rules that a kernel may follow. Each rule is a function of the sign and of p, the right
#: probability of rounding away from zero, and returns the kernel's probability.
MISTAKES: dict[str, Callable[[Array, Array], Array]] = {
    "1 - p, the fraction measured from the wrong neighbour": lambda p, negative: 1 - p,
    "1 - p for negative numbers, p for positive ones": lambda p, negative: np.where(negative, 1 - p, p),
    "1 - p for positive numbers, p for negative ones": lambda p, negative: np.where(negative, p, 1 - p),
    "one half for every fraction": lambda p, negative: np.full(len(p), 0.5),
    "half the fraction": lambda p, negative: p / 2,
    "the square of the fraction": lambda p, negative: p**2,
}


@dataclass(frozen=True)
class Levels:
    """The significance level of the test of one case, and that of the test of one group."""

    case: float
    group: float

    @classmethod
    def of(cls, false_alarm: float, cases: int) -> Levels:
        """Return the levels for `cases` cases and all groups, with Bonferroni's correction.

        The tests of all cases together raise a false alarm with a probability of at most
        `false_alarm`. The same limit applies to the tests of all groups together.
        """
        return cls(false_alarm / cases, false_alarm / len(GROUPS))


@dataclass(frozen=True)
class Shares:
    """The counts of each case: its draws, and those draws that rounded away from zero (`ups`)."""

    chances: list[Chance]
    draws: Array
    ups: Array

    def contradicted(self, p: Array, level: float) -> Iterator[tuple[int, float]]:
        """Yield the index and p-value of each case whose counts contradict its probability in `p`.

        The worst case comes first.
        """
        spread = np.sqrt(np.maximum(self.draws * p * (1 - p), 1e-9))
        for i in np.argsort(-abs(self.ups - self.draws * p) / spread, kind="stable").tolist():
            value = p_value(int(self.ups[i]), int(self.draws[i]), float(p[i])) if self.draws[i] else 1.0
            if value <= level:
                yield i, value

    def biases(self, p: Array, level: float) -> dict[str, float]:
        """Return the bias of each group that rounds away from zero too often or too rarely.

        The bias of a group is its excess of draws that round away from zero, divided by its number
        of draws.
        """
        found = {}
        for name, belongs in GROUPS.items():
            chosen = np.array([belongs(chance) for chance in self.chances])
            excess = float((self.ups - self.draws * p)[chosen].sum())
            if abs(excess) > deviation((self.draws * p * (1 - p))[chosen].sum(), level):
                found[name] = excess / float(self.draws[chosen].sum())
        return found

    def fits(self, p: Array, levels: Levels) -> bool:
        """Return True if neither a case nor a group contradicts the probabilities `p`."""
        return next(self.contradicted(p, levels.case), None) is None and not self.biases(p, levels.group)

    def guarantees(self, sr_bits: int | None, precise: int, levels: Levels, bias: float, power: float) -> list[str]:
        """Return sentences that say which biases the test would detect.

        The first `precise` cases have more draws than the rest, so they show smaller biases.
        """
        p = self.probabilities(sr_bits)
        both = zip(self.draws[:precise].tolist(), p[:precise].tolist(), strict=True)
        seen = min(weakest(n, each, bias, levels.case) for n, each in set(both))
        variance, total = float((self.draws * p * (1 - p)).sum()), float(self.draws.sum())
        common = float(deviation(variance, levels.group) + deviation(variance, 2 * (1 - power))) / total
        found = [
            f"With probability {math.floor(seen * 1e4) / 1e4:g}, the test finds a bias of {_one_in(bias)} in any of "
            f"{precise} cases. With probability {power:g}, it finds a bias of {_one_in(common)} that all cases share."
        ]
        if len(p) > precise:
            fewest = int(self.draws[precise:].min())
            coarse = bias
            while coarse < 0.5 and weakest(fewest, 0.5, coarse, levels.case) < power:
                coarse *= 1.05
            found.append(
                f"With probability {power:g}, the test finds a bias of {_one_in(coarse)} in any gap between two codes."
            )
        return found

    def probabilities(self, sr_bits: int | None, kind: str = TRUNCATED) -> Array:
        """Return the probability that each case rounds away from zero."""
        return np.array([chance.probability(sr_bits, kind) for chance in self.chances])


def problems(task: Task, shares: Shares, sr_bits: int | None, levels: Levels, keep: int = 5) -> list[str]:
    """Return sentences about the groups and cases that round away from zero too often or rarely."""
    p = shares.probabilities(sr_bits)
    found = []
    for name, bias in shares.biases(p, levels.group).items():
        often = "too often" if bias > 0 else "too rarely"
        found.append(f"{name} round away from zero {often}: by {abs(bias):.3g} of all draws (about {_one_in(bias)}).")
    cases = list(shares.contradicted(p, levels.case))
    if cases:
        found.append(f"The share of draws that round away from zero is wrong in {len(cases)} of {len(p)} cases:")
    for i, value in cases[:keep]:
        share = f"{shares.ups[i]} of {shares.draws[i]} draws ({shares.ups[i] / shares.draws[i]:.6g})"
        found.append(
            f"  {shares.chances[i].text(task)}: {share} rounded away from zero, but the right share is "
            f"{_probability_text(p[i])}. Chance alone causes such a difference once in {_times(value)}."
        )
    return found


def explanations(shares: Shares, sr_bits: int | None, levels: Levels) -> list[str]:
    """Return, in words, each rule of rounding that agrees with all counts.

    The function first tries correct rounding with each number of random bits. It tries known
    mistakes only if no number of random bits agrees with the counts.
    """
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
    for r in BITS if sr_bits is None else (sr_bits,):
        # The random word 0 never rounds a number away from zero. A kernel that never draws the word
        # 0 therefore rounds away from zero too often.
        if shares.fits(shares.probabilities(r) * (2.0**r / (2.0**r - 1)), levels):
            found.append(f"{r}-bit random words that are never 0")
    return found + [name for name, rule in MISTAKES.items() if shares.fits(rule(p, negative), levels)]


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
