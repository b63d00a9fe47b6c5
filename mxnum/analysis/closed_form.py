"""Compute the expectations of `cluster` in closed form, in each number system of `arithmetics`.

On each piece of the quantizer, E[Q | x] and E[Q^2 | x] are linear functions of x. Every expectation
is therefore a sum of truncated moments E[X**n; a < X < b], n = -2 ... 2, with weights P(|X| <
t)**(k-1) for a block of k numbers. For a normal distribution, the moments n = 0, 1 and 2 are
elementary in erf and exp. The moment n = -1 is not elementary. The moment n = -2 follows from n =
-1 by integration by parts.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from mxnum import errors
from mxnum.analysis.arithmetics import ArbArithmetic, Arithmetic, Enclosure, IntervalArithmetic
from mxnum.analysis.cluster import Model
from mxnum.analysis.piecewise import PiecewiseQuantizer
from mxnum.modes import Rounding

#: Rounding modes that never round numbers near zero away from zero. In these modes,
#: |Q(x)/x - 1| <= 1 unless x overflows.
NEVER_AWAY_FROM_ZERO = (Rounding.RNE, Rounding.RNA, Rounding.RTZ)


@dataclass(frozen=True)
class Piece:
    """A piece lower < x < upper at one scale, with E[Q|x] = m0 + m1 x and E[Q^2|x] = s0 + s1 x."""

    lower: Fraction
    upper: Fraction
    m0: Fraction
    m1: Fraction
    s0: Fraction
    s1: Fraction


@dataclass(frozen=True)
class Cut:
    """The scales, and the interval of x, to which a closed form is restricted."""

    scales: range
    low: Fraction
    high: Fraction


def pieces(model: Model, scale: int, cut: Cut) -> list[Piece]:
    """Return the quantizer's pieces that overlap the interval of `cut`, at the given scale."""
    quantizer = PiecewiseQuantizer.of(model.element, model.rounding)
    factor, reach = model.ladder.units[scale] / model.prescale, model.ladder.end(scale)
    if factor == 0:
        return [Piece(-reach, reach, *[Fraction(0)] * 4)]
    edges = [-reach, *(b * factor for b in quantizer.breakpoints), reach]
    found = []
    for index, (lower, upper) in enumerate(itertools.pairwise(edges)):
        lower, upper = max(lower, -reach), min(upper, reach)
        if lower >= upper or upper <= cut.low or lower >= cut.high:
            continue
        below, above = quantizer.lower[index] * factor, quantizer.upper[index] * factor
        if below == above:
            found.append(Piece(lower, upper, below, Fraction(0), below**2, Fraction(0)))
        else:
            found.append(Piece(lower, upper, Fraction(0), Fraction(1), -below * above, below + above))
    return found


class Normal:
    """Truncated moments of N(mu, sigma**2), as numbers of an `Arithmetic` (a number system)."""

    def __init__(self, arithmetic: Arithmetic, mu: Any, sigma: Any) -> None:
        self._m, self.mu, self._variance = arithmetic, mu, sigma * sigma
        self._sigma = sigma
        self._root = sigma * arithmetic.sqrt(arithmetic.number(Fraction(2)))
        self._norm = sigma * arithmetic.sqrt(2 * arithmetic.pi())
        self._seen: dict[Any, Any] = {}

    def _once(self, kind: str, at: Fraction, make: Any) -> Any:
        key = (kind, at)
        if key not in self._seen:
            self._seen[key] = make((self._m.number(at) - self.mu) / self._root)
        return self._seen[key]

    def _half_erf(self, at: Fraction) -> Any:
        return self._once("erf", at, lambda z: self._m.erf(z) / 2)

    def outside(self, a: Fraction, b: Fraction) -> Any:
        """Return the probability that X lies outside [a, b]."""
        return abs(1 - self.mass(a, b))

    def avoids(self, t: Fraction) -> bool:
        """Return True if |X| < t is impossible."""
        return False

    def within(self, a: Fraction, b: Fraction) -> tuple[Fraction, Fraction]:
        """Return the part of [a, b] in which X can lie."""
        return a, b

    def density(self, at: Fraction) -> Any:
        return self._once("density", at, lambda z: self._m.exp(-z * z) / self._norm)

    def mass(self, a: Fraction, b: Fraction) -> Any:
        return self._half_erf(b) - self._half_erf(a)

    def first(self, a: Fraction, b: Fraction) -> Any:
        return self.mu * self.mass(a, b) - self._variance * (self.density(b) - self.density(a))

    def second(self, a: Fraction, b: Fraction) -> Any:
        edge = (self._m.number(b) + self.mu) * self.density(b) - (self._m.number(a) + self.mu) * self.density(a)
        return self.second_moment() * self.mass(a, b) - self._variance * edge

    def inverse(self, a: Fraction, b: Fraction) -> Any:
        key = ("inverse", a, b)
        if key not in self._seen:
            self._seen[key] = self._m.inverse_normal(self.mu, self._sigma, a, b)
        return self._seen[key]

    def inverse_square(self, a: Fraction, b: Fraction) -> Any:
        edge = self.density(b) / self._m.number(b) - self.density(a) / self._m.number(a)
        return (self.mu * self.inverse(a, b) - self.mass(a, b)) / self._variance - edge

    def second_moment(self) -> Any:
        return self.mu * self.mu + self._variance

    def fourth_moment(self) -> Any:
        square = self.mu * self.mu
        return square * square + 6 * square * self._variance + 3 * self._variance * self._variance


class Uniform:
    """Truncated moments of the uniform distribution on [low, high].

    Bounds of integration outside [low, high] are clipped.
    """

    def __init__(self, arithmetic: Arithmetic, low: Fraction, high: Fraction) -> None:
        self._m, self._low, self._high = arithmetic, low, high
        self.mu = arithmetic.number((low + high) / 2)
        self._width = high - low

    def _power(self, n: int, a: Fraction, b: Fraction) -> Any:
        a, b = self.within(a, b)
        if a >= b:
            return self._m.number(Fraction(0))
        return self._m.number((b**n - a**n) / (n * self._width))

    def outside(self, a: Fraction, b: Fraction) -> Any:
        covered = a <= self._low and self._high <= b
        return self._m.number(Fraction(0)) if covered else abs(1 - self.mass(a, b))

    def avoids(self, t: Fraction) -> bool:
        return self._low >= t or self._high <= -t

    def within(self, a: Fraction, b: Fraction) -> tuple[Fraction, Fraction]:
        return max(a, self._low), min(b, self._high)

    def mass(self, a: Fraction, b: Fraction) -> Any:
        return self._power(1, a, b)

    def first(self, a: Fraction, b: Fraction) -> Any:
        return self._power(2, a, b)

    def second(self, a: Fraction, b: Fraction) -> Any:
        return self._power(3, a, b)

    def inverse(self, a: Fraction, b: Fraction) -> Any:
        a, b = self.within(a, b)
        return self._m.log(self._m.number(b / a)) / self._m.number(self._width)

    def inverse_square(self, a: Fraction, b: Fraction) -> Any:
        return self._power(-1, a, b)

    def second_moment(self) -> Any:
        return self.second(self._low, self._high)

    def fourth_moment(self) -> Any:
        return self._power(5, self._low, self._high)


def expectation(arithmetic: Arithmetic, law: Any, model: Model, cut: Cut, integrate: Any) -> Any:
    """Return an expectation: the sum over scales of W(t_{s+1}) I_s(t_{s+1}) - W(t_s) I_s(t_s).

    A block has scale s if its maximum lies between t_s and t_{s+1}. Here W(t) = P(|X| < t)**(k-1),
    and I_s(t) is the integral over |x| < t at scale s. `integrate(piece, a, b)` returns the
    integral over a < x < b within a piece.
    """
    ladder = model.ladder
    total = arithmetic.number(Fraction(0))
    for scale in cut.scales:
        begin, end = ladder.begins[scale], ladder.end(scale)
        inner = outer = arithmetic.number(Fraction(0))
        for piece in pieces(model, scale, cut):
            for low, high, is_inner in ((-end, -begin, False), (-begin, begin, True), (begin, end, False)):
                a, b = law.within(max(piece.lower, low), min(piece.upper, high))
                if a < b:
                    value = integrate(piece, a, b)
                    inner, outer = (inner + value, outer) if is_inner else (inner, outer + value)
        k = model.block_size
        others = arithmetic.power(law.mass(-end, end), k - 1) if k > 1 else arithmetic.number(Fraction(1))
        if scale == 0:  # a block maximum below `begin` also gives this scale
            total = total + others * (inner + outer)
        elif k == 1:
            total = total + outer
        else:
            total = total + (others - arithmetic.power(law.mass(-begin, begin), k - 1)) * inner + others * outer
    return total


def integrals(arithmetic: Arithmetic, law: Any) -> dict[str, Any]:
    """Return, for the name of each quantity, the function that integrates it within a piece."""
    n = arithmetic.number

    def ratio(first: Fraction, second: Fraction, a: Fraction, b: Fraction) -> Any:
        """Return the integral of (first + second x) / x times the density of x over [a, b]."""
        total = n(Fraction(0))
        if first:
            if a * b <= 0:
                raise ValueError("Argument 'rounding' must round small numbers to zero, else the mean is not finite.")
            total = total + n(first) * law.inverse(a, b)
        return total + n(second) * law.mass(a, b) if second else total

    def square_ratio(p: Piece, a: Fraction, b: Fraction) -> Any:
        """Return the integral of Q^2 / x^2 times the density of x over [a, b]."""
        total = ratio(p.s1, Fraction(0), a, b)
        return total + n(p.s0) * law.inverse_square(a, b) if p.s0 else total

    return {
        "q": lambda p, a, b: n(p.m0) * law.mass(a, b) + n(p.m1) * law.first(a, b),
        "q_squared": lambda p, a, b: n(p.s0) * law.mass(a, b) + n(p.s1) * law.first(a, b),
        "q_times_x": lambda p, a, b: n(p.m0) * law.first(a, b) + n(p.m1) * law.second(a, b),
        "q_over_x": lambda p, a, b: ratio(p.m0, p.m1, a, b),
        "q_over_x_squared": square_ratio,
        "mass": lambda p, a, b: law.mass(a, b),
    }


#: The results that a caller may request, with the names of the integrals that each result needs.
RESULTS = {
    "bias": ("q_over_x",),
    "variance": ("q_over_x", "q_over_x_squared"),
    "ratio_of_means": ("q",),
    "gain": ("q_times_x",),
    "mse": ("q_squared", "q_times_x"),
}


def combine(name: str, law: Any, found: dict[str, Any]) -> Any:
    """Compute the result called `name` from the integrals in `found`."""
    match name:
        case "bias":
            return found["q_over_x"] - 1
        case "variance":
            return found["q_over_x_squared"] - found["q_over_x"] * found["q_over_x"]
        case "ratio_of_means":
            return found["q"] / law.mu - 1
        case "gain":
            return found["q_times_x"] / law.second_moment()
        case _:
            return found["q_squared"] - 2 * found["q_times_x"] + law.second_moment()


def closed_form(arithmetic: Arithmetic, law: Any, model: Model, cut: Cut, name: str) -> Any:
    """Return the result called `name`, computed only from the scales and numbers in `cut`."""
    errors.choose("of", name, tuple(RESULTS))
    wanted = integrals(arithmetic, law)
    found = {part: expectation(arithmetic, law, model, cut, wanted[part]) for part in RESULTS[name]}
    return combine(name, law, found)


def enclose(arithmetic: ArbArithmetic | IntervalArithmetic, law: Any, model: Model, cut: Cut, name: str) -> Enclosure:
    """Return a proved interval: the closed form on `cut`, widened by a bound on the omitted part.

    Let N be the event that a number of the block lies outside the interval of `cut`, or that the
    scale is not in `cut`. Let t_first be the entry of `ScaleLadder.begins` for the first scale of
    `cut`. Then P(N) <= k P(X outside the interval) + P(all |X_i| < t_first). In the event N,
    |Q/X| <= 2 for the roundings of `NEVER_AWAY_FROM_ZERO`, and E[Q|X]/X <= 1 for stochastic
    rounding. Let A be the largest |X_i|. Let g be `ScaleLadder.growth`, and let t be the larger of
    t_first and `ScaleLadder.least`. In every block, |Q| <= g max(A, t) / prescale. Because A**2n <=
    sum of X_i**2n, the Cauchy-Schwarz inequality gives E[|Q|**n; N] <= (g/prescale)**n sqrt((k
    E[X**2n] + t**2n) P(N)).
    """
    errors.choose("of", name, tuple(RESULTS))
    n, k = arithmetic.number, model.block_size
    with arithmetic.precision():
        wanted = integrals(arithmetic, law)
        found = {part: expectation(arithmetic, law, model, cut, wanted[part]) for part in RESULTS[name]}
        ladder, begin = model.ladder, model.ladder.begins[cut.scales[0]]
        first = max(begin, ladder.least)
        lost = k * arithmetic.bound(law.outside(cut.low, cut.high))
        if cut.scales[0] > 0 and not law.avoids(begin):
            lost = lost + arithmetic.power(arithmetic.bound(law.mass(-begin, begin)), k)
        lost, size = arithmetic.bound(lost), n(ladder.growth / model.prescale)

        def rest(part: str) -> Any:
            if part == "q_over_x":
                return 2 * lost
            if part == "q_over_x_squared":
                return 4 * lost
            if part == "q":
                return size * arithmetic.sqrt((k * law.second_moment() + n(first**2)) * lost)
            return size * size * arithmetic.sqrt((k * law.fourth_moment() + n(first**4)) * lost)

        slack = {part: rest(part) for part in found}
        value = combine(name, law, found)
        match name:
            case "variance":
                total = slack["q_over_x_squared"] + slack["q_over_x"] * (2 * abs(found["q_over_x"]) + slack["q_over_x"])
            case "ratio_of_means":
                total = slack["q"] / abs(law.mu)
            case "gain":
                total = slack["q_times_x"] / law.second_moment()
            case "mse":
                total = slack["q_squared"] + 2 * slack["q_times_x"]
            case _:
                total = slack["q_over_x"]
        return arithmetic.hull(value, total)
