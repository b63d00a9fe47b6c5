"""The exact reference of sweeps and mutants: the standards' tables, and arithmetic on fractions.

This module uses neither `mxnum.formats` nor `mxnum.definition`, and no floating-point operation. So
an error in a format description or a kernel cannot also be in the reference. To round a number, the
reference finds the two table entries on either side of the number, and computes the position of the
number between them. From this position, it chooses one of the two entries.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction

SCALE_NAN = 0xFF
#: The number of bits that stochastic rounding compares, unless a caller asks for fewer bits.
RANDOM_BITS = 30


@dataclass(frozen=True)
class Element:
    """An MX element format, with the values that its standard lists in a table."""

    bits: int
    #: The values of the magnitude codes 0, 1, 2, ... up to the largest finite value.
    magnitudes: tuple[Fraction, ...]
    #: The value that would follow the largest value if the exponent had no upper limit. Under
    #: rounding to nearest, overflow begins half-way from the largest value to `beyond`.
    beyond: Fraction
    #: The number of mantissa bits, which the scale rule "even" needs.
    mantissa_bits: int
    #: The largest power of two among the values: 2**emax.
    top_power: Fraction
    integer: bool = False
    infinity: int | None = None
    nan: int | None = None
    #: All magnitude codes whose value is NaN.
    nans: tuple[int, ...] = ()

    @property
    def largest(self) -> int:
        return len(self.magnitudes) - 1


@dataclass(frozen=True)
class Float:
    """A floating-point type, such as float32.

    The value of a finite magnitude pattern is an integer multiple of 2**`quantum_exponent`.
    """

    bits: int
    fraction_bits: int
    quantum_exponent: int
    infinity: int
    nan: int

    @property
    def sign_bit(self) -> int:
        return 1 << (self.bits - 1)

    @property
    def largest(self) -> int:
        return self.infinity - 1


def _units(unit: Fraction, counts: Iterable[int]) -> tuple[Fraction, ...]:
    return tuple(unit * count for count in counts)


def _halves(*doubled: int) -> tuple[Fraction, ...]:
    return tuple(Fraction(n, 2) for n in doubled)


def _quarters(*fourfold: int) -> tuple[Fraction, ...]:
    return tuple(Fraction(n, 4) for n in fourfold)


#: The elements, from the tables of values in OFP8 v1.0 and OCP MX v1.0; e3m0 and int4 are
#: extensions.
ELEMENTS = {
    "e4m3": Element(
        bits=8,
        magnitudes=_units(
            Fraction(1, 512),
            [*range(16), *(m << k for k in range(1, 14) for m in range(8, 16)), *(m << 14 for m in range(8, 15))],
        ),
        beyond=Fraction(480),
        mantissa_bits=3,
        top_power=Fraction(256),
        nan=0x7F,
        nans=(0x7F,),
    ),
    "e5m2": Element(
        bits=8,
        magnitudes=_units(Fraction(1, 65536), [*range(8), *(m << k for k in range(1, 30) for m in range(4, 8))]),
        beyond=Fraction(65536),
        mantissa_bits=2,
        top_power=Fraction(32768),
        infinity=0x7C,
        nan=0x7F,
        nans=(0x7D, 0x7E, 0x7F),
    ),
    "e3m2": Element(
        bits=6,
        magnitudes=_units(Fraction(1, 16), [*range(8), *(m << k for k in range(1, 7) for m in range(4, 8))]),
        beyond=Fraction(32),
        mantissa_bits=2,
        top_power=Fraction(16),
    ),
    "e2m3": Element(
        bits=6,
        magnitudes=_units(Fraction(1, 8), [*range(16), *range(16, 32, 2), *range(32, 64, 4)]),
        beyond=Fraction(8),
        mantissa_bits=3,
        top_power=Fraction(4),
    ),
    "e2m1": Element(
        bits=4,
        magnitudes=_halves(0, 1, 2, 3, 4, 6, 8, 12),
        beyond=Fraction(8),
        mantissa_bits=1,
        top_power=Fraction(4),
    ),
    "int8": Element(
        bits=8,
        magnitudes=_units(Fraction(1, 64), range(128)),
        beyond=Fraction(2),
        mantissa_bits=6,
        top_power=Fraction(1),
        integer=True,
    ),
    "e3m0": Element(
        bits=4,
        magnitudes=_quarters(0, 1, 2, 4, 8, 16, 32, 64),
        beyond=Fraction(32),
        mantissa_bits=0,
        top_power=Fraction(16),
    ),
    "int4": Element(
        bits=4,
        magnitudes=_quarters(*range(8)),
        beyond=Fraction(2),
        mantissa_bits=2,
        top_power=Fraction(1),
        integer=True,
    ),
}

FLOATS = {
    "float64": Float(64, 52, -1074, infinity=0x7FF0000000000000, nan=0x7FF8000000000000),
    "float32": Float(32, 23, -149, infinity=0x7F800000, nan=0x7FC00000),
    "bfloat16": Float(16, 7, -133, infinity=0x7F80, nan=0x7FC0),
    "float16": Float(16, 10, -24, infinity=0x7C00, nan=0x7E00),
}


def power_of_two(exponent: int) -> Fraction:
    """Return 2**exponent."""
    return Fraction(1 << exponent) if exponent >= 0 else Fraction(1, 1 << -exponent)


def magnitude_value(source: Float, magnitude: int) -> Fraction:
    """Return the value of a finite magnitude pattern."""
    field, fraction = divmod(magnitude, 1 << source.fraction_bits)
    units = fraction if field == 0 else ((1 << source.fraction_bits) + fraction) << (field - 1)
    return units * power_of_two(source.quantum_exponent)


def floor_magnitude(source: Float, numerator: int, denominator: int, exponent: int = 0) -> tuple[int, bool]:
    """Return the largest finite magnitude pattern whose value is at most a number.

    The number is numerator / denominator * 2**exponent. The second result is True if the value
    equals the number.

    The number is first rounded down to an integer n times the smallest subnormal number. The
    significand is the leading `fraction_bits` + 1 bits of n; the lower `steps` bits of n are
    dropped. The pattern is `steps` * 2**fraction_bits + significand. This addition carries the
    leading bit of a normal number's significand into the exponent field, which becomes `steps` + 1.
    """
    shift = exponent - source.quantum_exponent
    if shift >= 0:
        units, rest = divmod(numerator << shift, denominator)
    else:
        units, rest = divmod(numerator, denominator << -shift)
    steps = max(0, units.bit_length() - source.fraction_bits - 1)
    significand = units >> steps
    pattern = (steps << source.fraction_bits) + significand
    if pattern > source.largest:
        return source.largest, False
    return pattern, rest == 0 and significand << steps == units


def round_to_float(target: Float, number: Fraction, saturate: bool = False) -> int:
    """Return the magnitude pattern of |number| rounded once to nearest even.

    Overflow gives infinity, or the largest finite number if `saturate`.
    """
    number = abs(number)
    below, exact = floor_magnitude(target, number.numerator, number.denominator)
    if exact:
        return below
    value = magnitude_value(target, below)
    if below < target.largest:
        above = magnitude_value(target, below + 1)
    # The gap above the largest value is as wide as the gap below it.
    else:
        above = 2 * value - magnitude_value(target, below - 1)
    twice = 2 * number
    up = twice > value + above or (twice == value + above and below % 2 == 1)
    return below if saturate and below == target.largest else below + up


def encode(
    source: Float,
    element: Element,
    rounding: str,
    overflow: str,
    pattern: int,
    scale: int,
    random: int = 0,
    random_bits: int = RANDOM_BITS,
) -> int:
    """Return the code of an unsigned bit pattern of `source` under a scale code."""
    if scale == SCALE_NAN:
        return 0
    negative, magnitude = pattern >= source.sign_bit, pattern % source.sign_bit
    if magnitude > source.infinity:
        return element.largest if element.nan is None else with_sign(element, element.nan, negative)
    if magnitude == source.infinity:
        return with_sign(element, overflowed(element, "rne", overflow, negative), negative)
    number = magnitude_value(source, magnitude) / power_of_two(scale - 127)
    position = rounded_position(element, rounding, negative, number, random, random_bits)
    if position > element.largest:
        position = overflowed(element, rounding, overflow, negative)
    return with_sign(element, position, negative)


def rounded_position(
    element: Element, rounding: str, negative: bool, number: Fraction, random: int, random_bits: int
) -> int:
    """Return the magnitude code of the rounded number, before the overflow mode applies.

    The code is `largest` + 1 for a number that rounds beyond the largest value.
    """
    if number >= element.beyond:
        return element.largest + 1
    table = (*element.magnitudes, element.beyond)
    low = bisect_right(table, number) - 1
    fraction = (number - table[low]) / (table[low + 1] - table[low])
    return low + (fraction > 0 and rounds_up(rounding, negative, low % 2 == 1, fraction, random, random_bits))


def rounds_up(
    rounding: str, negative: bool, is_odd: bool, fraction: Fraction, random: int = 0, random_bits: int = RANDOM_BITS
) -> bool:
    """Return True if a magnitude between two neighbouring values rounds to the larger value.

    `fraction` is the position of the magnitude between the two values, from 0 to 1. `is_odd` is
    True if the code of the smaller value is odd.
    """
    match rounding:
        case "rne":
            return fraction > Fraction(1, 2) or (fraction == Fraction(1, 2) and is_odd)
        case "rna":
            return fraction >= Fraction(1, 2)
        case "rtz":
            return False
        case "rtp":
            return not negative
        case "rtn":
            return negative
        case "rto":
            return not is_odd
        case "sr":
            return (fraction.numerator << random_bits) // fraction.denominator + random >= 1 << random_bits
        case _:
            raise ValueError(rounding)


def overflowed(element: Element, rounding: str, overflow: str, negative: bool) -> int:
    """Return the magnitude code of numbers beyond the largest value, under an overflow mode."""
    special = element.nan if element.infinity is None else element.infinity
    if overflow == "saturate" or special is None or rounding in ("rtz", "rto"):
        return element.largest
    if rounding == ("rtp" if negative else "rtn"):
        return element.largest
    return special


def with_sign(element: Element, magnitude_code: int, negative: bool) -> int:
    """Return the code that has the given sign and magnitude code."""
    if not element.integer:
        return magnitude_code + (negative << (element.bits - 1))
    return -magnitude_code % (1 << element.bits) if negative else magnitude_code


def element_value(element: Element, code: int) -> tuple[bool, Fraction | str]:
    """Return (negative, magnitude) of a code; the magnitude may be "infinity" or "nan"."""
    negative, magnitude = divmod(code, 1 << (element.bits - 1))
    if element.integer:
        lowest = element.magnitudes[1]  # the smallest positive value of an integer element
        return negative == 1, ((1 << (element.bits - 1)) - magnitude if negative else magnitude) * lowest
    if magnitude in element.nans:
        return negative == 1, "nan"
    return negative == 1, "infinity" if magnitude == element.infinity else element.magnitudes[magnitude]


def decode(element: Element, target: Float, code: int, scale: int) -> int:
    """Return the unsigned bit pattern of a code under a scale code, rounded to nearest even."""
    negative, magnitude = element_value(element, code)
    if scale == SCALE_NAN or magnitude == "nan":
        return target.nan
    sign = target.sign_bit if negative else 0
    if isinstance(magnitude, str):
        return sign | target.infinity
    return sign | round_to_float(target, magnitude * power_of_two(scale - 127))


def scale_threshold(element: Element, rule: str, code: int) -> tuple[Fraction, bool]:
    """Return (t, inclusive), where t is the threshold of magnitudes for a scale code.

    The scale code of a block with largest magnitude A is at least `code` if A > t, or if A = t and
    `inclusive` is True. `code` is from 1 to 254. The rule `floor` chooses the scale s with
    2**emax <= A / s < 2**(emax+1). For every rule, t separates the magnitudes with scale code
    `code` - 1 from the magnitudes with scale code `code`.
    """
    lower = power_of_two(code - 1 - 127)
    match rule:
        case "floor":
            return element.top_power * 2 * lower, True
        case "ceil":
            return element.top_power * lower, False
        case "even":
            return element.top_power * lower * (2 - Fraction(1, 2 << element.mantissa_bits)), True
        case "rceil":
            return element.magnitudes[-1] * lower, False
        case "half_up":
            return element.top_power * lower * Fraction(7, 4), True
        case "floor_plus_one":
            return element.top_power * lower, True
    raise ValueError(rule)


def shared_scale(element: Element, rule: str, amax: Fraction) -> int:
    """Return the scale code for a largest magnitude, by trying all codes from the largest down."""
    for code in range(254, 0, -1):
        threshold, inclusive = scale_threshold(element, rule, code)
        if amax > threshold or (inclusive and amax == threshold):
            return code
    return 0
