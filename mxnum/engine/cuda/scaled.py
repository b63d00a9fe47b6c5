"""Rounding to nearest even by three float32 operations, for CUDA kernels.

First, an element is multiplied by the inverse of its block's scale. The product is rounded by
adding a power of two and subtracting it again, as in `rounding.float_additions`, but with the same
constants for every scale. The product is inexact only below 2**-126, where all numbers round to 0.
So the result is right for every finite float32 and every scale. A kernel therefore needs neither a
check of its inputs nor a fallback. Decoding moves the fields of a code into a float32 and
multiplies twice: to correct the exponent bias, and by the scale.

The functions are written in the dialect of `definition.word`. They compute with 32-bit integers,
and use the float operations of `machine.lanes`. The functions need a machine that rounds to nearest
even and keeps subnormals, so kernels are compiled without flush-to-zero.
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

#: The element formats that this formulation rounds correctly. e3m0 has no mantissa bits, so its
#: ties depend on the parity of the exponent, and this formulation does not round it correctly.
ELEMENTS = tuple(name for name in ALL_ELEMENTS if name != "e3m0")

#: The input types whose numbers float32 holds exactly.
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

    `widen` returns the sign bit at its position in float32, and the magnitude as a float32 bit
    pattern.
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
    """Return `rounded(x, down)`, which rounds the scaled magnitude m = abs(x) * down.

    `rounded` returns (sign bit, total, power); `total` and `power` are float32 bit patterns. The
    step is the distance between neighbouring element values at m. `power` is 2**23 steps. `total`
    is the float32 sum of `power` and m, so total - power is m rounded to a multiple of the step.
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

    `scaled_code` rounds to nearest even and saturates. `x` must be finite, and the argument `down`
    is the result of `down(scale)`.
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

    `scaled_value` returns the value of the code that `scaled_code` returns. `x` is a finite
    float32, and the arguments `down` and `up` are the results of `down(scale)` and `up(scale)`.
    """
    LARGEST = int(np.float32(element.max).view(np.int32))
    INTEGER = element.integer
    rounded = _make_rounded(FLOAT32, element)

    @dialect
    def scaled_value(x, down, up):
        sign, total, power = rounded(x, down)
        value = subtract_float32(total, power)
        value = select(value > LARGEST, LARGEST, value)
        if INTEGER:  # An integer format has no -0, so a value rounded to 0 loses its sign.
            sign = select(value == 0, 0, sign)
        return multiply_float32(value, up) | sign

    scaled_value.__name__ = f"scaled_value_{element.name}"
    return scaled_value


def covers_scale(source: ElementFormat, element: ElementFormat) -> bool:
    """Return True if `make_scale` supports a source format and an element format.

    The greatest exponent of the element format must be at least 1. Then the scale code of every
    subnormal magnitude is 0; otherwise `make_scale` could compute wrong codes for these magnitudes.
    """
    return source.name in SOURCES and element == ALL_ELEMENTS.get(element.name) and element.emax >= 1


def make_scale(source: ElementFormat, element: ElementFormat, rule: ScaleRule) -> Callable[..., Any]:
    """Return `scaled_scale(amax)`, which returns the scale code of a block.

    `amax` is the largest finite magnitude of the block. `scaled_scale` first adds a constant to the
    bit pattern of `amax`. The addition carries into the exponent field if the scale rule rounds up.
    The scale code is the exponent field minus the greatest exponent of the element format, but at
    least 0.
    """
    ONE, EMAX = 1 << FLOAT32.mantissa_bits, element.emax
    QUANTUM = ONE >> element.mantissa_bits
    # If the rule rounds the scale up, adding `BUMP` to the bit pattern of a magnitude increments
    # the exponent field. So `BUMP` is `ONE`, the unit of the exponent field, minus the smallest
    # mantissa field for which the rule rounds up.
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

    The value is the element value of `code`, times 2**(scale - 127). The argument `up` is the
    result of `up(scale)`, for a scale that is not NaN.
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
