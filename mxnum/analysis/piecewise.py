"""Describe the quantizer of an element format as a piecewise function of a real number.

The function is derived from the definition, so that every rounding mode is covered. In
deterministic modes the function is piecewise constant. The boundary between two neighbouring values
is one of the two values or their midpoint. Stochastic rounding chooses between two constants, and
the mean of Q(x) is x.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from fractions import Fraction
from functools import cache

import numpy as np

from mxnum import errors, formats
from mxnum.definition.convert import make_encode
from mxnum.formats import E8M0, FLOATS, ElementFormat, MXFormat
from mxnum.modes import Overflow, Rounding


def element_of(format: str | MXFormat | ElementFormat, what: str) -> ElementFormat:
    """Return the element format of an MX format with E8M0 scales, or the given element format.

    `what` is the name of the function that needs E8M0 scales, for the error message.
    """
    if isinstance(format, MXFormat) or (isinstance(format, str) and format not in formats.ELEMENTS):
        return formats.get_e8m0(format, what).element
    return formats.element(format)


def _unbounded_value(element: ElementFormat, code: int) -> Fraction:
    """Return the magnitude that a code would have if the exponent were unbounded."""
    step, mantissa = divmod(code, 1 << element.mantissa_bits)
    unit = Fraction(2) ** (element.emin - element.mantissa_bits)
    return mantissa * unit if step == 0 else ((1 << element.mantissa_bits) + mantissa) * unit * 2 ** (step - 1)


@dataclass(frozen=True)
class PiecewiseQuantizer:
    """The function Q(x) at scale 1 with saturation, for every real x.

    Between `breakpoints` i-1 and i the result is ``lower[i]`` or ``upper[i]``. ``lower[i]`` and
    ``upper[i]`` differ only under stochastic rounding. Here stochastic rounding has infinitely many
    random bits, so the mean of Q(x) is x. At breakpoint i the result is ``at[i]``.
    """

    element: ElementFormat
    rounding: Rounding
    breakpoints: tuple[Fraction, ...]
    lower: tuple[Fraction, ...]
    upper: tuple[Fraction, ...]
    at: tuple[Fraction, ...]

    @classmethod
    def of(cls, element: str | ElementFormat | MXFormat, rounding: str | Rounding = "rne") -> PiecewiseQuantizer:
        """Return the quantizer of an element format, or of an MX format's elements."""
        resolved = element_of(element, "PiecewiseQuantizer")
        errors.require(resolved.bits <= 8, "element", "at most 8 bits wide", resolved.name)
        return _derive(resolved, errors.choose_member("rounding", rounding, Rounding))

    def mean(self, x: Fraction | int) -> Fraction:
        """Return the exact mean of Q(x); in deterministic modes this is Q(x) itself."""
        x = Fraction(x)
        place = bisect_left(self.breakpoints, x)
        if place < len(self.breakpoints) and self.breakpoints[place] == x:
            return self.at[place]
        return x if self.lower[place] != self.upper[place] else self.lower[place]


def second_moment(quantizer: PiecewiseQuantizer, x: Fraction) -> Fraction:
    """Return E[Q(x)^2], exactly."""
    place = bisect_left(quantizer.breakpoints, x)
    if place < len(quantizer.breakpoints) and quantizer.breakpoints[place] == x:
        return quantizer.at[place] ** 2
    lower, upper = quantizer.lower[place], quantizer.upper[place]
    return (lower + upper) * x - lower * upper if lower != upper else lower**2


@cache
def _derive(element: ElementFormat, rounding: Rounding) -> PiecewiseQuantizer:
    last, encode = element.max_code, make_encode(FLOATS["float64"], element, rounding, Overflow.SATURATE)

    def rounded(x: Fraction) -> Fraction:
        code = int(encode(int(np.float64(x).view(np.int64)), E8M0.bias, 0))
        return Fraction(element.value(code))

    values = [_unbounded_value(element, code) for code in range(last + 1)]
    signed = [-value for value in reversed(values[1:])] + values
    # Candidates for breakpoints are all values and, in modes that round to nearest, all midpoints.
    rows = [(signed[0], signed[0])]  # The piece before the first breakpoint.
    points, at = [], []
    for place, value in enumerate(signed):
        points.append(value)
        at.append(value)
        if value == signed[-1]:
            rows.append((value, value))  # Every mode saturates beyond the last value.
            break
        beyond = signed[place + 1]
        if rounding.is_stochastic:
            rows.append((value, beyond))
            continue
        # Round the points at 1/4, 1/2 and 3/4 of the gap between the two values.
        quarter = (beyond - value) / 4
        low, middle, high = (rounded(value + i * quarter) for i in (1, 2, 3))
        rows.append((low, low))
        if low != high:
            rows.append((high, high))
            points.append(value + 2 * quarter)
            at.append(middle)
    breaks = [
        index
        for index, value in enumerate(at)
        # A point is not a breakpoint if Q is constant around the point.
        if not rows[index] == rows[index + 1] == (value, value)
    ]
    levels = [rows[index] for index in breaks] + [rows[-1]]
    return PiecewiseQuantizer(
        element,
        rounding,
        tuple(points[place] for place in breaks),
        tuple(lower for lower, _ in levels),
        tuple(upper for _, upper in levels),
        tuple(at[place] for place in breaks),
    )
