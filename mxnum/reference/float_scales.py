"""Compute float scales and tensor scales, and decode scale codes."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from mxnum import errors
from mxnum.formats import ElementFormat, MXFormat, ScaleFormat
from mxnum.modes import FloatScaleRule, Overflow, Rounding
from mxnum.reference.numbers import (
    BIAS,
    FLOAT32,
    NAN,
    SCALE_NAN,
    Exact,
    decode_exact,
    layout,
    round_to,
    times,
    two_to,
)


def largest(e: ElementFormat) -> Fraction:
    """Return the largest finite number of a format."""
    return decode_exact(layout(e).largest, e).magnitude


def scale_number(code: int, scale: ScaleFormat) -> Exact:
    """Return a scale code's value: 2**(code - 127) in E8M0, otherwise the float with this code.

    The E8M0 code 0xFF is NaN. Raise ValueError if the sign bit of a float is set.
    """
    if scale.number is None:
        code = errors.integer("scales", code, 0, 255)
        return NAN if code == SCALE_NAN else Exact("finite", False, two_to(code - BIAS))
    return decode_exact(errors.integer("scales", code, 0, layout(scale.number).sign - 1), scale.number)


def nan_of(scale: ScaleFormat) -> int:
    """Return the NaN code that quantization writes."""
    nan = SCALE_NAN if scale.number is None else layout(scale.number).nan
    assert nan is not None
    return nan


def divided(x: Exact, factor: Exact) -> Exact:
    """Return x / factor, for a factor that is not NaN.

    A finite number divided by zero or infinity becomes a zero with the number's sign.
    """
    if x.kind != "finite":
        return x
    if factor.kind == "inf" or factor.magnitude == 0:
        return Exact("finite", x.negative)
    return Exact("finite", x.negative, x.magnitude / factor.magnitude)


def tensor_scale(numbers: Sequence[Fraction], fmt: MXFormat) -> Fraction:
    """Return t = A / (largest element * largest scale), rounded to nearest even in float32.

    A is the largest magnitude of all numbers. If A is 0, t is 1. The result is always positive and
    finite. A quotient that would round to 0 becomes the smallest positive float32 number, and a
    quotient that is too large becomes the largest float32 number.
    """
    a = max((abs(v) for v in numbers), default=Fraction(0))
    if a == 0:
        return Fraction(1)
    assert fmt.scale.number is not None
    quotient = a / (largest(fmt.element) * largest(fmt.scale.number))
    code = round_to(Exact("finite", False, quotient), FLOAT32, overflow=Overflow.SATURATE)
    return decode_exact(max(code, 1), FLOAT32).magnitude


def float_scale(numbers: Sequence[Fraction], fmt: MXFormat, rule: FloatScaleRule, t: Fraction) -> int:
    """Return the code of a block's scale; t is the tensor scale, or 1 if there is none.

    `numbers` are the finite numbers of the block, and m is their largest magnitude. The quotient q
    = m / (largest element * t) is rounded once to the format of the scale. If q is beyond the scale
    format's largest number, the scale is this largest number. The two `four_over_six` rules try two
    scales: the scale for q, and the scale for 3/2 q. With each scale, the rules round all numbers
    to nearest even. They choose the scale with the smaller sum of absolute or squared errors. If
    the sums are equal, they choose the scale for q.
    """
    e, number = fmt.element, fmt.scale.number
    assert number is not None
    m = max((abs(v) for v in numbers), default=Fraction(0))
    q = m / (largest(e) * t)

    def rounded(q: Fraction) -> int:
        mode = Rounding.RTP if rule.rounds_up else Rounding.RNE
        return round_to(Exact("finite", False, q), number, mode, Overflow.SATURATE)

    def error(scale: int) -> Fraction:
        factor = times(scale_number(scale, fmt.scale), Exact("finite", False, t))
        total = Fraction(0)
        for v in numbers:
            code = round_to(divided(Exact("finite", v < 0, abs(v)), factor), e, Rounding.RNE, Overflow.SATURATE)
            total += abs(v - times(decode_exact(code, e), factor).number) ** rule.error_power
        return total

    six = rounded(q)
    if rule.error_power == 0:
        return six
    errors.require(e.name == "e2m1", "scale_rule", "a rule that accepts elements other than e2m1", str(rule))
    four = rounded(q * Fraction(3, 2))
    return four if error(four) < error(six) else six
