"""Rounding with float32 additions: the fast way to convert float32 to any element.

The quantum at x is the distance between neighbouring values of the element at x. Adding to |x| a
power of two whose last bit is worth the quantum, and subtracting it again, rounds |x| to the
quantum, to nearest even. Subtracting the rounded value from |x| is exact, and gives the rounding
error. Every rounding mode gives this rounded value, or the next value above or below it. Adding 1
to the bit pattern of the sum gives the sum for the next value above. Subtracting 1 gives the sum
for the next value below.

Float32 additions round correctly only inside a domain of scales and magnitudes, and only while the
hardware rounds to nearest even. Loops check both conditions. Theorems say that, inside the domain
and with rounding to nearest even, the functions of this module equal `encode`, `decode` after
`encode`, and `shared_scale` of `mxnum.definition`.

The functions of this module use the float primitives of `lanes`. The functions take the element at
run time, as `Constants`, so that one compiled loop serves all elements, overflow modes and scale
rules.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

from mxnum.definition.pack import SR_BITS, limits
from mxnum.definition.word import dialect, select
from mxnum.engine.machine.lanes import (
    add_float32,
    float16_to_float32,
    multiply_float32,
    subtract_float32,
    truncate_float32,
)
from mxnum.formats import E8M0, FLOATS, ElementFormat
from mxnum.modes import Overflow, Rounding, ScaleRule, which

FLOAT32 = FLOATS["float32"]
LAST_SCALE = E8M0.nan_code - 1
_NEVER = 1 << 30
_SIGN = -0x80000000
#: The least bit pattern of a float32 NaN, and the bits of 2**23, whose last bit is worth 1.
_FIRST_NAN = FLOAT32.max_code + 2
_COUNTS = (FLOAT32.bias + FLOAT32.mantissa_bits) << FLOAT32.mantissa_bits
_BIAS_DIFFERENCE = FLOAT32.bias - FLOATS["float16"].bias
_LESS_FRACTION = FLOAT32.mantissa_bits - FLOATS["float16"].mantissa_bits
#: The least normal float16 number times 2**`_TO_ONE` is 1.
_TO_ONE = 0 - FLOATS["float16"].emin


class Constants(NamedTuple):
    """The numbers that describe an element, a rounding, an overflow mode and a scale rule."""

    mantissa: int
    #: The fraction bits of float32 minus the fraction bits of the element.
    discarded: int
    emin: int
    #: `up` is `discarded`, shifted to the exponent field. Adding `up` to the exponent field of |x|
    #: gives the power of two that is added to |x|.
    up: int
    max_code: int
    #: The magnitude codes that replace codes larger than `max_code`: `above` for positive numbers,
    #: `below` for negative ones.
    above: int
    below: int
    #: The float32 bits of `above` and `below` if these are NaN or infinity, else 0. `special_sign`
    #: is the mask of the sign bit if a NaN or an infinity keeps the sign of x, else 0.
    value_above: int
    value_below: int
    special_sign: int
    #: `mask` has all bits of a code set. `sign` is the sign bit of a code (0 in two's complement).
    #: A right shift by `sign_down` moves bit 31 to the top bit of a code. `flip` is -1 if codes are
    #: in two's complement, and 0 if they are not.
    mask: int
    sign: int
    sign_down: int
    flip: int
    #: `largest` is the float32 bit pattern of the largest value minus that of the least normal
    #: value. This difference is the same under every scale. `zero_sign` is the mask of the sign bit
    #: if zeros have a sign, else 0.
    largest: int
    zero_sign: int
    #: The magnitude code of infinity, and the least magnitude code of a NaN.
    infinity: int
    first_nan: int
    #: The scale code of a block is ((b + scale_bump) >> 23) + scale_bias, where b is the bit
    #: pattern of the block's largest magnitude.
    scale_bias: int
    scale_bump: int


def constants(
    element: ElementFormat,
    rounding: Rounding = Rounding.RNE,
    overflow: Overflow = Overflow.SATURATE,
    rule: ScaleRule = ScaleRule.FLOOR,
) -> Constants:
    """Return the `Constants` of an element, a rounding, an overflow mode and a scale rule."""
    mantissa, bits = element.mantissa_bits, element.bits
    discarded = FLOAT32.mantissa_bits - mantissa
    one = 1 << FLOAT32.mantissa_bits
    leading_digits = element.max_code & ((1 << mantissa) - 1)
    over: Any = element.nan_code if element.infinity_code is None else element.infinity_code
    over_value: Any = FLOAT32.max_code + 1 if element.specials == "ieee" else FLOAT32.nan_code
    stays = overflow == Overflow.SATURATE or over is None
    stays_above, stays_below = (stays or gives_max for gives_max in limits(rounding))
    return Constants(
        mantissa=mantissa,
        discarded=discarded,
        emin=element.emin,
        up=discarded << FLOAT32.mantissa_bits,
        max_code=element.max_code,
        above=element.max_code if stays_above else over,
        below=element.max_code if stays_below else over,
        value_above=0 if stays_above else over_value,
        value_below=0 if stays_below else over_value,
        special_sign=_SIGN if element.specials == "ieee" else 0,
        mask=(1 << bits) - 1,
        sign=0 if element.integer else 1 << (bits - 1),
        sign_down=32 - bits,
        flip=-1 if element.integer else 0,
        largest=(element.max_code - (1 << mantissa)) << discarded,
        zero_sign=0 if element.integer else _SIGN,
        infinity=element.max_code + 1 if element.specials == "ieee" else _NEVER,
        first_nan={"none": _NEVER, "nan": element.max_code + 1, "ieee": element.max_code + 2}[element.specials],
        scale_bias=0 - element.emax,
        scale_bump={
            ScaleRule.FLOOR: 0,
            ScaleRule.CEIL: one - 1,
            ScaleRule.EVEN: 1 << (discarded - 1),
            ScaleRule.RCEIL: one - (leading_digits << discarded) - 1,
            ScaleRule.HALF_UP: one >> 2,
            ScaleRule.FLOOR_PLUS_ONE: one,
        }[rule],
    )


class Domain(NamedTuple):
    """The bounds, inclusive, of the scales and magnitudes for which a fast formulation is right."""

    least_scale: int
    greatest_scale: int
    #: The float32 bit pattern of the largest |x| for which the formulation is right.
    greatest_x: int


def domain(element: ElementFormat, rounding: Rounding) -> Domain:
    """Return the domain in which the functions of `make_code` and `make_value` are right.

    Inside the domain, no sum becomes infinite. Subnormal numbers are so far below the quantum that
    flushing them to zero changes no result. Stochastic rounding truncates a subnormal rounding
    error to zero, whether or not the hardware flushes it.
    """
    last_field = 254 - (FLOAT32.mantissa_bits - element.mantissa_bits)
    least = (SR_BITS + 1 if rounding == Rounding.SR else 3) + element.mantissa_bits - element.emin
    greatest = select(element.emin < element.emax - 254 + last_field, 254 - element.emax, last_field - element.emin)
    return Domain(least, greatest, (last_field + 1 << FLOAT32.mantissa_bits) - 1)


@dialect
def fast_scale(amax: Any, e: Constants) -> Any:
    """Return the E8M0 code of a block from the bits of its largest magnitude.

    The magnitude is a float32 number that is zero or normal. For a subnormal magnitude, the result
    is below the least scale of every `Domain`.
    """
    code = ((amax + e.scale_bump) >> 23) + e.scale_bias
    code = select(amax == 0, 0, code)
    return select(code < 0, 0, select(code > LAST_SCALE, LAST_SCALE, code))


@cache
def make_code(rounding: Rounding, by_parity: bool) -> Callable[..., Any]:
    """Return `fast_code(x, scale, random, constants)`, which rounds to an element code.

    `fast_code` rounds x / 2**(scale - 127) once, where `x` is a float32 bit pattern. `by_parity`
    must be True for elements without mantissa bits: see `breaks_ties_by_parity`.
    """
    round_to_quantum = _make_round(rounding, by_parity)

    @dialect
    def fast_code(x, scale, random, e):
        magnitude = x & 0x7FFFFFFF
        magic = _magic_of(magnitude, scale, e)
        steps = (magic >> e.discarded) - ((scale + e.emin + e.discarded) << e.mantissa)
        code = round_to_quantum(x, magnitude, magic, steps, random) - magic + steps
        sign = x >> 31
        code = select(code > e.max_code, select(sign == 0, e.above, e.below), code)
        flip = sign & e.flip
        return (((code ^ flip) - flip) & e.mask) | (sign & e.sign)

    fast_code.__name__ = f"fast_code_{rounding}{'_by_parity' if by_parity else ''}"
    return fast_code


@cache
def make_value(rounding: Rounding, by_parity: bool) -> Callable[..., Any]:
    """Return `fast_value(x, scale, random, constants)`, which rounds x to an element's value.

    The result is the value, under the scale, of the code that `fast_code` (from `make_code`)
    returns for the same arguments. The value is a float32 bit pattern.
    """
    round_to_quantum = _make_round(rounding, by_parity)

    @dialect
    def fast_value(x, scale, random, e):
        magnitude = x & 0x7FFFFFFF
        magic = _magic_of(magnitude, scale, e)
        steps = 0
        # Only the parity of `steps` matters. With mantissa bits, `steps` is even, so 0 serves.
        if by_parity:
            steps = (magic >> e.discarded) - ((scale + e.emin + e.discarded) << e.mantissa)
        value = subtract_float32(round_to_quantum(x, magnitude, magic, steps, random), magic)
        largest = ((scale + e.emin) << 23) + e.largest
        special = select(x < 0, e.value_below, e.value_above)
        limit = select(special == 0, largest, special)
        keeps = select(value > largest, select(special == 0, _SIGN, e.special_sign), _SIGN)
        value = select(value > largest, limit, value)
        # Integers have no -0. A NaN that replaces a number beyond the largest value has no sign.
        return value | (x & select(value == 0, e.zero_sign, keeps))

    fast_value.__name__ = f"fast_value_{rounding}{'_by_parity' if by_parity else ''}"
    return fast_value


def breaks_ties_by_parity(element: ElementFormat) -> bool:
    """Return True if rounding to nearest even must break ties by the parity of the code.

    The hardware breaks ties by the last bit of the significand. In an element without mantissa
    bits, that bit does not show whether the code is even.
    """
    return element.mantissa_bits == 0


def decoding_domain(element: ElementFormat) -> tuple[int, int]:
    """Return the least and the greatest scale at which all values are zero or normal in float32."""
    magnitudes = 1 << (element.bits - 1)
    last_field = (magnitudes if element.integer else magnitudes - 1) >> element.mantissa_bits
    return 1 + element.mantissa_bits - element.emin, 254 + element.bias - last_field


@dialect
def value_of_code(code: Any, scale: Any, e: Constants) -> Any:
    """Return the float32 bit pattern of element value * 2**(scale - 127).

    The scale must be in `decoding_domain`.

    Shifts move the fields of a normal code to the fields of float32. For a subnormal code, the
    function puts a one before the fraction, and an exact float32 subtraction removes the one again.
    Nothing is rounded, so the result is right in every floating-point environment.
    """
    half = e.mask >> 1
    sign = 0 - ((code >> (31 - e.sign_down)) & 1)
    flip = sign & e.flip
    magnitude = ((code & half) ^ flip) - flip + ((half + 1) & flip)
    moved = magnitude << e.discarded
    bias = scale + e.emin - 1
    leading = (bias + 1) << 23
    subnormal = subtract_float32(moved + leading, leading) & 0x7FFFFFFF
    value = select(magnitude < (1 << e.mantissa), subnormal, moved + (bias << 23))
    value = select(magnitude == e.infinity, 0x7F800000, value) | (sign << 31)
    return select(magnitude >= e.first_nan, 0x7FC00000, value)


def product_domain(element: ElementFormat) -> tuple[int, int]:
    """Return the least and the greatest scale at which `make_value_by_product` is right.

    Inside this domain, both factors of the product and the product itself are zero or normal.
    """
    least, greatest = decoding_domain(element)
    return least, greatest if element.integer else min(greatest, 254 - _TO_ONE - element.emin)


@cache
def make_value_by_product(element: ElementFormat) -> Callable[..., Any]:
    """Return `value(code, scale, constants)`, which equals `value_of_code` in `product_domain`.

    The function converts the code to a float32 number and multiplies the number by a power of two.
    For an integer code n, integer operations make the float32 bits of 2**23 + h + n, and the
    function subtracts 2**23 + h. Here h is 2**(bits - 1). For a float code, normal or subnormal,
    shifts move the fields to those of a float16 number, which the processor widens to float32.
    Nothing is rounded.
    """
    HAS_NANS = element.specials != "none"

    @dialect
    def value_of_integer(code, scale, e):
        half = e.mask - (e.mask >> 1)
        number = subtract_float32((code ^ half) + _COUNTS, _COUNTS + half)
        return multiply_float32(number, (scale + e.emin - e.mantissa) << 23)

    @dialect
    def value_by_half(code, scale, e):
        magnitude, sign = code & (e.mask >> 1), (code << (e.sign_down - 16)) & 0x8000
        number = float16_to_float32((magnitude << (e.discarded - _LESS_FRACTION)) | sign)
        value = multiply_float32(number, (scale + e.emin + _TO_ONE) << 23)
        if HAS_NANS:
            after_numbers = (e.first_nan << e.discarded) + (_BIAS_DIFFERENCE << 23)
            first_nan = select(e.infinity == _NEVER, after_numbers, _FIRST_NAN)
            return select((number & 0x7FFFFFFF) >= first_nan, 0x7FC00000, value)
        return value

    return value_of_integer if element.integer else value_by_half


@dialect
def _magic_of(magnitude, scale, e):
    """Return the bits of the power of two whose last bit is worth the quantum at `magnitude`."""
    binade = magnitude & 0x7F800000
    least = (scale + e.emin) << 23
    return select(binade > least, binade, least) + e.up


@cache
def _make_round(rounding: Rounding, by_parity: bool) -> Callable[..., Any]:
    """Return `round_to_quantum(x, magnitude, magic, steps, random)`, which rounds a magnitude.

    The function returns the bits of the sum of `magic` and the magnitude rounded to the quantum.
    The last bit of the sum is worth the quantum, so adding 1 to the bits of the sum steps to the
    next multiple of the quantum. The code is (bits of the sum) - `magic` + `steps`.
    """
    RNE, RNA, RTZ, RTO, RTP, _RTN, SR = which(
        rounding, Rounding.RNE, Rounding.RNA, Rounding.RTZ, Rounding.RTO, Rounding.RTP, Rounding.RTN, Rounding.SR
    )
    BY_HARDWARE = RNE and not by_parity
    LAST_PLACE = FLOAT32.mantissa_bits << FLOAT32.mantissa_bits
    ONE, PARTS = (power << FLOAT32.mantissa_bits for power in (FLOAT32.bias, FLOAT32.bias + SR_BITS))

    @dialect
    def round_to_quantum(x, magnitude, magic, steps, random):
        total = add_float32(magnitude, magic)
        if BY_HARDWARE:
            return total
        nearest = subtract_float32(total, magic)
        if SR or RNE or RNA:
            rest, quantum = subtract_float32(magnitude, nearest), magic - LAST_PLACE
            if SR:
                # `parts` is the rounding error in units of quantum / 2**SR_BITS.
                parts = truncate_float32(multiply_float32(rest, ONE - (quantum - PARTS)))
                return total + ((parts + random) >> SR_BITS)
            twice = add_float32(rest, rest)
            if RNA:
                return total + select(twice == quantum, 1, 0)
            odd = (total - magic + steps) & 1
            return total + select(twice == quantum, odd, select(twice == quantum + _SIGN, 0 - odd, 0))
        down, up = select(nearest > magnitude, -1, 0), select(nearest < magnitude, 1, 0)
        if RTZ:
            return total + down
        if RTO:
            return total + select(((total - magic + steps) & 1) == 0, down + up, 0)
        if RTP:
            return total + select(x < 0, down, up)
        return total + select(x < 0, up, down)

    return round_to_quantum
