"""float64 numbers as float32 bit patterns that round alike.

Rounding to odd keeps, in the last bit, that something was discarded. A float32 number so made rounds to any element as
the float64 number does, in every mode that asks only on which side of a value or a middle it lies. Stochastic rounding
asks for more bits: it takes the leading part, and gets the rest added to its random bits.

What has no normal float32 number near it becomes the least normal one (zero in a leading part) or the largest: loops
leave blocks alone whose scale does not make the first vanish, or whose largest element is the second.

Rounding to odd is written in integers, which the theorems about roundings are about, and by a conversion, which loops
use: it takes half the instructions, and gives the same of every number.
"""

from __future__ import annotations

from typing import Any

from mxnum.engine.machine.lanes import float64_to_float32, low_word
from mxnum.formats import FLOATS
from mxnum.scalar.word import dialect, select

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
