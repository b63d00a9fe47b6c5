"""Conversions of inputs of every float type to float32, and of float32 results to every float type.

Every bfloat16 or float16 number is a float32 number. A float64 number is rounded to odd: the last
bit of the float32 number is set if any discarded bit is set. In all modes except stochastic
rounding, an element depends only on the number's position among the values and midpoints of the
element format. Rounding to odd keeps this position, so the float32 number rounds to the same
element as the float64 number. For stochastic rounding, a float64 number is split into a leading
part (the number truncated to float32) and a rest, which is added to the random bits.

A nonzero float64 number below the normal float32 numbers is rounded to the least normal number. For
stochastic rounding, the leading part of such a number is zero. A float64 number above the float32
numbers becomes the largest float32 number. These limits can change an element if the block's scale
is very low, or if the block's largest number becomes the largest float32 number. Loops leave such
blocks to the definition.

Two functions round to odd, with equal results. Theorems about rounding use `to_odd`, which computes
with integers. Loops use `to_odd_by_conversion`, which takes half as many instructions as `to_odd`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from mxnum.definition.word import dialect, select
from mxnum.engine.machine.lanes import (
    float16_to_float32,
    float32_to_float16,
    float32_to_float64,
    float64_to_float32,
    low_word,
)
from mxnum.formats import FLOATS, ElementFormat

_DISCARDED = FLOATS["float64"].mantissa_bits - FLOATS["float32"].mantissa_bits
_REBIAS = (FLOATS["float64"].bias - FLOATS["float32"].bias) << FLOATS["float32"].mantissa_bits
_LEAST, _LARGEST = 0x00800000, FLOATS["float32"].max_code
_REST = (1 << _DISCARDED) - 1
_KEPT = -1 << _DISCARDED
_SIGN_WIDE = -1 << 63
_LEAST_WIDE = (FLOATS["float64"].bias - FLOATS["float32"].bias + 1) << FLOATS["float64"].mantissa_bits


@dialect
def to_odd(x: Any) -> Any:
    """Return the float32 bit pattern of a float64 number, rounded to odd.

    A nonzero number below the normal float32 numbers becomes the least normal number.
    """
    magnitude = x & 0x7FFFFFFFFFFFFFFF
    narrowed = (magnitude >> _DISCARDED) - _REBIAS
    narrowed = narrowed | select((x & _REST) == 0, 0, 1)
    narrowed = select(narrowed < _LEAST, select(magnitude == 0, 0, _LEAST), narrowed)
    return low_word(select(narrowed > _LARGEST, _LARGEST, narrowed) | ((x >> 32) & -0x80000000))


@dialect
def leading_part(x: Any) -> Any:
    """Return the float32 bit pattern of a float64 number, rounded toward zero.

    A number below the normal float32 numbers becomes zero.
    """
    narrowed = ((x & 0x7FFFFFFFFFFFFFFF) >> _DISCARDED) - _REBIAS
    narrowed = select(narrowed < _LEAST, 0, narrowed)
    return low_word(select(narrowed > _LARGEST, _LARGEST, narrowed) | ((x >> 32) & -0x80000000))


@dialect
def rest(x: Any, leading: Any, scale: Any, e: Any) -> Any:
    """Return (|x| - |leading|) / (quantum * 2**-SR_BITS), rounded down.

    The quantum is the distance between neighbouring values of the element at x.
    """
    binade = leading & 0x7F800000
    least = (scale + e.emin) << 23
    below = select(binade < least, least - binade, 0) >> 23
    shift = e.discarded - 1 + below
    return low_word(x & _REST) >> select(shift > _DISCARDED, _DISCARDED, shift)


@dialect
def to_odd_by_conversion(x: Any) -> Any:
    """Return the float32 bit pattern of a float64 number, rounded to odd.

    The result equals that of `to_odd`. The processor converts x without its low bits. If any of
    these low bits is set, the function sets the last bit of the result.
    """
    magnitude = x & 0x7FFFFFFFFFFFFFFF
    kept = select(magnitude < _LEAST_WIDE, _LEAST_WIDE, magnitude)
    kept = select(magnitude == 0, 0, kept)
    leading = float64_to_float32((kept & _KEPT) | (x & _SIGN_WIDE))
    narrowed = (leading & 0x7FFFFFFF) | low_word(select((kept & _REST) == 0, 0, 1))
    return select(narrowed > _LARGEST, _LARGEST, narrowed) | (leading & -0x80000000)


@cache
def make_widen(source: ElementFormat) -> Callable[..., Any]:
    """Return `widen(x)`, which returns the float32 bit pattern of a finite number.

    `widen` rounds a float64 number to odd (`to_odd_by_conversion`), so that the float32 number
    rounds to the same element as the float64 number.
    """

    @dialect
    def widen_float32(x):
        return x

    @dialect
    def widen_bfloat16(x):
        return x << 16

    @dialect
    def widen_float16(x):
        return float16_to_float32(x)

    return {
        "float32": widen_float32,
        "bfloat16": widen_bfloat16,
        "float16": widen_float16,
        "float64": to_odd_by_conversion,
    }[source.name]


@cache
def make_convert_value(target: ElementFormat) -> Callable[..., Any]:
    """Return `convert(value)`, which converts a float32 result of `value_of_code` to `target`.

    `convert` takes and returns bit patterns. Every result of `value_of_code` is exact in bfloat16
    and float64. A conversion to float16 rounds to nearest even.
    """

    @dialect
    def convert_float32(value):
        return value

    @dialect
    def convert_bfloat16(value):
        return (value >> 16) & 0xFFFF

    @dialect
    def convert_float16(value):
        return float32_to_float16(value)

    @dialect
    def convert_float64(value):
        return float32_to_float64(value)

    return {
        "float32": convert_float32,
        "bfloat16": convert_bfloat16,
        "float16": convert_float16,
        "float64": convert_float64,
    }[target.name]
