"""Compute many dot products at once, with the same bits as a matrix unit.

The functions of `fused_sum` run here as plain Python, on arrays of 64-bit integers. Each row of an
array belongs to one dot product, and each column to one term of the sums.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from mxnum.definition import fused_sum
from mxnum.definition.unpack import INFINITE, NAN
from mxnum.formats import E8M0, FLOATS, ElementFormat, ScaleFormat
from mxnum.memory.dtypes import Array
from mxnum.modes import Rounding
from mxnum.units.unit import ZERO_EXPONENT, MatrixUnit

_FLOAT32 = FLOATS["float32"]


@dataclass(frozen=True)
class Vectors:
    """Vectors of equal length: each row holds the codes of one vector, with or without scales."""

    codes: Array
    element: ElementFormat
    #: The codes of the scales, one for each `block` elements; None if there are no scales.
    scales: Array | None = None
    scale: ScaleFormat = E8M0
    block: int = 1


class _Parts(NamedTuple):
    """Signed significands and exponents of numbers, and masks for negative, infinite and NaN."""

    significand: Array
    exponent: Array
    sign: Array
    infinite: Array
    nan: Array

    def at(self, index: Any) -> _Parts:
        return _Parts(*(x[index] for x in self))

    def padded(self, length: int) -> _Parts:
        """Return the rows, extended to `length` with zeros."""
        width = ((0, 0), (0, length - self.sign.shape[1]))
        fills = (0, ZERO_EXPONENT, False, False, False)
        return _Parts(*(np.pad(x, width, constant_values=fill) for x, fill in zip(self, fills, strict=True)))


def _of_codes(codes: Array, source: ElementFormat) -> _Parts:
    sign, exponent, significand, kind = fused_sum.make_parts(source)(codes.astype(np.int64))
    signed = np.where(sign == 1, -significand, significand)
    kind = np.broadcast_to(kind, codes.shape)
    return _Parts(signed, exponent, sign == 1, kind == INFINITE, kind == NAN)


def _of_scales(codes: Array, scale: ScaleFormat) -> _Parts:
    if scale.number is not None:
        return _of_codes(codes & codes.dtype.type((1 << (scale.number.bits - 1)) - 1), scale.number)
    nan, no = codes == scale.nan_code, np.zeros(codes.shape, bool)
    exponent = np.where(nan, ZERO_EXPONENT, codes.astype(np.int64) - scale.bias)
    return _Parts(np.where(nan, 0, 1).astype(np.int64), exponent, no, no, nan)


class _Side(NamedTuple):
    elements: _Parts
    scales: _Parts | None
    #: The float32 scales by which a promotion multiplies partial sums. None if the unit does not
    #: promote, or if there are no scales.
    factors: Array | None
    block: int
    point: int


def _side(x: Vectors, unit: MatrixUnit, padded: int, zero_exponent: int) -> _Side:
    """Return the rows of an operand, extended to the length `padded` with zeros."""
    elements, point = _of_codes(x.codes, x.element).padded(padded), x.element.mantissa_bits
    elements = elements._replace(exponent=np.where(elements.significand == 0, zero_exponent, elements.exponent))
    if unit.group > 1:
        # Elements become integer multiples of the smallest positive element, so that products can
        # be added without alignment.
        shift = np.where(elements.significand == 0, 0, elements.exponent - x.element.emin)
        elements = elements._replace(significand=elements.significand << shift, exponent=np.zeros_like(shift))
        point -= x.element.emin
    if x.scales is None or unit.promotion:
        factors = None if x.scales is None else np.ascontiguousarray(x.scales).view(np.float32)
        return _Side(elements, None, factors, x.block, point)
    scales = _of_scales(x.scales, x.scale).padded(-(-padded // x.block))
    return _Side(elements, scales, None, x.block, point + (x.scale.number.mantissa_bits if x.scale.number else 0))


class _Terms(NamedTuple):
    significand: Array
    exponent: Array
    #: The state of each sum: 0 if all its products are finite, else `PLUS`, `MINUS` or `INVALID`.
    state: Array


def _products(a: _Side, b: _Side, unit: MatrixUnit, indices: Array) -> _Terms:
    """Return the terms of a fused sum over the elements at `indices`.

    A term is the sum of `unit.group` products. A unit with scales multiplies each term by the block
    scales of both operands.
    """
    p, q = (side.elements.at((slice(None), indices)) for side in (a, b))
    invalid = p.nan | q.nan | (p.infinite & (q.significand == 0) & ~q.infinite & ~q.nan)
    invalid |= q.infinite & (p.significand == 0) & ~p.infinite & ~p.nan
    signs = np.where(p.sign ^ q.sign, fused_sum.MINUS, fused_sum.PLUS)
    states = np.where(invalid, fused_sum.INVALID, np.where(p.infinite | q.infinite, signs, 0))
    shape = len(states), -1, unit.group
    states = np.bitwise_or.reduce(states.reshape(shape), axis=2)
    significand = (p.significand * q.significand).reshape(shape).sum(axis=2)
    exponent = (p.exponent + q.exponent).reshape(shape)[:, :, 0]
    for side in (a, b):
        if side.scales is not None:
            own = side.scales.at((slice(None), indices[:: unit.group] // side.block))
            significand, exponent = significand * own.significand, exponent + own.exponent
            invalid = own.nan | ((own.significand == 0) & (states != 0))
            states = np.where(invalid, fused_sum.INVALID, states)
    return _Terms(significand, exponent, np.bitwise_or.reduce(states, axis=1))


def fma(a: Array, b: Array, c: Array) -> Array:
    """Return a·b + c for float32 numbers, rounded once to float32."""
    product, addend = a.astype(np.float64) * b.astype(np.float64), c.astype(np.float64)
    high = product + addend
    part = high - product
    low = (product - (high - part)) + (addend - part)
    # Round the sum to odd in float64. Rounding the result to float32 then gives the same bits as
    # rounding the exact sum once.
    bits = high.view(np.int64)
    inexact = np.isfinite(high) & (low != 0) & (bits & 1 == 0)
    bits = np.where(inexact, bits + np.where((low > 0) == (high > 0), 1, -1), bits)
    return np.asarray(bits.view(np.float64).astype(np.float32))


def scaled_sum(x: Array, y: Array, partial: Array, total: Array) -> Array:
    """Return total + s·partial, rounded once, where s is x·y rounded to float32."""
    return fma(x * y, partial, total)


def dots(
    a: Vectors,
    b: Vectors,
    c: Array,
    unit: MatrixUnit,
    k: int,
    align: Callable[..., Any] = fused_sum.align,
    zero_exponent: int = ZERO_EXPONENT,
    promote: Callable[..., Array] = scaled_sum,
) -> Array:
    """Return the bits of the dot product a·b + c for each row of a, b and c.

    Each instruction of the unit adds `k` products. `c` holds bit patterns of the accumulator's
    type. To try another alignment, pass a function `align` that takes the arguments of
    `fused_sum.align`. `zero_exponent` is the exponent of operands that are zero. `promote`
    multiplies a partial sum by the float32 scales of both operands and adds the result to the
    total; the default is `scaled_sum`.
    """
    accumulator, length = FLOATS[unit.accumulator], a.codes.shape[1]
    padded = -(-length // k) * k
    sides = _side(a, unit, padded, zero_exponent), _side(b, unit, padded, zero_exponent)
    order = np.array(unit.order or range(k))
    add = fused_sum.make_add(accumulator)
    total = c.astype(np.int64)
    chain = np.zeros_like(total) if unit.promotion else total
    for start in range(0, padded, k):
        addend, chain = chain, np.zeros_like(chain) if unit.addend == "after" else chain
        for first in range(0, k, unit.terms):
            terms = _products(*sides, unit, start + order[first : first + unit.terms])
            chain = _fused_sum(terms, chain, unit, sides[0].point + sides[1].point, align)
        chain = add(chain, addend) if unit.addend == "after" else chain
        done = start + k
        if unit.promotion and (done % unit.promotion == 0 or done == padded):
            total = _promoted(total, chain, sides, start // unit.promotion, promote)
            chain = np.zeros_like(chain)
    return _with_one_nan(total if unit.promotion else chain, accumulator)


def _fused_sum(terms: _Terms, chain: Array, unit: MatrixUnit, point: int, align: Callable[..., Any]) -> Array:
    """Add the terms of each row to the row's addend in `chain`; return the bits of the sums."""
    accumulator, kept = FLOATS[unit.accumulator], unit.fraction_bits
    own = accumulator.mantissa_bits
    c = _of_codes(chain, accumulator)
    infinite = np.where(c.sign, fused_sum.MINUS, fused_sum.PLUS)
    state = terms.state | np.where(c.nan, fused_sum.INVALID, np.where(c.infinite, infinite, 0))
    largest = np.maximum(terms.exponent.max(axis=1), c.exponent)
    total = _aligned(c.significand, c.exponent, largest, own, kept, align)
    total = total + _aligned(terms.significand, terms.exponent, largest[:, None], point, kept, align).sum(axis=1)
    finish = fused_sum.make_finish(accumulator, Rounding(unit.rounding))
    return np.asarray(finish(total, largest, kept, own - unit.result_bits, state))


def _aligned(significand: Array, exponent: Array, largest: Array, point: int, kept: int, align: Any) -> Array:
    sign = (significand < 0).astype(np.int64)
    return np.asarray(align(sign, exponent, abs(significand), largest, max(kept - point, 0), max(point - kept, 0)))


def _promoted(total: Array, chain: Array, sides: tuple[_Side, _Side], at: int, promote: Callable[..., Array]) -> Array:
    """Return total + s·chain in float32, where s is the product of both operands' `factors`."""
    if sides[0].factors is None and sides[1].factors is None:
        return np.asarray(fused_sum.make_add(_FLOAT32)(total, chain))
    one = np.ones((1, at + 1), np.float32)
    x, y = (one if side.factors is None else side.factors for side in sides)
    with np.errstate(all="ignore"):
        found = promote(x[:, at], y[:, at], _floats(chain), _floats(total))
    return np.asarray(found.view(np.uint32).astype(np.int64))


def _floats(codes: Array) -> Array:
    return codes.astype(np.uint32).view(np.float32)


def _with_one_nan(codes: Array, accumulator: ElementFormat) -> Array:
    """Return the bit patterns, with every NaN replaced by the NaN 0x7F...F."""
    mask = (1 << accumulator.bits) - 1
    magnitude = codes & (mask >> 1)
    return np.where(magnitude > accumulator.max_code + 1, mask >> 1, codes & mask).astype(f"u{accumulator.bits // 8}")
