"""Numbers of every float type as float32 bit patterns that round alike, and back.

bfloat16 and float16 numbers are float32 numbers. Of a float64 number rounding to odd keeps, in the last bit, that
something was discarded. A float32 number so made rounds to any element as the float64 number does, in every mode that
asks only on which side of a value or a middle it lies. Stochastic rounding asks for more bits: it takes the leading
part, and gets the rest added to its random bits.

What has no normal float32 number near it becomes the least normal one (zero in a leading part) or the largest: loops
leave blocks alone whose scale does not make the first vanish, or whose largest element is the second.

Rounding to odd is written in integers, which the theorems about roundings are about, and by a conversion, which loops
use: it takes half the instructions, and gives the same of every number.
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
    """The float32 bit pattern of a float64 number, rounded to odd."""
    magnitude = x & 0x7FFFFFFFFFFFFFFF
    narrowed = (magnitude >> _DISCARDED) - _REBIAS
    narrowed = narrowed | select((x & _REST) == 0, 0, 1)
    narrowed = select(narrowed < _LEAST, select(magnitude == 0, 0, _LEAST), narrowed)
    return low_word(select(narrowed > _LARGEST, _LARGEST, narrowed) | ((x >> 32) & -0x80000000))


@dialect
def leading_part(x: Any) -> Any:
    """The float32 bit pattern of a float64 number, rounded toward zero, and zero below the normal numbers."""
    narrowed = ((x & 0x7FFFFFFFFFFFFFFF) >> _DISCARDED) - _REBIAS
    narrowed = select(narrowed < _LEAST, 0, narrowed)
    return low_word(select(narrowed > _LARGEST, _LARGEST, narrowed) | ((x >> 32) & -0x80000000))


@dialect
def rest(x: Any, leading: Any, scale: Any, e: Any) -> Any:
    """What the leading part leaves, in units of 2**-SR_BITS of the element's quantum there, rounded down."""
    binade = leading & 0x7F800000
    least = (scale + e.emin) << 23
    below = select(binade < least, least - binade, 0) >> 23
    shift = e.discarded - 1 + below
    return low_word(x & _REST) >> select(shift > _DISCARDED, _DISCARDED, shift)


@dialect
def to_odd_by_conversion(x: Any) -> Any:
    """What `to_odd` gives of a number, by a conversion of the part that float32 has bits for."""
    magnitude = x & 0x7FFFFFFFFFFFFFFF
    kept = select(magnitude < _LEAST_WIDE, _LEAST_WIDE, magnitude)
    kept = select(magnitude == 0, 0, kept)
    leading = float64_to_float32((kept & _KEPT) | (x & _SIGN_WIDE))
    narrowed = (leading & 0x7FFFFFFF) | low_word(select((kept & _REST) == 0, 0, 1))
    return select(narrowed > _LARGEST, _LARGEST, narrowed) | (leading & -0x80000000)


@cache
def make_widen(source: ElementFormat) -> Callable[..., Any]:
    """x -> float32 bit pattern of the same finite number; of a float64 number, of one that rounds alike."""

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
    """float32 bit pattern of a value that `value_of_code` made -> bit pattern in another float type.

    bfloat16 and float64 hold every such value; in float16 it is rounded to nearest even.
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
