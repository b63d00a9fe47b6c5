"""The ratio machine, which executes a division for unknown X and D and tracks only their ratio.

A division uses its operands only in comparisons, doublings and subtractions. A `Form` is a number
a*X + b*D, for unknown positive numbers X and D. To compare two forms, or a form with zero, the
machine compares X / D with a rational number. `paths` executes a function once for each possible
sequence of outcomes of its comparisons. A path is one execution of the function. Each path holds
for one ratio X / D or for an open interval of ratios. Together, the paths cover all X and D whose
ratio is in the given range. Nothing is sampled, and no solver is needed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

#: The number of bits of the word in which each `Form` must fit.
WORD = 64
#: For each amount that is added to the bits of a normal float32 or bfloat16 number: the factor by
#: which the number grows.
DOUBLED = {1 << 23: 2, 2 << 23: 4, 1 << 7: 2, 2 << 7: 4}


class Hidden(Exception):
    """The known facts do not determine a result, such as the outcome of a comparison."""


@dataclass(frozen=True)
class Ratios:
    """The open interval from `low` to `high`, or the single ratio `low` if `low` equals `high`."""

    low: Fraction
    high: Fraction

    def times(self, factor: Fraction) -> Ratios:
        """Return the ratios multiplied by a factor."""
        return Ratios(self.low * factor, self.high * factor)

    def below(self, place: Fraction, or_equal: bool = False) -> bool:
        """Return True if all ratios are below `place`, and False if no ratio is.

        If `or_equal`, a ratio equal to `place` counts as below. Raise `Hidden` if only some of the
        ratios are below `place`.
        """
        if self.low == self.high:
            return self.low <= place if or_equal else self.low < place
        if self.high <= place:
            return True
        if self.low >= place:
            return False
        raise Hidden(f"{place} lies between {self.low} and {self.high}")


class _Explorer:
    """The outcomes of one execution's comparisons, and the sequences of outcomes left to try."""

    def __init__(self, low: Fraction, high: Fraction) -> None:
        self.start = Ratios(low, high)
        self.left: list[list[int]] = [[]]

    def begin(self, bits: tuple[int, int]) -> None:
        """Begin the next execution, for all X of `bits[0]` bits and all D of `bits[1]` bits."""
        self.ratios, self.given, self.taken = self.start, self.left.pop(), list[int]()
        self.bits, self.divisor = bits, (Fraction(1 << (bits[1] - 1)), Fraction(1 << bits[1]))

    def is_divisor_below(self, bound: Fraction) -> bool:
        """Return True if D < bound on this path, and drop the ratios that this excludes."""
        low, high = self.divisor
        if high <= bound or low >= bound:
            return high <= bound
        side = self._answer((-1, 1))
        low, high = self.divisor = (low, bound) if side < 0 else (bound, high)
        least, most = 1 << (self.bits[0] - 1), 1 << self.bits[0]
        r = self.ratios
        self.ratios = Ratios(max(r.low, least / high), min(r.high, most / low))
        return side < 0

    def _answer(self, sides: tuple[int, ...]) -> int:
        depth = len(self.taken)
        if depth == len(self.given):
            self.left += [[*self.taken, side] for side in sides[1:]]
            self.given = [*self.given, sides[0]]
        self.taken.append(self.given[depth])
        return self.given[depth]

    def side(self, place: Fraction) -> int:
        """Return -1, 0 or 1 if X / D is below, at or above `place` on this path."""
        r = self.ratios
        if r.low == r.high:
            return (r.low > place) - (r.low < place)
        if r.high <= place or r.low >= place:
            return -1 if r.high <= place else 1
        side = self._answer((-1, 0, 1))
        self.ratios = {-1: Ratios(r.low, place), 0: Ratios(place, place), 1: Ratios(place, r.high)}[side]
        return side


class Form:
    """A number a*X + b*D, for unknown numbers X and D of known bit lengths."""

    __hash__ = None  # type: ignore[assignment]

    def __init__(self, explorer: _Explorer, a: int, b: int) -> None:
        self.explorer, self.a, self.b = explorer, a, b
        ends, bits = (explorer.ratios.low, explorer.ratios.high), explorer.bits
        if max(abs(a) << bits[0], abs(b) << bits[1]) >> (WORD - 2) == 0:
            return  # fast path: a coarse bound shows that the form fits a word
        if max(abs(a * end + b) for end in ends) * (1 << bits[1]) >= 1 << (WORD - 1):
            raise Hidden(f"{a} X + {b} D does not fit in a word")

    def _new(self, a: int, b: int) -> Form:
        return Form(self.explorer, a, b)

    def __add__(self, other: Any) -> Form:
        if isinstance(other, int) and other == 0:
            return self
        return self._new(self.a + other.a, self.b + other.b) if isinstance(other, Form) else NotImplemented

    __radd__ = __add__

    def __sub__(self, other: Any) -> Form:
        if isinstance(other, int) and other == 0:
            return self
        return self._new(self.a - other.a, self.b - other.b) if isinstance(other, Form) else NotImplemented

    def __lshift__(self, amount: int) -> Form:
        return self._new(self.a << amount, self.b << amount)

    def _sign(self, other: Any) -> int:
        """Return -1, 0 or 1, the sign of self - other."""
        if not (isinstance(other, Form) or (isinstance(other, int) and other == 0)):
            raise Hidden(f"a form is compared with {other!r}, which is neither a form nor zero")
        difference = self - other
        a, b = difference.a, difference.b
        if a == 0 or b == 0:
            return (a + b > 0) - (a + b < 0)
        side = self.explorer.side(Fraction(-b, a))
        return side if a > 0 else -side

    def __lt__(self, other: Any) -> bool:
        if isinstance(other, int) and other > 0 and self.a == 0 and self.b > 0:
            return self.explorer.is_divisor_below(Fraction(other, self.b))
        return self._sign(other) < 0

    def __eq__(self, other: Any) -> bool:
        return self._sign(other) == 0


def paths(
    function: Callable[[Form, Form], Any], bits: tuple[int, int], low: Fraction, high: Fraction
) -> Iterator[tuple[Ratios, Any]]:
    """Yield (ratios X / D, result) for each path.

    The ratios of all paths together cover `low` to `high`.
    """
    explorer = _Explorer(low, high)
    while explorer.left:
        explorer.begin(bits)
        x, divisor = Form(explorer, 1, 0), Form(explorer, 0, 1)
        result = function(x, divisor)
        yield explorer.ratios, result


def covers(found: list[Ratios], low: Fraction, high: Fraction) -> bool:
    """Return True if the sets of ratios cover all ratios between `low` and `high`, each once."""
    found, at, is_point = sorted(found, key=lambda r: (r.low, r.high)), low, True
    for ratios in found:
        if ratios.low != at or (ratios.low == ratios.high) == is_point:
            return False
        at, is_point = ratios.high, not is_point
    return at == high and not is_point


@dataclass(frozen=True)
class Place:
    """A threshold for abs(x): the float `at` or, if `above` is True, the float just above `at`.

    Adding one to the exponent field doubles a threshold; the theorems factors/doubled prove this.
    """

    at: Fraction
    above: bool = False

    def __add__(self, other: int) -> Place:
        if other == 1 and not self.above:
            return Place(self.at, True)
        if other in DOUBLED:
            return Place(self.at * DOUBLED[other], self.above)
        return self if other == 0 else NotImplemented


class Size:
    """A float of which only the sign and the ratio of its magnitude to a factor are known."""

    __hash__ = None  # type: ignore[assignment]

    def __init__(self, ratios: Ratios, sign: int) -> None:
        self.ratios, self.sign = ratios, sign

    def __and__(self, mask: int) -> Size:
        return Size(self.ratios, 0) if mask in (0x7FFFFFFF, 0x7FFFFFFFFFFFFFFF) else NotImplemented

    def __rshift__(self, amount: int) -> int:
        return -self.sign if amount in (31, 63) else NotImplemented

    def __lt__(self, place: Any) -> bool:
        if not isinstance(place, Place):
            raise Hidden(f"a size is compared with {place!r}, which is not a threshold")
        return self.ratios.below(place.at, or_equal=place.above)


def leading(ratios: Ratios, digits: int) -> tuple[int, int]:
    """Return (exponent, significand) of a ratio.

    The significand is the leading one, then `digits` binary digits, then a sticky bit: 1 if any
    later digit is nonzero. Raise `Hidden` if the result is not the same for all ratios.
    """
    exponent = ratios.low.numerator.bit_length() - ratios.low.denominator.bit_length()
    exponent -= ratios.low < Fraction(2) ** exponent
    if not ratios.below(Fraction(2) ** (exponent + 1)):
        raise Hidden(f"the ratios from {ratios.low} to {ratios.high} have different exponents")
    scaled = ratios.times(Fraction(2) ** (digits - exponent))
    whole = scaled.low.numerator // scaled.low.denominator
    if not scaled.below(Fraction(whole + 1)):
        raise Hidden(f"the ratios from {ratios.low} to {ratios.high} have different leading digits")
    return exponent, 2 * whole + int(scaled.low != whole or scaled.low != scaled.high)


#: A range that contains every exponent of x / factor, where x is a float64 number and the factor is
#: the product of a scale and a tensor scale.
EXPONENTS = np.arange(-1400, 1401)
