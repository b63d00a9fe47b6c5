"""Compute how block scales change the gradient of the logits: the target's component shrinks.

With N tokens and a loss multiplied by c, the gradient of the logits of a token is (p_j - [j = t])
c/N, where t is the target. The target's component is always the largest: its magnitude is A = (1 -
p) c/N, and the magnitudes of all other components add up to A. So in blocks along the vocabulary
the target's component decides the scale of its block. The rounded value of the target's component
is a piecewise constant function of the magnitude A; the format determines the breakpoints. In
blocks along the tokens, another token with the same target may have a larger component, which then
decides the scale. The exact distribution of the scale follows from `frequency`, the probability
that another token of a block has the same target (see `mxnum.analysis.cluster`). The module assumes
that the small components of tokens with other targets decide no scale.

If p has the distribution Beta(a, b), then 1 - p has the distribution Beta(b, a), and expectations
over intervals of p are incomplete beta functions.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cache, cached_property
from itertools import pairwise
from typing import Any

import numpy as np

from mxnum import ElementFormat, FloatScaleRule, MXFormat, Rounding, ScaleRule, errors, formats
from mxnum.analysis import Enclosure, PiecewiseQuantizer, ScaleLadder, scale_ladder
from mxnum.memory.dtypes import Array

#: Expectations for a `Beta` omit values of 1 - p below 2**-`DEPTH`. `enclosure` omits values below
#: 2**-(prec + 8), and bounds their contribution.
DEPTH = 40
#: The accepted rounding modes. In each mode, rounding a number x has a mean error of at most |x|.
#: So omitting this error from a sum of errors changes the sum by at most |x|.
ROUNDINGS = (Rounding.RNE, Rounding.RNA, Rounding.RTZ, Rounding.SR)
#: The precision of mpmath in bits, and the extra bits of an enclosure.
_FLOAT_BITS, _EXTRA_BITS = 100, 60
#: The largest parameter of a beta distribution for which mpmath's series converge.
_LARGEST = 2048


@dataclass(frozen=True)
class Beta:
    """A beta distribution of the probability p, with mean a / (a + b).

    With a = b = 1 the distribution is uniform; with a small a and b = 1, p is mostly near zero.
    """

    a: Fraction
    b: Fraction

    def __init__(self, a: Any, b: Any):
        for name, value in (("a", a), ("b", b)):
            exact = errors.fraction(name, value)
            errors.require(0 < exact <= _LARGEST, name, f"above 0 and at most {_LARGEST}", value)
            object.__setattr__(self, name, exact)


@dataclass(frozen=True)
class Piece:
    """An interval of p in which the target's component rounds to `level` times c/N.

    If `level` is None, the component rounds stochastically, without bias.
    """

    lower: Fraction
    upper: Fraction
    level: Fraction | None
    overflows: bool


@dataclass(frozen=True)
class Shrinking:
    """Expectations over tokens of the target component's magnitude A and its rounded value Q."""

    #: E[Q - A] / E[A], the relative change of the target's component; if negative, the component
    #: shrinks.
    bias: float
    #: The part of `bias` that comes from overflow: from components above the largest value that the
    #: element format has at the scale of the block. The remaining part comes from rounding.
    overflow_bias: float
    #: The share of the tokens for which the target's component overflows.
    overflow: float
    #: The sum of a token's rounded components, averaged over tokens, in units of c/N. The value is
    #: E[A - Q], which assumes that rounding does not change the other components on average.
    sum: float


@dataclass(frozen=True, eq=False)
class LogitGradientBias:
    """How rounding to one format, with one factor on the loss, changes the target's component."""

    element: ElementFormat
    ladder: ScaleLadder = field(repr=False)
    rounding: Rounding
    #: c/N.
    unit: Fraction
    block_size: int
    frequency: Fraction

    def at(self, p: Any) -> Array:
        """Return the relative change E[Q]/A - 1 of the target's component for each p.

        The target's component is assumed to decide the scale of its block. For p = 1 the result
        is 0.

        >>> bias = logit_gradient_bias("mxfp8_e4m3", 2048)
        >>> bias.at([0.0, 0.01, 0.1, 0.25]).round(4)
        array([ 0.    , -0.1162, -0.0278,  0.    ])
        """
        u = 1 - _probabilities(p)
        mean, _ = self._rounded(u, self._scales_of(u))
        with np.errstate(invalid="ignore"):
            relative: Array = np.where(u > 0, mean / u - 1, 0.0)
        return relative

    def overflows(self, p: Any) -> Array:
        """Return True for each p at which the target's component overflows.

        The component overflows if it is above the largest value that the element format has at the
        scale of the block.
        """
        u = 1 - _probabilities(p)
        return self._rounded(u, self._scales_of(u))[1]

    def pieces(self, binades: int = 1) -> list[Piece]:
        """Return the intervals of p in which the target's component rounds to one value.

        The intervals are exact and apply to blocks along the vocabulary. Together, the intervals
        cover p from 0 to at least 1 - 2**-binades.
        """
        found = []
        for s in reversed(self._scales(binades)):
            begin, end = self._ends(s)
            for low, high, level, overflows in reversed(list(self._pieces_at(s))):
                low, high = max(low, begin), min(high, end, Fraction(1))
                if low < high:
                    found.append(Piece(1 - high, 1 - low, level, overflows))
        return found

    def shrinking(self, p: Any) -> Shrinking:
        """Return how rounding changes the target's component, on average over tokens.

        The probability p is a number, a sample or a `Beta`.

        >>> round(logit_gradient_bias("mxfp8_e4m3", 2048).shrinking(Beta("1/2", 32)).bias, 3)
        -0.111
        """
        if not isinstance(p, Beta):
            return self._of_sample(_probabilities(p).ravel())
        import mpmath

        with mpmath.workprec(_FLOAT_BITS):
            total, overflow_bias, overflow = self._closed_form(_MpmathBeta(p))
            mean = mpmath.mpf(p.b.numerator) / p.b.denominator
            mean /= mean + mpmath.mpf(p.a.numerator) / p.a.denominator
            return Shrinking(float(total / mean), float(overflow_bias / mean), float(overflow), float(-total))

    def enclosure(self, p: Beta, of: str = "bias", prec: int = 100) -> Enclosure:
        """Return a proved interval around one field of `Shrinking` (extra ``proofs``).

        `of` is the name of the field of `Shrinking`: "bias", "overflow_bias", "overflow" or "sum".
        """
        errors.require_type(isinstance(p, Beta), "p", "a Beta", p)
        errors.choose("of", of, ("bias", "overflow_bias", "overflow", "sum"))
        flint = errors.package("flint", "proofs")
        with flint.ctx.workprec(errors.integer("prec", prec, 20, 10_000) + _EXTRA_BITS):
            law = _ArbBeta(flint, p)
            binades = prec + 8
            total, overflow_bias, overflow = self._closed_form(law, binades)
            # `_closed_form` omits the values of 1 - p below t = 2**-binades. This changes E[Q - A]
            # by at most t, and the probability of overflow by at most P(1 - p < t).
            rest = law.number(Fraction(1, 2**binades))
            mean = law.number(p.b / (p.a + p.b))
            chance = law.below(Fraction(1, 2**binades))
            value, slack = {
                "bias": (total / mean, rest / mean),
                "overflow_bias": (overflow_bias / mean, rest / mean),
                "overflow": (overflow, chance),
                "sum": (-total, rest),
            }[of]
            ends = (value - abs(slack)).lower().fmpq(), (value + abs(slack)).upper().fmpq()
            return Enclosure(*(Fraction(int(end.p), int(end.q)) for end in ends))

    # `_ends` returns the interval of magnitudes A that require scale s. The probability that the
    # other tokens of a block require scale s is others(upper end) - others(lower end). Here
    # others(t) is the probability that A < t for all other tokens with the same target. `_ends`
    # divides both ends by c/N. Because A = (1 - p) c/N, the quotients are values of 1 - p.

    def _scales(self, binades: int) -> list[int]:
        """Return the indices of the scales for block maxima from 2**-binades c/N to c/N."""
        first, last = (self.ladder.of(self.unit / 2**each) for each in (binades, 0))
        return list(range(first, last + 1))

    def _ends(self, s: int) -> tuple[Fraction, Fraction]:
        return (Fraction(0) if s == 0 else self.ladder.begins[s] / self.unit), self.ladder.end(s) / self.unit

    def _pieces_at(self, s: int) -> Iterator[tuple[Fraction, Fraction, Fraction | None, bool]]:
        """Yield (lower, upper, level, overflows) for intervals of 1 - p that round to one value.

        `s` is the index of the block's scale. If `level` is None, the component rounds
        stochastically, without bias.
        """
        scale = self.ladder.units[s] / self.unit
        if scale == 0:  # all components become zero
            yield Fraction(0), self._ends(s)[1], Fraction(0), False
            return
        for low, high, level, overflows in _positive_pieces(self.element, self.rounding):
            end = self._ends(s)[1] if high is None else high * scale
            yield low * scale, end, None if level is None else level * scale, overflows

    def _closed_form(self, law: Any, binades: int = DEPTH) -> tuple[Any, Any, Any]:
        """Return E[Q - A], the part of E[Q - A] due to overflow, and the probability of overflow.

        The first two results are in units of c/N.
        """
        total = overflow_bias = overflow = law.number(Fraction(0))
        lowest = Fraction(1, 2**binades)
        for s in self._scales(binades):
            begin, end = self._ends(s)
            reached = law.others(end, self.frequency, self.block_size)
            # `risen` is the probability that the other tokens of the block require scale s.
            risen = reached - law.others(begin, self.frequency, self.block_size)
            for low, high, level, overflows in self._pieces_at(s):
                for first, last, weight in ((lowest, begin, risen), (max(begin, lowest), end, reached)):
                    x, y = max(low, first), min(high, last, Fraction(1))
                    if x >= y or (weight is risen and not self.frequency):
                        continue
                    mass = weight * (law.below(y) - law.below(x))
                    moment = weight * (law.moment_below(y) - law.moment_below(x))
                    error = law.number(Fraction(0)) if level is None else law.number(level) * mass - moment
                    total += error
                    if overflows:
                        overflow_bias, overflow = overflow_bias + error, overflow + mass
        return total, overflow_bias, overflow

    @cached_property
    def _tables(self) -> tuple[Array, Array, Array]:
        """The ladder's `begins` and `units`, in units of c/N as float64, and `open_below`."""
        begins, units = (
            np.array([float(x / self.unit) for x in each]) for each in (self.ladder.begins, self.ladder.units)
        )
        return begins, units, np.array(self.ladder.open_below)

    @cached_property
    def _levels(self) -> tuple[Array, Array, Array, Array]:
        """The fields `breakpoints`, `lower`, `upper` and `at` of the quantizer, as float64."""
        quantizer = PiecewiseQuantizer.of(self.element, self.rounding)
        fields = quantizer.breakpoints, quantizer.lower, quantizer.upper, quantizer.at
        breaks, lower, upper, at = (np.array([float(x) for x in values]) for values in fields)
        return breaks, lower, upper, at

    def _scales_of(self, u: Array) -> Array:
        """Return the index of the scale that each token's own component requires."""
        begins, _, is_open_below = self._tables
        above = np.searchsorted(begins, u, "right") - 1
        is_open = is_open_below[np.maximum(above, 0)] & (u == begins[np.maximum(above, 0)])
        scales: Array = np.maximum(above - is_open, 0)
        return scales

    def _rounded(self, u: Array, scales: Array) -> tuple[Array, Array]:
        """Return E[Q] in units of c/N for each component, and True if the component overflows."""
        breaks, lower, upper, at = self._levels
        units = self._tables[1][scales]
        x = np.divide(u, units, out=np.zeros_like(u), where=units > 0)
        piece = np.searchsorted(breaks, x, "left")
        mean = np.where(lower[piece] == upper[piece], lower[piece], x)
        inside = np.minimum(piece, len(breaks) - 1)
        mean = np.where(breaks[inside] == x, at[inside], mean)
        return mean * units, (x > float(self.element.max)) & (units > 0)

    def _of_sample(self, p: Array) -> Shrinking:
        errors.require(p.size > 0 and bool((p < 1).any()), "p", "one or more probabilities, at least one below 1", p)
        u = np.sort(1 - p)
        own, total, overflow_bias, overflow = self._scales_of(u), 0.0, 0.0, 0.0

        def others(s: int, is_end: bool) -> float:
            # If `is_end`, the probability that no other token with this target requires a scale
            # above s; otherwise the probability that none requires s or a scale above s.
            count = np.searchsorted(own, s, "right" if is_end else "left")
            return float((1 - float(self.frequency) * (1 - count / u.size)) ** (self.block_size - 1))

        for s in range(int(own.min()), int(own.max()) + 1):
            reached = others(s, True)
            weight = np.where(own == s, reached, np.where(own < s, reached - others(s, False), 0.0)) / u.size
            if weight.any():
                mean, beyond = self._rounded(u, np.full(u.size, s))
                error = weight * (mean - u)
                total += float(error.sum())
                overflow_bias += float(error[beyond].sum())
                overflow += float(weight[beyond].sum())
        average = float(u.mean())
        return Shrinking(total / average, overflow_bias / average, overflow, -total)


def logit_gradient_bias(
    format: str | MXFormat = "mxfp8_e4m3",
    tokens: int = 1 << 15,
    factor: Any = 1,
    *,
    scale_rule: str | ScaleRule | FloatScaleRule | None = None,
    rounding: str | Rounding = "rne",
    block_size: int | None = None,
    frequency: Any = 0,
    tensor_scale: Any = None,
) -> LogitGradientBias:
    """Return how rounding changes the target's component, as a function of the probability p.

    Parameters
    ----------
    format, scale_rule, rounding, block_size
        As in `mxnum.quantize`, but `rounding` must be "rne", "rna", "rtz" or "sr".
    tokens
        N, the number of tokens of a microbatch. The loss is the mean over these tokens.
    factor
        c, the factor that multiplies the loss before the backward pass.
    frequency
        The probability that another token of a block has the same target, for blocks along the
        tokens (in the product that gives the weight's gradient). 0 means blocks along the
        vocabulary.
    tensor_scale
        The tensor scale of NVFP4 and similar formats. The default is the tensor scale of a tensor
        whose largest magnitude is c/N, the target's component of a token with p = 0.

    >>> logit_gradient_bias("mxfp8_e4m3", 2048, "6/5").shrinking(0.01).overflow
    0.0
    """
    fmt = formats.get(format)
    count, c = errors.positive_integer("tokens", tokens), errors.fraction("factor", factor)
    errors.require(Fraction(1, 2**40) <= c <= 2**40, "factor", "between 2**-40 and 2**40", factor)
    errors.require(count <= 2**40, "tokens", "at most 2**40", count)
    chance = errors.fraction("frequency", frequency)
    errors.require(0 <= chance <= 1, "frequency", "between 0 and 1", frequency)
    mode = errors.choose_member("rounding", rounding, ROUNDINGS)
    length = fmt.block if block_size is None else errors.positive_integer("block_size", block_size)
    unit = c / count
    if fmt.tensor_scale is not None and tensor_scale is None:
        tensor_scale = unit / (Fraction(fmt.element.max) * Fraction(fmt.scale.value(fmt.scale.max_code)))
    ladder = scale_ladder(fmt, scale_rule, tensor_scale=tensor_scale)
    return LogitGradientBias(fmt.element, ladder, mode, unit, length, chance)


@cache
def _positive_pieces(
    element: ElementFormat, rounding: Rounding
) -> list[tuple[Fraction, Fraction | None, Fraction | None, bool]]:
    """Return (lower, upper, level, overflows) of each interval of positive x between breakpoints.

    Q(x) is `level` throughout the interval; if `level` is None, Q(x) is x on average.
    """
    quantizer = PiecewiseQuantizer.of(element, rounding)
    first = bisect_right(quantizer.breakpoints, 0)
    edges: list[Fraction | None] = [Fraction(0), *quantizer.breakpoints[first:], None]
    found: list[tuple[Fraction, Fraction | None, Fraction | None, bool]] = []
    largest = Fraction(element.max)
    for piece, (low, high) in enumerate(pairwise(edges), first):
        assert low is not None
        level = quantizer.lower[piece] if quantizer.lower[piece] == quantizer.upper[piece] else None
        inside = low < largest and (high is None or high > largest)
        parts = [(low, largest), (largest, high)] if inside else [(low, high)]
        found += [(x, y, level, x >= largest) for x, y in parts]
    return found


def _probabilities(p: Any) -> Array:
    found = np.asarray(p, np.float64)
    errors.require(bool(((found >= 0) & (found <= 1)).all()), "p", "probabilities, or a Beta", p)
    return found


class _MpmathBeta:
    """The distribution of 1 - p for a `Beta` distribution of p, computed in mpmath's floats."""

    def __init__(self, law: Beta):
        import mpmath

        self._mp = mpmath
        self._a, self._b = (self.number(x) for x in (law.b, law.a))
        self._mean = self._a / (self._a + self._b)
        self._known: dict[Any, Any] = {}

    def number(self, x: Fraction) -> Any:
        return self._mp.mpf(x.numerator) / x.denominator

    def _below(self, x: Fraction, more: int) -> Any:
        if x <= 0 or x >= 1:
            return self.number(Fraction(x >= 1))
        if (x, more) not in self._known:
            self._known[x, more] = self._integral(x, more)
        return self._known[x, more]

    def _integral(self, x: Fraction, more: int) -> Any:
        return self._mp.betainc(self._a + more, self._b, 0, self.number(x), regularized=True)

    def below(self, x: Fraction) -> Any:
        """Return P(1 - p < x)."""
        return self._below(x, 0)

    def moment_below(self, x: Fraction) -> Any:
        """Return the expectation of a variable that is 1 - p if 1 - p < x, and 0 otherwise."""
        return self._mean * self._below(x, 1)

    def others(self, t: Fraction, frequency: Fraction, block_size: int) -> Any:
        """Return P(1 - p < t for all other tokens of a block that have the same target)."""
        return (1 - self.number(frequency) * (1 - self.below(t))) ** (block_size - 1)


class _ArbBeta(_MpmathBeta):
    """The distribution of 1 - p for a `Beta` distribution of p, computed in Arb's intervals."""

    def __init__(self, flint: Any, law: Beta):
        self._flint = flint
        super().__init__(law)

    def number(self, x: Fraction) -> Any:
        return self._flint.arb(self._flint.fmpq(x.numerator, x.denominator))

    def _integral(self, x: Fraction, more: int) -> Any:
        return self.number(x).beta_lower(self._a + more, self._b, regularized=True)
