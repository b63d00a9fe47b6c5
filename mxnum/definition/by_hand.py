"""Convert a number to a code one step at a time, in the standard's words. Read this file first.

`encode` does the work of the modules `convert`, `pack` and `unpack`, and `scale_exponent` does the
work of the module `scale`. `by_hand` computes as a person would on paper: with exact fractions, one
branch for each case, and one number at a time. `by_hand` is written for readers; in this library,
only `emit.page` calls it. Tests check that `by_hand` gives the same results as `convert` and
`scale`.
"""

from __future__ import annotations

from fractions import Fraction
from math import copysign, floor, isinf, isnan
from typing import assert_never

from mxnum.formats import ElementFormat
from mxnum.modes import Overflow, Rounding, ScaleRule


def encode(
    x: float, element: ElementFormat, rounding: Rounding, overflow: Overflow, scale: int = 0, random: int = 0
) -> int:
    """Return the code of x / 2**scale.

    Only stochastic rounding reads `random`, an integer below 2**30.
    """
    negative = copysign(1.0, x) < 0  # `copysign` also reads the sign of a zero or NaN.
    if isnan(x):  # Without a NaN code, NaN becomes the largest number.
        if element.nan_code is None:
            return element.max_code
        return _with_sign(element.nan_code, negative, element)
    if isinf(x):
        return _with_sign(_beyond(negative, element, rounding, overflow, is_infinite=True), negative, element)
    y = abs(Fraction(x)) / Fraction(2) ** scale

    # 1. The exponent: the largest e with 2**e <= y, but at least emin. A number below 2**emin is
    #    subnormal: it has the exponent emin and no leading 1.
    exponent = max(_floor_log2(y), element.emin) if y else element.emin

    # 2. The significand is y in units of the last place, which is 2**(exponent - m).
    m = element.mantissa_bits
    significand = y / Fraction(2) ** (exponent - m)

    # 3. The code of the nearest number towards zero. Codes count the magnitudes from 0 up: first
    #    the subnormal magnitudes, then 2**m magnitudes for each exponent. The next code always
    #    means the next larger magnitude, even where the exponent changes.
    kept = floor(significand)
    is_normal = kept >= 2**m
    code = ((exponent - element.emin + 1) * 2**m + kept - 2**m) if is_normal else kept

    # 4. Rounding: keep this code, or take the next code.
    rest = significand - kept
    if goes_away(rest, code, negative, rounding, random):
        code += 1

    # 5. Overflow: replace a code above the code of the largest number.
    if code > element.max_code:
        code = _beyond(negative, element, rounding, overflow)

    # 6. The sign: set the top bit of the code, or negate the code in two's complement.
    return _with_sign(code, negative, element)


def goes_away(rest: Fraction, code: int, negative: bool, rounding: Rounding, random: int) -> bool:
    """Return True if a magnitude is rounded up to the next code.

    The magnitude is the value of `code` plus `rest` times the distance to the next value.
    """
    half = Fraction(1, 2)
    match rounding:
        case Rounding.RNE:  # to nearest; a tie goes to the even code
            return rest > half or (rest == half and code % 2 == 1)
        case Rounding.RNA:  # to nearest; a tie goes away from zero
            return rest >= half
        case Rounding.RTZ:  # towards zero
            return False
        case Rounding.RTP:  # towards plus infinity
            return rest > 0 and not negative
        case Rounding.RTN:  # towards minus infinity
            return rest > 0 and negative
        case Rounding.RTO:  # a number between two codes gets the odd code
            return rest > 0 and code % 2 == 0
        case Rounding.SR:  # up with probability floor(rest * 2**30) / 2**30
            return floor(rest * 2**30) + random >= 2**30
        case _:
            assert_never(rounding)


def _beyond(
    negative: bool, element: ElementFormat, rounding: Rounding, overflow: Overflow, is_infinite: bool = False
) -> int:
    """Return the code for a magnitude that is too large: the largest number, infinity or NaN.

    An element without infinity gets NaN instead of infinity.
    """
    special = element.nan_code if element.infinity_code is None else element.infinity_code
    if overflow.saturates or special is None:
        return element.max_code
    stays_finite = {
        Rounding.RTZ: True, Rounding.RTO: True, Rounding.RTP: negative, Rounding.RTN: not negative,
    }.get(rounding, False)  # fmt: skip
    return element.max_code if stays_finite and not is_infinite else special


def _with_sign(code: int, negative: bool, element: ElementFormat) -> int:
    if element.integer:
        return (-code if negative else code) & ((1 << element.bits) - 1)
    return code | (negative << (element.bits - 1))


def scale_exponent(largest: float, element: ElementFormat, rule: ScaleRule) -> int:
    """Return the exponent s of the scale 2**s of a block.

    `largest` is the largest finite magnitude of the block.
    """
    if largest == 0:
        return -127
    a = Fraction(largest)
    exponent = _floor_log2(a)
    f = a / Fraction(2) ** exponent  # a = f * 2**exponent, 1 <= f < 2
    largest_f = Fraction(element.max) / Fraction(2) ** element.emax
    is_one_more = {
        ScaleRule.FLOOR: False,  # OCP MX v1.0, section 6.3
        ScaleRule.CEIL: f > 1,
        ScaleRule.EVEN: f >= 2 - Fraction(1, 2 ** (element.mantissa_bits + 1)),
        ScaleRule.RCEIL: f > largest_f,
        ScaleRule.HALF_UP: f >= Fraction(7, 4),
        ScaleRule.FLOOR_PLUS_ONE: True,
    }[rule]
    return min(max(exponent - element.emax + is_one_more, -127), 127)


def _floor_log2(y: Fraction) -> int:
    """Return the largest e with 2**e <= y, exactly."""
    e = y.numerator.bit_length() - y.denominator.bit_length()
    return e if Fraction(2) ** e <= y else e - 1
