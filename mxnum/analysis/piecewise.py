"""The quantizer of an element format as a piecewise function of a real number.

It is derived from the format's description. Deterministic modes are piecewise constant, with one
boundary between neighbouring codes. Stochastic rounding chooses between two constants, with a mean
that is the number itself.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from typing import assert_never

from mxnum import errors, formats
from mxnum.formats import ElementFormat, MXFormat
from mxnum.modes import Rounding


def element_of(format: str | MXFormat | ElementFormat) -> ElementFormat:
    """Return the element of a format with E8M0 scales, or of the name of a format or element."""
    if isinstance(format, MXFormat) or (isinstance(format, str) and format not in formats.ELEMENTS):
        return formats.get_e8m0(format, "mxnum.analysis").element
    return formats.element(format)


def _unbounded_value(element: ElementFormat, code: int) -> Fraction:
    """Return the magnitude of the code k * 2**m + q.

    The exponent continues past the largest finite value.
    """
    step, mantissa = divmod(code, 1 << element.mantissa_bits)
    unit = Fraction(2) ** (element.emin - element.mantissa_bits)
    return mantissa * unit if step == 0 else ((1 << element.mantissa_bits) + mantissa) * unit * 2 ** (step - 1)


@dataclass(frozen=True)
class PiecewiseQuantizer:
    """Q(x) at scale 1 with saturation, for every real x.

    Between `breakpoints` i-1 and i the result is ``lower[i]`` or ``upper[i]``. They differ only for
    stochastic rounding (with infinitely many random bits), where the mean is x. At breakpoint i the
    result is ``at[i]``.
    """

    element: ElementFormat
    rounding: Rounding
    breakpoints: tuple[Fraction, ...]
    lower: tuple[Fraction, ...]
    upper: tuple[Fraction, ...]
    at: tuple[Fraction, ...]

    @classmethod
    def of(cls, element: str | ElementFormat | MXFormat, rounding: str | Rounding = "rne") -> PiecewiseQuantizer:
        """Return the quantizer of an element, or of a format's element, in a rounding mode."""
        resolved = element_of(element)
        errors.require(resolved.bits <= 8, "element", "at most 8 bits wide", resolved.name)
        return _derive(resolved, errors.choose_member("rounding", rounding, Rounding))

    def mean(self, x: Fraction | int) -> Fraction:
        """Return E[Q(x)], exactly; Q(x) itself unless rounding is stochastic."""
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
    last = element.max_code
    values = [_unbounded_value(element, code) for code in range(last + 1)]
    signed = [-value for value in reversed(values[1:])] + values
    # Every value and, for the nearest modes, every midpoint may be a breakpoint.
    rows = [(signed[0], signed[0])]  # the piece before the first breakpoint
    points, at = [], []
    for place, value in enumerate(signed):
        points.append(value)
        at.append(value)
        if value == signed[-1]:
            rows.append((value, value))  # saturation, in every mode
            break
        beyond = signed[place + 1]
        code = abs(place - last)  # the magnitude code of `value`
        match rounding:
            case Rounding.SR:
                rows.append((value, beyond))
            case Rounding.RTO:
                rows.append((value, value) if code % 2 else (beyond, beyond))
            case Rounding.RTN:
                rows.append((value, value))
            case Rounding.RTP:
                rows.append((beyond, beyond))
            case Rounding.RTZ:
                nearer_zero = min(value, beyond, key=abs)
                rows.append((nearer_zero, nearer_zero))
            case Rounding.RNE | Rounding.RNA:
                even = value if code % 2 == 0 else beyond
                rows += [(value, value), (beyond, beyond)]
                points.append((value + beyond) / 2)
                at.append(even if rounding is Rounding.RNE else max(value, beyond, key=abs))
            case _:
                assert_never(rounding)
    breaks = [
        index
        for index, value in enumerate(at)
        # A constant that continues on both sides of a point is no break.
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
