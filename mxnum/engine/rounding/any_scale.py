"""Rounding for every scale and every finite number.

Products bring them into the domain of `float_additions`.

These functions multiply a number by the power of two that takes the scale of its block to 1, and
round it there. A second product takes a value back to the scale. A nonzero first product below
2**-126 becomes 2**-126, which is far below half the quantum of every element; all other first
products are exact. No product takes or makes a subnormal number, for which processors are slow:
additions turn subnormal numbers into normal ones and back. The second product, or its addition,
rounds a value once, to nearest even, as the definition does. Loops use these functions for blocks
outside the domain of `float_additions`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from mxnum.definition.word import dialect, select
from mxnum.engine.machine.lanes import add_float32, multiply_float32, subtract_float32
from mxnum.engine.rounding.float_additions import make_code, make_value, value_of_code
from mxnum.formats import E8M0
from mxnum.modes import Rounding

UNIT = E8M0.bias
_SIGN = -0x80000000
_INFINITY = 0x7F800000
#: The least normal number, and 1. Putting the fraction of a subnormal number behind 1 and
#: subtracting 1 multiplies the number by 2**126.
_NORMAL, _ONE = 1 << 23, UNIT << 23
#: Below the scale `_LOW` values are first made 2**`_RAISED` times as large. If the product is below
#: 1, the value itself is subnormal.
_LOW, _RAISED = 64, 126
#: The exponent field of the least magnitude that products make if the scale is above 1.
_LEAST = 1
#: This magnitude and all above it are too large for every element.
_GREATEST = (127 + 100) << 23


@dialect
def bring(x: Any, scale: Any) -> Any:
    """Return x / 2**(scale - 127) for a finite float32 bit pattern.

    The result is clamped to limits that change no code.
    """
    magnitude = x & 0x7FFFFFFF
    least = select(scale < UNIT, 0, (scale - UNIT + _LEAST) << 23)
    kept = select(magnitude < least, select(magnitude == 0, 0, least), magnitude)
    is_small = kept < _NORMAL
    # At scale 254 the factor 2**-127 would be subnormal. Numbers are not small there, so
    # decrementing their exponent field halves them.
    number = select(is_small, subtract_float32(kept | _ONE, _ONE), kept - select(scale == 254, _NORMAL, 0))
    power = (254 - select(scale == 254, 253, scale)) << 23
    y = multiply_float32(number, select(is_small, (UNIT + 1 - select(scale > UNIT, UNIT, scale)) << 23, power))
    return select(y > _GREATEST, _GREATEST, y) | (x & _SIGN)


@dialect
def return_to(value: Any, scale: Any) -> Any:
    """Return value * 2**(scale - 127), rounded once.

    The value of an element is a float32 bit pattern.
    """
    magnitude, is_low = value & 0x7FFFFFFF, scale < _LOW
    product = multiply_float32(magnitude, select(is_low, scale + _RAISED, scale) << 23)
    is_small = product < _ONE
    lowered = select(is_small, add_float32(product, _ONE), product) - select(is_small, _ONE, _RAISED << 23)
    return select(magnitude < _INFINITY, select(is_low, lowered, product), magnitude) | (value & _SIGN)


@cache
def make_code_anywhere(rounding: Rounding, by_parity: bool) -> Callable[..., Any]:
    """Return the function of `float_additions.make_code`, extended.

    It is right for every finite x and every scale but NaN.
    """
    code = make_code(rounding, by_parity)

    @dialect
    def code_anywhere(x, scale, random, e):
        return code(bring(x, scale), UNIT, random, e)

    return code_anywhere


@cache
def make_value_anywhere(rounding: Rounding, by_parity: bool) -> Callable[..., Any]:
    """Return the function of `float_additions.make_value`, extended.

    It is right for every finite x and every scale but NaN.
    """
    value = make_value(rounding, by_parity)

    @dialect
    def value_anywhere(x, scale, random, e):
        return return_to(value(bring(x, scale), UNIT, random, e), scale)

    return value_anywhere


@dialect
def value_of_code_anywhere(code: Any, scale: Any, e: Any) -> Any:
    """Return what `float_additions.value_of_code` returns, for every scale but NaN."""
    return return_to(value_of_code(code, UNIT, e), scale)
