"""Exact numbers, their rounding to a format, and the values of codes and E8M0 scales."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from typing import Any, NamedTuple, TypeAlias

from mxnum import errors, formats
from mxnum.formats import FLOATS, ElementFormat
from mxnum.modes import Overflow, Rounding, ScaleRule

Element: TypeAlias = str | ElementFormat

BIAS, SCALE_NAN = 127, 255  # E8M0: a scale code means 2**(code - 127), or NaN
FLOAT16, FLOAT32, FLOAT64 = FLOATS["float16"], FLOATS["float32"], FLOATS["float64"]


@dataclass(frozen=True)
class Exact:
    """An exact number: `kind` is finite, inf or nan; only a finite number has a `magnitude`.

    Zeros and NaN have a sign, too.
    """

    kind: str
    negative: bool = False
    magnitude: Fraction = Fraction(0)

    @property
    def number(self) -> Fraction:
        """The signed value of a finite number."""
        return -self.magnitude if self.negative else self.magnitude


ZERO, NAN = Exact("finite"), Exact("nan")


def exact(x: float | Fraction) -> Exact:
    """Return a Python float or a Fraction as an `Exact` with exactly this value."""
    if isinstance(x, Fraction):
        return Exact("finite", x < 0, abs(x))
    negative = math.copysign(1.0, x) < 0
    if not math.isfinite(x):
        return Exact("nan" if math.isnan(x) else "inf", negative)
    return Exact("finite", negative, abs(Fraction(float(x))))


def times(a: Exact, b: Exact) -> Exact:
    """Return the exact product; 0 * Inf is NaN."""
    kinds, negative = {a.kind, b.kind}, a.negative != b.negative
    if "nan" in kinds or ("inf" in kinds and any(v.kind == "finite" and v.magnitude == 0 for v in (a, b))):
        return NAN
    return Exact("inf" if "inf" in kinds else "finite", negative, a.magnitude * b.magnitude)


def plus(a: Exact, b: Exact) -> Exact:
    """Return the exact sum; Inf - Inf is NaN.

    A sum of exactly zero is +0, unless both terms are -0 (as in IEEE 754 with RNE).
    """
    kinds = [a.kind, b.kind]
    if "nan" in kinds or (kinds == ["inf", "inf"] and a.negative != b.negative):
        return NAN
    if "inf" in kinds:
        return a if a.kind == "inf" else b
    total = a.number + b.number
    return Exact("finite", a.negative and b.negative if total == 0 else total < 0, abs(total))


def two_to(exponent: int) -> Fraction:
    """Return 2**exponent."""
    return Fraction(2) ** exponent


def scaled(x: Exact, exponent: int) -> Exact:
    """Return x * 2**exponent; a NaN keeps its sign, because some formats encode this sign."""
    return x if x.kind == "nan" else times(x, Exact("finite", False, two_to(exponent)))


def floor_log2(v: Fraction) -> int:
    """Return the integer E with 2**E <= v < 2**(E+1).

    The bit lengths of the numerator and the denominator leave two candidates for E, and a
    comparison with v selects the right candidate.
    """
    candidate = v.numerator.bit_length() - v.denominator.bit_length()
    return candidate if two_to(candidate) <= v else candidate - 1


class Layout(NamedTuple):
    """The special codes of a format, and the exponent of its smallest normal numbers."""

    sign: int  # The sign bit as a number; codes below it are positive.
    largest: int  # The code of the largest finite number.
    infinity: int | None
    nan: int | None  # The NaN code that quantization writes, with the sign bit clear.
    emin: int  # The exponent of the smallest normal number; 0 for an integer format.


@cache
def layout(e: ElementFormat) -> Layout:
    """Return the special codes of a format (see `Layout`).

    If the format has infinity or NaN, their codes have the largest exponent.
    """
    mantissas: int = 2**e.mantissa_bits
    sign: int = 2**e.exponent_bits * mantissas
    emin = 0 if e.integer else 1 - e.bias
    match e.specials:
        case "ieee":
            infinity = sign - mantissas
            nan = infinity + mantissas // 2 if e.canonical_nan else sign - 1
            return Layout(sign, infinity - 1, infinity, nan, emin)
        case "nan":
            return Layout(sign, sign - 2, None, sign - 1, emin)
        case _:
            return Layout(sign, sign - 1, None, None, emin)


def decode_exact(code: int, element: Element) -> Exact:
    """Return the number that an element code represents, without a scale.

    A float code represents (-1)^S * 2^(E-bias) * 1.M, or a subnormal number (-1)^S * 2^(1-bias) *
    0.M, or infinity or NaN. An integer code represents its two's complement integer times 2**-m,
    where m is the number of mantissa bits; in INT8, this value is the integer / 64. The INT8 code
    0x80 represents -2, although quantization never writes this code.
    """
    e = formats.element(element)
    sign, largest, infinity, _, emin = layout(e)
    code = errors.integer("code", code, 0, 2 * sign - 1)
    if e.integer:
        return exact((code - 2 * sign if code >= sign else code) * two_to(-e.mantissa_bits))
    negative, magnitude = code >= sign, code % sign
    if magnitude > largest:
        return Exact("inf" if magnitude == infinity else "nan", negative)
    step, mantissa = divmod(magnitude, 2**e.mantissa_bits)
    fraction = mantissa * two_to(-e.mantissa_bits)
    value = fraction * two_to(emin) if step == 0 else (1 + fraction) * two_to(emin + step - 1)
    return Exact("finite", negative, value)


def goes_away(rounding: Rounding, negative: bool, below: int, delta: Fraction, random: int, sr_bits: int) -> bool:
    """Return True if a magnitude is rounded away from zero.

    The magnitude is the value of code `below` plus `delta` times the distance to the next value.
    """
    half = Fraction(1, 2)
    choice = {
        Rounding.RNE: delta > half or (delta == half and below % 2 == 1),
        Rounding.RNA: delta >= half,
        Rounding.RTZ: False,
        Rounding.RTP: not negative,
        Rounding.RTN: negative,
        Rounding.RTO: below % 2 == 0,
        Rounding.SR: math.floor(delta * 2**sr_bits) + random >= 2**sr_bits,
    }[rounding]
    return delta != 0 and choice


def round_to(
    x: Exact, e: ElementFormat, rounding: Rounding = Rounding.RNE, overflow: Overflow = Overflow.IEEE, random: int = 0,
    sr_bits: int = 30,
) -> int:  # fmt: skip
    """Return the code of x in format e.

    The codes of positive numbers count the representable magnitudes upward from zero. So a code is
    (exponent - emin) * 2**m + significand, where m is the number of mantissa bits, and the
    significand of a normal number includes the leading 1. A number is first rounded as if there
    were no largest exponent; overflow is handled afterwards.
    """
    sign, largest, infinity, nan, emin = layout(e)

    def signed(code: int) -> int:
        if e.integer:  # in two's complement there is no -0
            return (2 * sign - code) % (2 * sign) if x.negative else code
        positive = not x.negative or (e.canonical_nan and code == nan)
        return code if positive else code + sign

    if x.kind == "nan":
        return largest if nan is None else signed(nan)
    if x.kind == "finite":
        exponent = max(floor_log2(x.magnitude), emin) if x.magnitude else emin
        steps = x.magnitude / two_to(exponent - e.mantissa_bits)
        significand = math.floor(steps)
        code: int = (exponent - emin) * 2**e.mantissa_bits + significand
        code += goes_away(rounding, x.negative, code, steps - significand, random, sr_bits)
        if code <= largest:
            return signed(code)

    # Here x is infinite, or x is rounded to a value beyond the largest finite number.
    beyond = {Overflow.SATURATE: None, Overflow.IEEE: nan if infinity is None else infinity}[overflow]
    stays = {
        Rounding.RNE: False, Rounding.RNA: False, Rounding.SR: False, Rounding.RTZ: True, Rounding.RTO: True,
        Rounding.RTP: x.negative, Rounding.RTN: not x.negative,
    }[rounding]  # fmt: skip
    return signed(largest if beyond is None or (x.kind == "finite" and stays) else beyond)


def to(x: Exact, e: ElementFormat) -> Exact:
    """Return x rounded once to a float format, by RNE."""
    return decode_exact(round_to(x, e), e)


def random_of(rounding: Rounding, random_bits: Any, sr_bits: int) -> int:
    """Return R, the low `sr_bits` bits of the random word; 0 unless rounding is stochastic."""
    errors.integer("sr_bits", sr_bits, 1, 30)
    if not rounding.is_stochastic:
        return 0
    errors.require(random_bits is not None, "random_bits", "given with rounding='sr'", random_bits)
    return int(errors.integer("random_bits", random_bits, 0, 2**32 - 1) % 2**sr_bits)


def encode(
    x: float | Fraction,
    element: Element,
    *,
    rounding: str = "rne",
    overflow: str = "saturate",
    scale: int = BIAS,
    random_bits: int | None = None,
    sr_bits: int = 30,
) -> int:
    """Return the code of x / 2**(scale-127), which is computed exactly and rounded once.

    The quotient is rounded as if there were no largest exponent. If the result is beyond the
    largest finite number, `overflow` decides which code is returned. A result of zero keeps the
    sign of x. NaN gives the NaN code, or +max if the element has no NaN. The scale code 255 (NaN)
    gives code 0, because the elements of a NaN block have no meaning. The element may also be
    float64, float32, bfloat16 or float16. If the element is a float type and `overflow` is
    ``"ieee"``, `encode` is the ordinary conversion between float types.
    """
    mode = errors.choose_member("rounding", rounding, Rounding)
    policy = errors.choose_member("overflow", overflow, Overflow)
    random = random_of(mode, random_bits, sr_bits)
    scale = errors.integer("scale", scale, 0, 255)
    if scale == SCALE_NAN:
        return 0
    return round_to(scaled(exact(x), BIAS - scale), formats.element(element), mode, policy, random, sr_bits)


def meaning(element: Exact, scale: int, offset: Exact | None = None) -> Exact:
    """Return the exact value of scale * element + offset, or NaN if the scale is NaN."""
    scale = errors.integer("scale", scale, 0, 255)
    if scale == SCALE_NAN:
        return NAN
    value = scaled(element, scale - BIAS)
    return value if offset is None else plus(value, offset)


def decode(code: int, element: Element, *, dtype: str = "float64", scale: int = BIAS) -> int:
    """Return the bit pattern in `dtype` of scale times element, computed exactly and rounded once.

    Rounding is RNE. Every NaN becomes the NaN 0x7FC00000 in float32, or its equivalent in `dtype`,
    and -0 keeps its sign. A product too large for `dtype` becomes infinity. In float64, every
    product is exact unless the element is float64.
    """
    return round_to(meaning(decode_exact(code, element), scale), float_format(dtype))


def shared_scale(values: Iterable[float | Fraction], element: Element, *, scale_rule: str = "floor") -> int:
    """Return the E8M0 code of the scale of a block that holds `values`.

    The block's largest finite magnitude is A = f * 2**E with 1 <= f < 2, and emax is the exponent
    of the largest element. The rule `floor`, of section 6.3 of OCP MX v1.0, chooses the exponent E
    - emax; numbers near A can then saturate. Other rules add one to this exponent: `ceil` if f > 1,
    `even` if f rounds to 2 in the element's mantissa bits, `half_up` if f >= 7/4, and
    `floor_plus_one` always. `rceil` chooses the least exponent for which A / 2**exponent does not
    exceed the largest element. The exponent of every rule is limited to -127..127.
    """
    e = formats.element(element)
    rule = errors.choose_member("scale_rule", scale_rule, ScaleRule)
    a = max((v.magnitude for v in map(exact, values) if v.kind == "finite"), default=Fraction(0))
    if a == 0:
        return 0
    exponent = floor_log2(a)
    f = a / two_to(exponent)
    element_max = decode_exact(layout(e).largest, e).magnitude
    s = exponent - floor_log2(element_max)
    s += {
        ScaleRule.FLOOR: False,
        ScaleRule.CEIL: f > 1,
        ScaleRule.EVEN: f >= 2 - two_to(-(e.mantissa_bits + 1)),
        ScaleRule.RCEIL: a > element_max * two_to(s),
        ScaleRule.HALF_UP: f >= Fraction(7, 4),
        ScaleRule.FLOOR_PLUS_ONE: True,
    }[rule]
    return min(max(s, -127), 127) + BIAS


def float_format(dtype: Any) -> ElementFormat:
    """Return the format of a float dtype, which may be given by its name."""
    name = dtype if isinstance(dtype, str) else dtype.name
    return FLOATS[errors.choose("dtype", name, tuple(FLOATS))]
