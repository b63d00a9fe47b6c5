"""Compute the effect of a scale rule on the largest number of a block, in exact rationals.

Each rule has a threshold t. The scale exponent is the largest integer s such that the block maximum
A is at least t * 2**s. Therefore A divided by the scale lies between t and 2t. A overflows if this
quotient is above the element's largest value.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import assert_never

from mxnum import errors
from mxnum.analysis.piecewise import element_of
from mxnum.formats import ElementFormat, MXFormat
from mxnum.modes import ScaleRule


def scale_threshold(format: str | MXFormat | ElementFormat, scale_rule: str | ScaleRule = "floor") -> Fraction:
    """Return t such that the scale exponent is the largest s with block maximum A >= t * 2**s.

    For ceil and rceil, the condition is A > t * 2**s. The thresholds follow from the definitions of
    the rules, with A = f * 2**E.

    >>> scale_threshold("mxfp8_e4m3", "floor"), scale_threshold("mxfp8_e4m3", "rceil")
    (Fraction(256, 1), Fraction(224, 1))
    """
    element = element_of(format, "scale_threshold")
    aligned = Fraction(2) ** element.emax
    match errors.choose_member("scale_rule", scale_rule, ScaleRule):
        case ScaleRule.FLOOR:
            return aligned
        case ScaleRule.CEIL:
            return aligned / 2
        case ScaleRule.EVEN:
            return (2 - Fraction(2) ** -(element.mantissa_bits + 1)) * aligned / 2
        case ScaleRule.RCEIL:
            return Fraction(element.max) / 2
        case ScaleRule.HALF_UP:
            return Fraction(7, 8) * aligned
        case ScaleRule.FLOOR_PLUS_ONE:
            return aligned / 2
        case rule:
            assert_never(rule)


@dataclass(frozen=True)
class OverflowRegion:
    """The mantissas f, lower < f < upper, at which a block maximum f * 2**E overflows.

    A block maximum overflows if it is beyond the largest element value times the scale. The
    interval (lower, upper) is empty if the rule never overflows. `worst_error` is the supremum of
    the relative error 1 - max / abs(x) in the interval.
    """

    lower: Fraction
    upper: Fraction
    worst_error: Fraction

    @property
    def empty(self) -> bool:
        return self.lower >= self.upper

    @property
    def share_uniform(self) -> Fraction:
        """The probability of overflow when f is uniform in [1, 2)."""
        return max(self.upper - self.lower, Fraction(0))

    @property
    def share_log_uniform(self) -> float:
        """The probability of overflow when log2 f is uniform in [0, 1)."""
        import math

        return 0.0 if self.empty else math.log2(self.upper / self.lower)


def overflow_region(format: str | MXFormat | ElementFormat, scale_rule: str | ScaleRule = "floor") -> OverflowRegion:
    """Return the mantissas at which a block maximum overflows under a scale rule.

    >>> region = overflow_region("mxfp8_e4m3")
    >>> region.lower, region.upper, region.worst_error
    (Fraction(7, 4), Fraction(2, 1), Fraction(1, 8))
    >>> overflow_region("mxfp8_e4m3", "rceil").empty
    True
    """
    element = element_of(format, "overflow_region")
    aligned = Fraction(2) ** element.emax
    largest = Fraction(element.max)
    # By definition of t, the quotient A / 2**s is below 2t. For ceil and rceil the quotient may
    # equal 2t, but 2t is then at most the largest element value.
    reach = 2 * scale_threshold(element, scale_rule)
    if reach <= largest:
        return OverflowRegion(largest / aligned, largest / aligned, Fraction(0))
    return OverflowRegion(largest / aligned, reach / aligned, 1 - largest / reach)
