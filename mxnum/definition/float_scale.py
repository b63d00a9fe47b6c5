"""Compute float scales and tensor scales, and convert elements under the product of both scales.

Encoding divides a number by a *factor*: the exact product of its block's scale and the tensor
scale. In a format without tensor scales, the tensor scale is 1. Decoding multiplies by the same
factor. A factor is represented as (exponent, significand, kind). The value of a factor is
significand * 2**(exponent - width), where the significand is zero or 2**width <= significand <
2**(width+1). Words have 64 bits.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from mxnum.definition.pack import SR_BITS, make_pack
from mxnum.definition.unpack import FINITE, INFINITE, NAN, ZERO_EXPONENT, make_unpack
from mxnum.definition.word import dialect, select
from mxnum.formats import FLOATS, ElementFormat, ScaleFormat
from mxnum.modes import FloatScaleRule, Overflow, Rounding

TENSOR_SCALE = FLOATS["float32"]
#: Bit patterns of the tensor scale 1 and of the smallest positive tensor scale.
ONE, LEAST = TENSOR_SCALE.bias << TENSOR_SCALE.mantissa_bits, 1
WORD = 64


def number_of(scale: ScaleFormat) -> ElementFormat:
    """Return the float format of a scale."""
    if scale.number is None:
        raise ValueError(f"scale {scale.name} is no float")
    return scale.number


def factor_width(scale: ScaleFormat) -> int:
    """Return the position of the leading bit of a factor's significand."""
    return number_of(scale).mantissa_bits + TENSOR_SCALE.mantissa_bits + 1


@cache
def make_product(bits: int) -> Callable[..., Any]:
    """Return `product(a, b)`, which multiplies a < 2**bits by b with shifts and additions."""

    @dialect
    def product(a, b):
        total = 0
        for i in range(bits):
            total = total + select(((a >> i) & 1) == 0, 0, b << i)
        return total

    return product


@cache
def make_divide(width: int, divisor_width: int, digits: int) -> Callable[..., Any]:
    """Return `divide(exponent_a, a, exponent_b, b)`, which computes a / b for b other than 0.

    `divide` returns an exponent and a significand. Long division computes the leading 1 of the
    significand and `digits` binary digits after it. The last bit of the significand is sticky: it
    is 1 if the division leaves a remainder, else 0. So the leading 1 is at bit position digits + 1.
    Rounding the result once gives the same number as rounding the exact quotient.
    """
    common = max(width, divisor_width)

    @dialect
    def divide(exponent_a, a, exponent_b, b):
        rest, divisor = a << (common - width), b << (common - divisor_width)
        is_less = select(rest < divisor, 1, 0)
        rest = (rest << is_less) - divisor
        quotient = 1
        for _ in range(digits):
            rest = rest << 1
            digit = select(rest < divisor, 0, 1)
            rest = rest - select(digit == 0, 0, divisor)
            quotient = (quotient << 1) | digit
        significand = (quotient << 1) | select(rest == 0, 0, 1)
        exponent = exponent_a - exponent_b - is_less
        return select(a == 0, ZERO_EXPONENT, exponent), select(a == 0, 0, significand)

    return divide


@cache
def make_factor(scale: ScaleFormat) -> Callable[..., Any]:
    """Return `factor(code, tensor)`, which multiplies a scale code by a float32 tensor scale.

    `tensor` is the bit pattern of the tensor scale. `factor` returns the product's exponent,
    significand and kind.
    """
    number, width = number_of(scale), factor_width(scale)
    unpack_scale = make_unpack(number, number.mantissa_bits)
    unpack_tensor = make_unpack(TENSOR_SCALE, TENSOR_SCALE.mantissa_bits)
    product = make_product(number.mantissa_bits + 1)

    @dialect
    def factor(code, tensor):
        _, exponent, significand, kind = unpack_scale(code)
        _, exponent_t, significand_t, kind_t = unpack_tensor(tensor)
        total = product(significand, significand_t)
        carries = select(total < (1 << width), 1, 0)
        exponent = exponent + exponent_t + 1 - carries
        both = select(kind > kind_t, kind, kind_t)
        vanishes = select(kind == FINITE, significand, 1) == 0
        vanishes_t = select(kind_t == FINITE, significand_t, 1) == 0
        both = select(select(vanishes, kind_t, FINITE) == INFINITE, NAN, both)
        both = select(select(vanishes_t, kind, FINITE) == INFINITE, NAN, both)
        return exponent, select(vanishes, 0, select(vanishes_t, 0, total << carries)), both

    return factor


def make_tensor_scale(source: ElementFormat, element: ElementFormat, scale: ScaleFormat) -> Callable[..., Any]:
    """Return `tensor_scale(amax)`, which computes an array's tensor scale as a float32 bit pattern.

    `amax` is the array's largest finite magnitude, as a bit pattern of `source`.
    """
    number, mantissa = number_of(scale), TENSOR_SCALE.mantissa_bits
    greatest, exponent_of_greatest = _number_of_code(element, element.max_code)
    greatest_scale, exponent_of_scale = _number_of_code(number, number.max_code)
    EXPONENT, DIVISOR = exponent_of_greatest + exponent_of_scale, greatest * greatest_scale
    DIVISOR_WIDTH = DIVISOR.bit_length() - 1
    unpack = make_unpack(source, source.mantissa_bits)
    divide = make_divide(source.mantissa_bits, DIVISOR_WIDTH, mantissa + 2)
    pack = make_pack(TENSOR_SCALE, Rounding.RNE, Overflow.SATURATE, mantissa + 3, WORD)

    @dialect
    def tensor_scale(amax):
        _, exponent, significand, _ = unpack(amax)
        exponent, quotient = divide(exponent, significand, EXPONENT + DIVISOR_WIDTH, DIVISOR)
        code = pack(0, exponent, quotient, FINITE, 0)
        return select(significand == 0, ONE, select(code < LEAST, LEAST, code))

    tensor_scale.__name__ = f"tensor_scale_{source.name}_{element.name}_{scale.name}"
    return tensor_scale


def make_float_scale(
    source: ElementFormat, element: ElementFormat, scale: ScaleFormat, rule: FloatScaleRule, aim: int | None = None
) -> Callable[..., Any]:
    """Return `float_scale(amax, tensor)`, which finds the scale code of a block.

    `amax` is the bit pattern of the block's largest finite magnitude. The scale is amax / (largest
    element * tensor scale), rounded once. If the element code `aim` is given, its value replaces
    the largest element in this formula.
    """
    number = number_of(scale)
    goal, exponent_of_goal = _number_of_code(element, element.max_code if aim is None else aim)
    GOAL_BITS, EXPONENT = goal.bit_length(), exponent_of_goal
    width, digits = TENSOR_SCALE.mantissa_bits + GOAL_BITS, number.mantissa_bits + 2
    unpack = make_unpack(source, source.mantissa_bits)
    unpack_tensor = make_unpack(TENSOR_SCALE, TENSOR_SCALE.mantissa_bits)
    product, divide = make_product(GOAL_BITS), make_divide(source.mantissa_bits, width, digits)
    pack = make_pack(number, Rounding.RTP if rule.rounds_up else Rounding.RNE, Overflow.SATURATE, digits + 1, WORD)

    @dialect
    def float_scale(amax, tensor):
        _, exponent, significand, _ = unpack(amax)
        _, exponent_t, significand_t, _ = unpack_tensor(tensor)
        divisor = product(goal, significand_t)
        lowered = select(divisor < (1 << width), 1, 0)
        exponent_d = exponent_t + EXPONENT + GOAL_BITS - lowered
        exponent, quotient = divide(exponent, significand, exponent_d, divisor << lowered)
        return pack(0, exponent, quotient, FINITE, 0)

    float_scale.__name__ = f"float_scale_{source.name}_{element.name}_{scale.name}_{rule}_{aim}"
    return float_scale


def _number_of_code(number: ElementFormat, code: int) -> tuple[int, int]:
    """Return (odd integer, exponent) such that a code's value is integer * 2**exponent."""
    integer, denominator = number.value(code).as_integer_ratio()
    shift = (integer & -integer).bit_length() - 1
    return integer >> shift, shift - (denominator.bit_length() - 1)


def make_encode_over(
    source: ElementFormat, element: ElementFormat, scale: ScaleFormat, rounding: Rounding, overflow: Overflow
) -> Callable[..., Any]:
    """Return `encode_over`, which rounds x / factor once to an `element` code.

    `encode_over` takes x, the factor's exponent, significand and kind, and random bits. If the
    factor is zero or infinite, a finite x becomes zero. If the factor is NaN, every code is 0.
    """
    width = factor_width(scale)
    digits = element.mantissa_bits + (SR_BITS + 1 if rounding.is_stochastic else 2)
    unpack, divide = make_unpack(source, source.mantissa_bits), make_divide(source.mantissa_bits, width, digits)
    pack = make_pack(element, rounding, overflow.of(element.specials), digits + 1, WORD)

    @dialect
    def encode_over(x, exponent_d, divisor, kind_d, random):
        sign, exponent, significand, kind = unpack(x)
        vanishes = select(kind_d == FINITE, divisor, 0) == 0
        significand = select(vanishes, 0, significand)
        exponent, quotient = divide(exponent, significand, exponent_d, select(vanishes, 1 << width, divisor))
        return select(kind_d == NAN, 0, pack(sign, exponent, quotient, kind, random))

    encode_over.__name__ = f"encode_over_{source.name}_{element.name}_{scale.name}_{rounding}_{overflow}"
    return encode_over


def make_decode_over(element: ElementFormat, scale: ScaleFormat, target: ElementFormat) -> Callable[..., Any]:
    """Return `decode_over`, which rounds element * factor to the float type `target` by rne.

    `decode_over` takes the element's code and the factor's exponent, significand and kind, and
    returns a bit pattern.
    """
    mantissa = element.mantissa_bits
    least_width = mantissa + factor_width(scale) + 1
    width = max(least_width, target.mantissa_bits + 1)
    UP = width - least_width
    unpack, product = make_unpack(element, mantissa), make_product(mantissa + 1)
    pack = make_pack(target, Rounding.RNE, Overflow.IEEE, width, WORD)

    @dialect
    def decode_over(code, exponent_f, factor, kind_f):
        sign, exponent, significand, kind = unpack(code)
        total = product(significand, factor)
        lowered = select(total < (1 << least_width), 1, 0)
        both = select(kind > kind_f, kind, kind_f)
        is_zero = select(kind == FINITE, significand, 1) == 0
        is_zero_factor = select(kind_f == FINITE, factor, 1) == 0
        both = select(select(is_zero, kind_f, FINITE) == INFINITE, NAN, both)
        both = select(select(is_zero_factor, kind, FINITE) == INFINITE, NAN, both)
        exponent = select(total == 0, ZERO_EXPONENT, exponent + exponent_f + 1 - lowered)
        return pack(sign, exponent, total << (lowered + UP), both, 0)

    decode_over.__name__ = f"decode_over_{element.name}_{scale.name}_{target.name}"
    return decode_over
