"""The scales that a block can have, in order, and the largest number of a block at which each begins.

Whatever the scale's format and rule, the largest magnitude A of a block decides: it has scale number s where
begin(s) <= A < begin(s + 1), and its elements are rounded to multiples of unit(s). All else is one theory.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from fractions import Fraction
from functools import cache, cached_property

import numpy as np

from mxnum import errors
from mxnum.analysis.scale_theory import scale_threshold
from mxnum.formats import ElementFormat, ScaleFormat
from mxnum.memory.dtypes import Array
from mxnum.modes import FloatScaleRule, ScaleRule

#: What stands for the end of the last scale in exact arithmetic: beyond all that is integrated over.
_BEYOND = Fraction(2) ** 512
#: float32 has too many scales to go through one by one.
_MOST_BITS = 16


@dataclass(frozen=True)
class Ladder:
    """Scales from the lowest, which also serves all smaller blocks, to the highest, which serves all larger ones."""

    begins: tuple[Fraction, ...]
    units: tuple[Fraction, ...]
    #: Whether a largest number that equals begin(s) has scale s - 1.
    open_below: tuple[bool, ...]
    #: A block of largest magnitude A becomes at most this times the larger of A and `least`.
    growth: Fraction
    least: Fraction

    def __len__(self) -> int:
        return len(self.units)

    def end(self, s: int) -> Fraction:
        """Where the next scale begins."""
        return self.begins[s + 1] if s + 1 < len(self) else _BEYOND

    def at_most(self, size: Fraction) -> int:
        """The highest scale that begins at that size or before; the first if there is none."""
        return max(bisect_right(self.begins, size) - 1, 0)

    def of(self, size: Fraction) -> int:
        """The scale of a block with that largest magnitude."""
        s = self.at_most(size)
        return s - 1 if s > 0 and self.begins[s] == size and self.open_below[s] else s

    @cached_property
    def tables(self) -> tuple[Array, Array, Array]:
        """Where scales begin and end, and their units, as float64; the first begins at 0 and the last never ends."""
        begins = np.array([0.0, *map(float, self.begins[1:])])
        return begins, np.append(begins[1:], np.inf), np.array([float(u) for u in self.units])


@cache
def powers_of_two(element: ElementFormat, rule: ScaleRule) -> Ladder:
    """E8M0."""
    threshold, units = scale_threshold(element, rule), tuple(Fraction(2) ** s for s in range(-127, 128))
    is_open = {
        ScaleRule.FLOOR: False, ScaleRule.CEIL: True, ScaleRule.EVEN: False, ScaleRule.RCEIL: True,
        ScaleRule.HALF_UP: False, ScaleRule.FLOOR_PLUS_ONE: False,
    }[rule]  # fmt: skip
    begins = tuple(threshold * unit for unit in units)
    return Ladder(begins, units, (is_open,) * len(units), Fraction(4), begins[0])


@cache
def floats(
    element: ElementFormat, scale: ScaleFormat, rule: FloatScaleRule, tensor_scale: Fraction, headroom: Fraction
) -> Ladder:
    """Floats: headroom * A / (largest element * tensor scale), rounded by a rule that asks for A alone."""
    for name, value in (("tensor_scale", tensor_scale), ("headroom", headroom)):
        errors.require(Fraction(1, 2**150) <= value <= 2**130, name, "between 2**-150 and 2**130", float(value))
    errors.require(scale.bits <= _MOST_BITS, "format", "one whose scales have 16 bits or fewer", scale.name)
    errors.require(rule.error_power == 0, "scale_rule", "'nearest' or 'rceil': others look at all numbers", str(rule))
    values = [Fraction(scale.value(code)) for code in range(scale.max_code + 1)]
    lower = [Fraction(0), *values[:-1]]
    edges = lower if rule.rounds_up else [(a + b) / 2 for a, b in zip(lower, values, strict=True)]
    per_scale = Fraction(element.max) * tensor_scale
    return Ladder(
        tuple(edge * per_scale / headroom for edge in edges),
        tuple(value * tensor_scale for value in values),
        # (a tie goes to the even code)
        tuple(rule.rounds_up or code % 2 == 1 for code in range(len(values))),
        4 * headroom,
        values[1] * per_scale,
    )
