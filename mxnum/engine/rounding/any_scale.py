"""Rounding for every scale and every finite number.

A number is divided by the scale of its block, and `float_additions` rounds the quotient at scale 1.
A function that returns a value, not a code, then multiplies the rounded quotient by the scale.
Loops use this module for blocks whose scale or magnitudes lie outside the domain of
`float_additions`.

Scales are powers of two. `bring` divides by a scale exactly, but may raise the quotient's magnitude
to 2**-126 or lower it to 2**100. The limits change no element code, because 2**-126 is far below
half the quantum of every element, and 2**100 is larger than every element. `return_to` multiplies
by a scale and rounds once, to nearest even, as the definition does. Multiplying subnormal numbers
is slow on many processors, so this module uses additions to convert subnormal numbers to normal
ones and back.
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
#: The bit patterns of the least normal number and of 1. For the bits x of a subnormal number s,
#: `x | _ONE` is the bit pattern of 1 + 2**126 * s.
_NORMAL, _ONE = 1 << 23, UNIT << 23
#: At scale codes below `_LOW`, `return_to` first computes its result times 2**`_RAISED`. If this
#: product is below 1, the result is subnormal.
_LOW, _RAISED = 64, 126
#: The least exponent field of a nonzero result of `bring`, for scales of 1 or more.
_LEAST = 1
#: The bit pattern of 2**100, which is larger than every element.
_GREATEST = (127 + 100) << 23


@dialect
def bring(x: Any, scale: Any) -> Any:
    """Return x / 2**(scale - 127) for the bit pattern of a finite float32 number x.

    The function limits the magnitude of the quotient. The limits change no element code.
    """
    magnitude = x & 0x7FFFFFFF
    least = select(scale < UNIT, 0, (scale - UNIT + _LEAST) << 23)
    kept = select(magnitude < least, select(magnitude == 0, 0, least), magnitude)
    is_small = kept < _NORMAL
    # For scale code 254 the factor would be 2**-127, which is subnormal. So the exponent field of
    # the number is lowered by 1, which halves the number, and the factor is 2**-126.
    number = select(is_small, subtract_float32(kept | _ONE, _ONE), kept - select(scale == 254, _NORMAL, 0))
    power = (254 - select(scale == 254, 253, scale)) << 23
    y = multiply_float32(number, select(is_small, (UNIT + 1 - select(scale > UNIT, UNIT, scale)) << 23, power))
    return select(y > _GREATEST, _GREATEST, y) | (x & _SIGN)


@dialect
def return_to(value: Any, scale: Any) -> Any:
    """Return value * 2**(scale - 127), rounded once.

    `value` is the value of an element at scale 1. `value` and the result are float32 bit patterns.
    """
    magnitude, is_low = value & 0x7FFFFFFF, scale < _LOW
    product = multiply_float32(magnitude, select(is_low, scale + _RAISED, scale) << 23)
    is_small = product < _ONE
    lowered = select(is_small, add_float32(product, _ONE), product) - select(is_small, _ONE, _RAISED << 23)
    return select(magnitude < _INFINITY, select(is_low, lowered, product), magnitude) | (value & _SIGN)


@cache
def make_code_anywhere(rounding: Rounding, by_parity: bool) -> Callable[..., Any]:
    """Return `code_anywhere(x, scale, random, constants)`, which rounds x to an element code.

    `code_anywhere` gives the same results as the function that `float_additions.make_code` returns,
    but accepts every finite x and every scale except NaN.
    """
    code = make_code(rounding, by_parity)

    @dialect
    def code_anywhere(x, scale, random, e):
        return code(bring(x, scale), UNIT, random, e)

    return code_anywhere


@cache
def make_value_anywhere(rounding: Rounding, by_parity: bool) -> Callable[..., Any]:
    """Return `value_anywhere(x, scale, random, constants)`, which rounds x to an element's value.

    `value_anywhere` gives the same results as the function that `float_additions.make_value`
    returns, but accepts every finite x and every scale except NaN.
    """
    value = make_value(rounding, by_parity)

    @dialect
    def value_anywhere(x, scale, random, e):
        return return_to(value(bring(x, scale), UNIT, random, e), scale)

    return value_anywhere


@dialect
def value_of_code_anywhere(code: Any, scale: Any, e: Any) -> Any:
    """Return the float32 bit pattern of element value * 2**(scale - 127), rounded once.

    The function gives the same results as `float_additions.value_of_code`, but accepts every scale
    except NaN.
    """
    return return_to(value_of_code(code, UNIT, e), scale)
