"""Helpers for theorems about float scales: run the definition on ratios, and read leading digits.

A factor is the product of a scale and a tensor scale. Both the definition and the fast formulations
give results that depend only on the ratio of x to the factor. `proofs.machines.ratios` covers every
ratio exactly.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import numpy as np
import z3

from mxnum import formats
from mxnum.definition.unpack import FINITE, ZERO_EXPONENT
from proofs.machines.checks import patched
from proofs.machines.ratios import EXPONENTS, Form, Ratios, leading, paths

FLOAT32 = formats.FLOATS["float32"]
FACTOR = "x is any finite number; the factor is any finite product, with a sign bit of 0, of a scale and a tensor scale"
#: Proofs try all digit sequences of a quotient only for scales with at most this many mantissa
#: bits. Wider scales have too many digit sequences.
MOST_DIGITS = 10
SCALES: Any = tuple(scale for scale in formats.SCALES.values() if scale.number is not None)


def unpacking(make_unpack: Any, *exponents: Any, sign: int = 0) -> Any:
    """Return a stand-in for `make_unpack`, so that a proof can choose the unpacked numbers.

    The n-th call of the stand-in returns a function. This function returns its argument as the
    significand, and entry n of `exponents` as the exponent. If entry n is None, the n-th call
    returns what `make_unpack` returns.
    """
    left = iter(exponents)

    def make(source: Any, width: int) -> Any:
        exponent = next(left)
        return make_unpack(source, width) if exponent is None else lambda x: (sign, exponent, x, FINITE)

    return make


def pack_nothing(*how: Any) -> Any:
    """Return a stand-in for a packing function that returns (exponent, significand) unchanged."""
    return lambda sign, exponent, significand, kind, random: (exponent, significand)


def packing(over: Any, make: str, *how: Any) -> Any:
    """Return the packing function that the function `make` of the module `over` creates."""
    kept, make_pack = dict[str, Any](), over.make_pack
    with patched(over, make_pack=lambda *how: kept.setdefault("pack", make_pack(*how))):
        getattr(over, make)(*how)
    return kept["pack"]


def over_factors(encode: Any, source: Any, width: int) -> Iterator[tuple[Ratios, Any]]:
    """Yield (ratios of significands, result of `encode`) for every x and every factor.

    The significand of a factor has `width` bits after its leading bit.
    """
    down = Fraction(2) ** (width - source.mantissa_bits)

    def on_forms(x: Form, factor: Form) -> Any:
        return encode(x, 0, factor, FINITE, 0)

    for ratios, made in paths(on_forms, (source.mantissa_bits + 1, width + 1), 1 / down / 2, 2 / down):
        yield ratios.times(down), made


def over_tensor_scales(find: Any, source: Any) -> Iterator[tuple[Ratios, Any]]:
    """Yield (ratios of significands, result of `find`) for all magnitudes and tensor scales."""
    bits = source.mantissa_bits + 1, FLOAT32.mantissa_bits + 1
    unit = Fraction(2) ** (FLOAT32.mantissa_bits - source.mantissa_bits)
    low, high = Fraction(1 << bits[0] - 1, 1 << bits[1]), Fraction(1 << bits[0], 1 << bits[1] - 1)
    for ratios, made in paths(find, bits, low, high):
        yield ratios.times(unit), made


def is_leading(got: tuple[Any, int], ratios: Ratios, digits: int, down: int = 0) -> bool:
    """Return True if `got` holds the leading digits and the exponents of the ratios.

    `got` is a pair (exponents, significand). Its significand must be the one that `leading`
    returns. Its exponents must be `EXPONENTS` plus the exponent that `leading` returns, minus
    `down`.
    """
    exponent, significand = leading(ratios, digits)
    return got[1] == significand and bool(np.all(got[0] == EXPONENTS + exponent - down))


def any_quotient() -> tuple[z3.BitVecRef, list[z3.BoolRef]]:
    """Return the bits of a symbolic float64, and premises about them.

    The premises say that the float64 is not negative, subnormal or NaN.
    """
    q = z3.BitVec("quotient", 64)
    return q, [q >= 0, q <= 0x7FF << 52, z3.Or(q == 0, q >= 1 << 52)]


def leading_of_float64(q: z3.BitVecRef, digits: int) -> tuple[z3.BitVecRef, z3.BitVecRef]:
    """Return the exponent and the leading digits of a float64 (`ZERO_EXPONENT` and 0 for zero)."""
    fraction, below = q & ((1 << 52) - 1), (1 << (52 - digits)) - 1
    whole = z3.LShR(fraction | (1 << 52), 52 - digits) << 1
    one, zero = z3.BitVecVal(1, 64), z3.BitVecVal(0, 64)
    significand = whole | z3.If(fraction & below == 0, zero, one)
    exponent = z3.LShR(q, 52) - 1023
    return z3.If(q == 0, z3.BitVecVal(ZERO_EXPONENT, 64), exponent), z3.If(q == 0, zero, significand)
