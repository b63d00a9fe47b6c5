"""Compute float32 sums and fused multiply-adds on bit patterns, with integer arithmetic.

A result is rounded once, to nearest even. It has the same bits as the result of hardware in the
default floating-point environment, except that a NaN is always the canonical NaN.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from mxnum.definition.add import make_add, sum_width
from mxnum.definition.pack import make_pack
from mxnum.definition.unpack import FINITE, INFINITE, NAN, make_normalize, make_unpack
from mxnum.definition.word import dialect, select
from mxnum.formats import FLOATS
from mxnum.modes import Overflow, Rounding

FLOAT32 = FLOATS["float32"]
_WORD = 64


@cache
def make_round(width: int) -> Callable[..., Any]:
    """Return `round_float32(sign, exponent, significand, kind)`, which rounds a number to float32.

    `round_float32` returns a bit pattern in 0..2**32-1. Bit `width` is the leading bit of the
    significand.
    """
    pack = make_pack(FLOAT32, Rounding.RNE, Overflow.IEEE, width, _WORD)

    @dialect
    def round_float32(sign, exponent, significand, kind):
        return pack(sign, exponent, significand, kind, 0)

    return round_float32


@cache
def make_add_float32() -> Callable[..., Any]:
    """Return `add_float32(a, b)`, which returns the bit pattern of a + b, rounded once."""
    width = FLOAT32.mantissa_bits + 1
    unpack, add, round_float32 = make_unpack(FLOAT32, width), make_add(width), make_round(sum_width(width))

    @dialect
    def add_float32(a, b):
        sign_a, exponent_a, significand_a, kind_a = unpack(a)
        sign_b, exponent_b, significand_b, kind_b = unpack(b)
        sign, exponent, total, kind = add(
            sign_a, exponent_a, significand_a, kind_a, sign_b, exponent_b, significand_b, kind_b
        )
        return round_float32(sign, exponent, total, kind)

    return add_float32


@cache
def make_fma_float32() -> Callable[..., Any]:
    """Return `fma_float32(a, b, c)`, which returns the bit pattern of a * b + c, rounded once.

    The product is exact, and the sum keeps a sticky bit.
    """
    width = 2 * FLOAT32.mantissa_bits + 1  # The highest position of the leading bit of a product.
    unpack, unpack_wide = make_unpack(FLOAT32, FLOAT32.mantissa_bits), make_unpack(FLOAT32, width)
    normalize, add, round_float32 = make_normalize(width), make_add(width), make_round(sum_width(width))

    @dialect
    def fma_float32(a, b, c):
        sign_a, exponent_a, significand_a, kind_a = unpack(a)
        sign_b, exponent_b, significand_b, kind_b = unpack(b)
        sign_c, exponent_c, significand_c, kind_c = unpack_wide(c)
        kind = select(kind_a > kind_b, kind_a, kind_b)
        # IEEE 754: infinity times zero is NaN.
        zero_a = select(kind_a == FINITE, significand_a, 1) == 0
        zero_b = select(kind_b == FINITE, significand_b, 1) == 0
        no_number = select(zero_a, kind_b, select(zero_b, kind_a, FINITE)) == INFINITE
        kind = select(no_number, NAN, kind)
        exponent, product = normalize(exponent_a + exponent_b + 1, significand_a * significand_b)
        sign, exponent, total, kind = add(
            sign_a ^ sign_b, exponent, product, kind, sign_c, exponent_c, significand_c, kind_c
        )
        return round_float32(sign, exponent, total, kind)

    return fma_float32
