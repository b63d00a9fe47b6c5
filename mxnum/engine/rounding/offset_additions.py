"""Offsets of blocks taken away and added by float32 additions: theorems say that they give what the definition does."""

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
    """`make_fast_difference` where x is finite."""
    widen = make_widen(source)

    @dialect
    def finite_difference(x, offset):
        return subtract_float32(widen(x), offset)

    finite_difference.__name__ = f"finite_difference_{source.name}"
    return finite_difference


@cache
def make_fast_difference(source: ElementFormat) -> Callable[..., Any]:
    """(x, offset) -> float32 bit pattern of x - offset, for a finite offset given as float32 bits.

    What stands in a NaN beside its sign is not looked at by what comes next.
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
    """float32 bit pattern of value + offset, for an offset that is finite; NaN and infinities stay what they are."""
    magnitude = value & 0x7FFFFFFF
    return select(magnitude < 0x7F800000, add_float32(value, offset), value)
