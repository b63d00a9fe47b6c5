"""Subtract the offsets of blocks from numbers, and add them to decoded values, in float32.

Theorems in `proofs` show that these functions give the same results as `mxnum.definition`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from mxnum.definition.word import dialect, select
from mxnum.engine.machine.lanes import add_float32, subtract_float32
from mxnum.engine.rounding.as_float32 import make_widen
from mxnum.formats import ElementFormat


@cache
def make_finite_difference(source: ElementFormat) -> Callable[..., Any]:
    """Return `finite_difference(x, offset)`, which returns x - offset for finite x."""
    widen = make_widen(source)

    @dialect
    def finite_difference(x, offset):
        return subtract_float32(widen(x), offset)

    finite_difference.__name__ = f"finite_difference_{source.name}"
    return finite_difference


@cache
def make_fast_difference(source: ElementFormat) -> Callable[..., Any]:
    """Return `fast_difference(x, offset)`, which returns the float32 bit pattern of x - offset.

    `offset` is the float32 bit pattern of a finite number. If x is NaN, the result is a NaN with
    the sign of x. It does not have the payload of x, because later conversions ignore the payload.
    """
    finite_difference = make_finite_difference(source)
    MAGNITUDE, INFINITY = (1 << (source.bits - 1)) - 1, source.max_code + 1
    SIGN_PLACE = source.bits - 1

    @dialect
    def fast_difference(x, offset):
        magnitude = x & MAGNITUDE
        sign = 0 - ((x >> SIGN_PLACE) & 1)
        special = select(magnitude == INFINITY, 0x7F800000, 0x7FC00000) | (sign << 31)
        return select(magnitude < INFINITY, finite_difference(x, offset), special)

    fast_difference.__name__ = f"fast_difference_{source.name}"
    return fast_difference


@dialect
def fast_sum(value, offset):
    """Return the float32 bit pattern of value + offset for a finite offset.

    If `value` is NaN or infinity, it is returned unchanged.
    """
    magnitude = value & 0x7FFFFFFF
    return select(magnitude < 0x7F800000, add_float32(value, offset), value)
