"""Exact references for kernels of asymmetric scaling: exact sums that are rounded once."""

from __future__ import annotations

from fractions import Fraction

from proofs.specs.rationals import (
    FLOATS,
    SCALE_NAN,
    Element,
    Float,
    element_value,
    magnitude_value,
    power_of_two,
    round_to_float,
    shared_scale,
)

OFFSET = FLOATS["float16"]

#: A number, as a pair (is it negative?, magnitude). The magnitude may be "infinity" or "nan". Zeros
#: have a sign.
Number = tuple[bool, Fraction | str]


def float_value(source: Float, pattern: int) -> Number:
    """Return the number that an unsigned bit pattern represents."""
    negative, magnitude = pattern >= source.sign_bit, pattern % source.sign_bit
    if magnitude > source.infinity:
        return negative, "nan"
    return negative, "infinity" if magnitude == source.infinity else magnitude_value(source, magnitude)


def negated(number: Number) -> Number:
    """Return the number with the opposite sign."""
    return not number[0], number[1]


def total(a: Number, b: Number) -> Number:
    """Return the exact sum; a sum of zero is +0 unless both terms are -0."""
    if "nan" in (a[1], b[1]) or (a[1] == b[1] == "infinity" and a[0] != b[0]):
        return False, "nan"
    for number in (a, b):
        if number[1] == "infinity":
            return number
    signed = [-Fraction(magnitude) if negative else Fraction(magnitude) for negative, magnitude in (a, b)]
    value = sum(signed, Fraction(0))
    return (value < 0 if value else a[0] and b[0]), abs(value)


def rounded(target: Float, number: Number, saturate: bool = False) -> int:
    """Return the unsigned bit pattern of the number, rounded once to nearest even."""
    negative, magnitude = number
    if magnitude == "nan":
        return target.nan
    infinite = target.largest if saturate else target.infinity
    pattern = infinite if isinstance(magnitude, str) else round_to_float(target, magnitude, saturate)
    return pattern | (target.sign_bit if negative else 0)


def times(number: Number, factor: Fraction) -> Number:
    """Return the product with a positive factor."""
    negative, magnitude = number
    return negative, magnitude if isinstance(magnitude, str) else magnitude * factor


def midpoint(source: Float, largest: int, smallest: int) -> int:
    """Return the bit pattern in float16 of (largest + smallest) / 2, with saturation."""
    both = total(float_value(source, largest), float_value(source, smallest))
    return rounded(OFFSET, times(both, Fraction(1, 2)), saturate=True)


def difference(source: Float, target: Float, x: int, offset: int) -> int:
    """Return the bit pattern of x - offset, rounded to the format `target`."""
    return rounded(target, total(float_value(source, x), negated(float_value(OFFSET, offset))))


def half_range_scale(source: Float, element: Element, rule: str, largest: int, smallest: int) -> int:
    """Return the scale code of a block whose largest magnitude is (largest - smallest) / 2.

    `largest` and `smallest` are bit patterns of finite numbers.
    """
    _, magnitude = total(float_value(source, largest), negated(float_value(source, smallest)))
    return shared_scale(element, rule, Fraction(magnitude) / 2)


def decode_offset(element: Element, target: Float, code: int, scale: int, offset: int) -> int:
    """Return the bit pattern of element value * 2**(scale - 127) + offset, rounded to `target`."""
    if scale == SCALE_NAN:
        return target.nan
    product = times(element_value(element, code), power_of_two(scale - 127))
    return rounded(target, total(product, float_value(OFFSET, offset)))
