"""Bound the mean result of a matrix unit that truncates toward zero, for positive operands.

Operands are independent, and each is drawn with equal probability from given numbers between 1
and 2. The running sum S of the fused sums is a Markov chain. Between 2^e and 2^(e + 1), the running
sum S is one of at most 2^F numbers, where F is the number of fraction bits. The next fused sum
truncates its products to multiples of 2^(e - F) and adds the products to the running sum. So the
distribution of the running sum can be computed step by step. The probabilities are floats. Because
they are never negative, the number of operations bounds their relative error.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from mxnum import errors, units
from mxnum.memory.dtypes import Array
from mxnum.units import MatrixUnit

#: All E4M3 numbers that are at least 1 and less than 2.
E4M3_BINADE = tuple(1 + i / 8 for i in range(8))
#: A probability below this threshold is set to 0, and its value is added to `_Chain.lost`.
_NEGLIGIBLE = 1e-25
#: An upper bound of the relative error of one operation: twice the error of rounding to float64.
_PER_OPERATION = 2.0**-52
#: The largest number of fraction bits of `values`. With more bits, a distribution would have too
#: many entries.
_MOST_BITS = 6


@dataclass(frozen=True)
class MeanSum:
    """Bounds of the mean result of a unit, and the mean of the exact sum."""

    low: float
    high: float
    exact: float

    @property
    def shrinking(self) -> tuple[float, float]:
        """The share of the exact mean that the unit loses by truncation: lower and upper bound."""
        return 1 - self.high / self.exact, 1 - self.low / self.exact


@cache
def mean_sum(unit: MatrixUnit | str, k: int, values: Sequence[float] = E4M3_BINADE) -> MeanSum:
    """Return bounds of the mean result of a unit that sums `k` products of random positive numbers.

    Parameters
    ----------
    unit
        A unit that truncates aligned terms and results toward zero, both to the same number of
        fraction bits. The FP8 units of Hopper and Ada are examples. If the unit promotes sums to
        float32, the result includes the promotion.
    k
        The number of products: a multiple of the unit's `promotion` or, if the unit does not
        promote, of the unit's `terms`.
    values
        The numbers from which both operands are drawn. Each is at least 1 and less than 2.

    Examples
    --------
    >>> low, high = mean_sum("hopper_fp8", 1024).shrinking
    >>> f"{low:.5%} {high:.5%}"
    '1.26528% 1.26528%'
    """
    row = units.get(unit)
    truncates = row.rounding == "rtz" and row.fraction_bits == row.result_bits and row.group == 1
    errors.require(truncates and not row.scales, "unit", "a unit that truncates terms and results equally", row.name)
    each = row.promotion or k
    multiple = row.promotion or row.terms
    errors.require(k > 0 and k % multiple == 0, "k", f"a positive multiple of {multiple}", k)
    bits = next((b for b in range(_MOST_BITS + 1) if all((v * 2**b).is_integer() for v in values)), None)
    fits = bits is not None and all(1 <= v < 2 for v in values)
    errors.require(fits, "values", f"numbers from 1 to below 2 with at most {_MOST_BITS} fraction bits", tuple(values))
    chain = _Chain(row, tuple(values), 2 * int(bits or 0))
    # Promotion adds in float32, which is exact if the total has at most 24 bits.
    errors.require(k * 4 << chain.fine <= 1 << 24 or not row.promotion, "k", "small enough for exact float32 totals", k)
    chain.run(each // row.terms)
    mean = chain.mean() * (k // each)
    bound = chain.operations * _PER_OPERATION
    exact = k * float(np.mean(values)) ** 2
    return MeanSum(mean * (1 - bound), (mean + chain.lost * 4 * k) * (1 + bound), exact)


class _Chain:
    """The probability distribution of a unit's running sum."""

    def __init__(self, unit: MatrixUnit, values: tuple[float, ...], fine: int):
        self.unit, self.fine = unit, fine
        products = np.multiply.outer(values, values).ravel()
        #: The products as integers, in units of 2^-fine.
        self.products = (products * 2.0**fine).astype(np.int64)
        #: For each exponent e, the probabilities of the running sums from 2^e to below 2^(e + 1).
        #: The sums are in ascending order.
        self.states: dict[int, Array] = {}
        self.lost, self.operations = 0.0, 0
        self._of_exponent: dict[int, tuple[int, Array]] = {}

    def shift(self, exponent: int) -> int:
        """Return the s for which 2^s * 2^-fine is the spacing of running sums with an exponent."""
        return max(exponent - self.unit.fraction_bits + self.fine, 0)

    def added(self, exponent: int) -> tuple[int, Array]:
        """Return the distribution of the sum of the truncated products that one fused sum adds.

        `exponent` is the exponent of the running sum. The result is the smallest possible sum, and
        the probabilities of this sum and of the larger sums in ascending order.
        """
        if exponent not in self._of_exponent:
            counts = np.bincount(self.products >> self.shift(exponent))
            first = int(np.flatnonzero(counts)[0])
            power, one = np.ones(1), counts[first:] / len(self.products)
            for bit in bin(self.unit.terms)[2:]:
                power = np.convolve(power, power)
                power = np.convolve(power, one) if bit == "1" else power
            self._of_exponent[exponent] = first * self.unit.terms, power
        return self._of_exponent[exponent]

    def run(self, steps: int) -> None:
        """Run `steps` fused sums, starting from zero."""
        first, power = self.added(0)
        self.count(len(power))
        self.enter(self.states, 0, first, power)
        for _ in range(steps - 1):
            new: dict[int, Array] = {}
            longest = 0
            for exponent, states in self.states.items():
                kept = np.flatnonzero(states)
                if not len(kept):
                    continue
                first, power = self.added(exponent)
                window = states[kept[0] : kept[-1] + 1]
                start = self.begin(exponent) + int(kept[0]) + first
                self.enter(new, exponent, start, np.convolve(window, power))
                longest = max(longest, len(power))
            self.count(longest)
            for states in new.values():
                small = states < _NEGLIGIBLE
                self.lost += float(states[small].sum())
                states[small] = 0
            self.states = new

    def begin(self, exponent: int) -> int:
        """Return 2^exponent divided by the spacing of running sums with this exponent."""
        return 1 << (exponent + self.fine) >> self.shift(exponent)

    def enter(self, states: dict[int, Array], exponent: int, start: int, chances: Array) -> None:
        """Truncate sums to the bits of a result, and add their probabilities to `states`.

        `chances` has the probabilities of consecutive sums, of which the first is `start`.
        """
        stop, spacing = start + len(chances), self.shift(exponent)
        while exponent < 64:
            below = 1 << (exponent + self.fine) >> spacing
            if below >= stop:
                break
            low, high = max(below, start), min(2 * below, stop)
            if low < high:
                where = (np.arange(low, high) >> (self.shift(exponent) - spacing)) - self.begin(exponent)
                found = np.bincount(where, chances[low - start : high - start], self.begin(exponent))
                states[exponent] = states[exponent] + found if exponent in states else found
            exponent += 1

    def count(self, length: int) -> None:
        """Add the operations of one fused sum, in which each probability sums `length` products."""
        # The count is an upper bound. The factor 4 also allows for the shorter convolutions in
        # `added`, and the summand 2^16 for the additions in `enter`.
        self.operations += 4 * length + (1 << 16)

    def mean(self) -> float:
        """Return the mean of the running sum."""
        total = 0.0
        for exponent, states in self.states.items():
            sums = (self.begin(exponent) + np.arange(len(states))) * 2.0 ** (self.shift(exponent) - self.fine)
            total += float((states * sums).sum())
        return total
