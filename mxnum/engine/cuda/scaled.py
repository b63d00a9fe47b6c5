"""The formulation of the CUDA kernels: rounding to nearest even by three float32 operations.

An element is first multiplied by the inverse of its block's scale. Two additions then round it as
in `rounding.float_additions`, but with constants in place of the scale. The result is right for
every finite float32 and every scale, so that a kernel needs neither a check of the domain nor a
second path. The product loses bits only below 2**-126, far below half the least element. Decoding
moves the fields of a code into a float32 and multiplies twice.

The functions are written in the dialect for 32-bit lanes, and use the float operations of `lanes`.
They need a machine that rounds to nearest even and keeps subnormals: kernels are compiled without
flush-to-zero.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from mxnum.definition.word import dialect, select
from mxnum.engine.machine.lanes import add_float32, multiply_float32, subtract_float32
from mxnum.formats import ELEMENTS as ALL_ELEMENTS
from mxnum.formats import FLOATS, ElementFormat
from mxnum.modes import ScaleRule

FLOAT32 = FLOATS["float32"]

#: The element formats that are rounded correctly: all but e3m0, whose ties go by the parity of the
#: exponent.
ELEMENTS = tuple(name for name in ALL_ELEMENTS if name != "e3m0")

#: The input types whose numbers are all float32 numbers.
SOURCES = ("float32", "bfloat16", "float16")

_SMALLEST_POWER = 0x00400000  # 2**-127, a subnormal


@dialect
def up(scale):
    """Return the float32 bits of 2**(scale - 127)."""
    return select(scale == 0, _SMALLEST_POWER, scale << 23)


@dialect
def down(scale):
    """Return the float32 bits of 2**(127 - scale), for a scale that is not NaN."""
    return select(scale == 254, _SMALLEST_POWER, (254 - scale) << 23)


def make_widen(source: ElementFormat) -> Callable[..., Any]:
    """Return `widen(x)`, which converts a finite number of `source` to float32.

    The function returns the sign bit at its position in float32, and the bit pattern of the
    magnitude.
    """
    UP = 32 - source.bits - (FLOAT32.exponent_bits - source.exponent_bits)
    BITS, REBIAS = source.bits, (FLOAT32.bias - source.bias + FLOAT32.bias) << 23
    SAME_BIAS = source.bias == FLOAT32.bias

    @dialect
    def widen(x):
        sign = (x << (32 - BITS)) & -0x80000000
        magnitude = (x & ((1 << (BITS - 1)) - 1)) << UP
        if SAME_BIAS:
            return sign, magnitude
        return sign, multiply_float32(magnitude, REBIAS)

    return widen


def _make_rounded(source: ElementFormat, element: ElementFormat) -> Callable[..., Any]:
    """Return `rounded(x, down)`, which returns (sign bit, total, power).

    The float32 number `total` is the scaled magnitude, rounded to a multiple of the element's step,
    plus the power of two `power`.
    """
    UP = (FLOAT32.mantissa_bits - element.mantissa_bits) << FLOAT32.mantissa_bits
    LEAST = (element.emin + FLOAT32.bias) << 23
    BEYOND = (element.emax + 2 + FLOAT32.bias) << 23
    widen = make_widen(source)

    @dialect
    def rounded(x, down):
        sign, magnitude = widen(x)
        y = multiply_float32(magnitude, down)
        y = select(y > BEYOND, BEYOND, y)
        binade = y & 0x7F800000
        power = select(binade > LEAST, binade, LEAST) + UP
        return sign, add_float32(y, power), power

    return rounded


def make_code(source: ElementFormat, element: ElementFormat) -> Callable[..., Any]:
    """Return `scaled_code(x, down)`, which returns the element code of x / 2**(scale - 127).

    `x` is finite, and `down` is `down(scale)`. The function rounds to nearest even and saturates.
    """
    MANTISSA, MAX, BITS = element.mantissa_bits, element.max_code, element.bits
    DISCARDED = FLOAT32.mantissa_bits - MANTISSA
    FIRST_STEP = (element.emin + FLOAT32.bias + DISCARDED) << MANTISSA
    INTEGER = element.integer
    rounded = _make_rounded(source, element)

    @dialect
    def scaled_code(x, down):
        sign, total, power = rounded(x, down)
        code = (total - power) + ((power >> DISCARDED) - FIRST_STEP)
        code = select(code > MAX, MAX, code)
        if INTEGER:
            return select(sign == 0, code, 0 - code) & ((1 << BITS) - 1)
        return code | ((sign >> (32 - BITS)) & (1 << (BITS - 1)))

    scaled_code.__name__ = f"scaled_code_{source.name}_{element.name}"
    return scaled_code


def make_value(element: ElementFormat) -> Callable[..., Any]:
    """Return `scaled_value(x, down, up)`, which returns a quantized value in float32.

    The value is that of the code of `make_code`. `x` is a finite float32, `down` is `down(scale)`,
    and `up` is `up(scale)`.
    """
    LARGEST = int(np.float32(element.max).view(np.int32))
    INTEGER = element.integer
    rounded = _make_rounded(FLOAT32, element)

    @dialect
    def scaled_value(x, down, up):
        sign, total, power = rounded(x, down)
        value = subtract_float32(total, power)
        value = select(value > LARGEST, LARGEST, value)
        if INTEGER:  # Integers have no -0, but scaling may round a negative value to -0.
            sign = select(value == 0, 0, sign)
        return multiply_float32(value, up) | sign

    scaled_value.__name__ = f"scaled_value_{element.name}"
    return scaled_value


def covers_scale(source: ElementFormat, element: ElementFormat) -> bool:
    """Return True if `make_scale` is right for an element format.

    It is right if the format's greatest exponent is 1 or more: subnormal magnitudes then have scale
    code 0.
    """
    return source.name in SOURCES and element == ALL_ELEMENTS.get(element.name) and element.emax >= 1


def make_scale(source: ElementFormat, element: ElementFormat, rule: ScaleRule) -> Callable[..., Any]:
    """Return `scaled_scale(amax)`, which returns a scale code.

    `amax` is the largest finite magnitude of a block. The code is made from the exponent field,
    after an addition that carries into it where the rule increments it.
    """
    ONE, EMAX = 1 << FLOAT32.mantissa_bits, element.emax
    QUANTUM = ONE >> element.mantissa_bits
    # Adding this number to a magnitude increments the exponent where the rule does. It is ONE minus
    # the least fraction that is incremented.
    BUMP = {
        ScaleRule.FLOOR: 0,
        ScaleRule.CEIL: ONE - 1,
        ScaleRule.EVEN: QUANTUM >> 1,
        ScaleRule.RCEIL: ONE - (element.max_code % (1 << element.mantissa_bits)) * QUANTUM - 1,
        ScaleRule.HALF_UP: ONE >> 2,
        ScaleRule.FLOOR_PLUS_ONE: ONE,
    }[rule]
    widen = make_widen(source)

    @dialect
    def scaled_scale(amax):
        _, magnitude = widen(amax)
        code = ((magnitude + BUMP) >> 23) - EMAX
        return select(code < 0, 0, code)

    scaled_scale.__name__ = f"scaled_scale_{source.name}_{element.name}_{rule}"
    return scaled_scale


def make_decoded(element: ElementFormat) -> Callable[..., Any]:
    """Return `scaled_decoded(code, up)`, which returns the float32 bits of a value.

    The value is that of the element code times 2**(scale - 127). `up` is `up(scale)` for a scale
    that is not NaN.
    """
    MANTISSA, BITS, MAX = element.mantissa_bits, element.bits, element.max_code
    UP = FLOAT32.mantissa_bits - MANTISSA
    REBIAS = (FLOAT32.bias - element.bias + FLOAT32.bias) << 23
    INTEGER, HAS_NAN = element.integer, element.specials != "none"
    LAST = MAX + 1 if element.specials == "ieee" else MAX
    HAS_INFINITY, INFINITY, NAN = element.specials == "ieee", MAX + 1, FLOAT32.nan_code

    @dialect
    def scaled_decoded(code, up):
        sign = (code >> (BITS - 1)) & 1
        magnitude = code & ((1 << (BITS - 1)) - 1)
        if INTEGER:
            magnitude = select(sign == 0, magnitude, (1 << (BITS - 1)) - magnitude)
        value = multiply_float32(multiply_float32(magnitude << UP, REBIAS), up)
        if HAS_INFINITY:
            value = select(magnitude == INFINITY, 0x7F800000, value)
        value = value | ((0 - sign) << 31)
        if HAS_NAN:
            value = select(magnitude > LAST, NAN, value)
        return value

    scaled_decoded.__name__ = f"scaled_decoded_{element.name}"
    return scaled_decoded
