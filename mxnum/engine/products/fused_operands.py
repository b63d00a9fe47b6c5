"""Operands of fused sums: rows of integers, padded to the length of whole matrix instructions."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from mxnum.definition.fused_sum import make_parts
from mxnum.definition.unpack import INFINITE, NAN
from mxnum.engine.products.operands import Operand
from mxnum.engine.products.terms import INFINITY, NOT_A_NUMBER, NUMBER, ZERO
from mxnum.formats import E8M0, ElementFormat, ScaleFormat
from mxnum.memory.dtypes import Array, signed_bits
from mxnum.units.unit import ZERO_EXPONENT, MatrixUnit


@dataclass(frozen=True)
class Parts:
    """An array of numbers, stored as signed significands, exponents and classes (see `terms`)."""

    significands: Array
    exponents: Array
    classes: Array

    @classmethod
    def of_codes(cls, codes: Array, source: ElementFormat) -> Parts:
        """Return the significands, exponents and classes of the numbers that the codes encode.

        The codes are integers of any type and shape.
        """
        sign, exponent, significand, kind = make_parts(source)(codes.astype(np.int64))
        magnitude = np.where(kind == INFINITE, INFINITY, np.where(significand == 0, ZERO, NUMBER))
        return cls(
            np.where(sign == 1, -significand, significand).astype(np.int32),
            exponent.astype(np.int32),
            np.where(kind == NAN, NOT_A_NUMBER, magnitude + sign).astype(np.uint8),
        )

    @classmethod
    def of_scales(cls, scales: Array, scale: ScaleFormat) -> Parts:
        """Return the significands, exponents and classes of the scales of an MX array."""
        if scale.number is not None:
            bits = signed_bits(np.ascontiguousarray(scales))
            return cls.of_codes(bits.astype(np.int64) & ((1 << (scale.number.bits - 1)) - 1), scale.number)
        nan = scales == E8M0.nan_code
        return cls(
            np.where(nan, 0, 1).astype(np.int32),
            np.where(nan, ZERO_EXPONENT, scales.astype(np.int32) - E8M0.bias).astype(np.int32),
            np.where(nan, NOT_A_NUMBER, NUMBER).astype(np.uint8),
        )

    def padded(self, length: int) -> Parts:
        """Return these numbers, with each row padded to `length` by zeros."""
        rest = length - self.classes.shape[1]
        if not rest:
            return self
        fills = (0, ZERO_EXPONENT, ZERO)
        arrays = (self.significands, self.exponents, self.classes)
        return Parts(*(np.pad(x, ((0, 0), (0, rest)), constant_values=v) for x, v in zip(arrays, fills, strict=True)))

    def __getitem__(self, index: Any) -> Parts:
        return Parts(self.significands[index], self.exponents[index], self.classes[index])


#: The bits of 1.0 in float32.
_ONE = 127 << 23


@cache
def table(source: ElementFormat) -> Parts:
    """Return the significand, exponent and class of every code of a format, indexed by code."""
    return Parts.of_codes(np.arange(1 << source.bits), source)


@dataclass(frozen=True)
class Side:
    """One matrix of a product: its elements, and a scale for every `block` elements of a row."""

    elements: Parts
    #: The scales that multiply the terms of a sum. If the unit multiplies partial sums by `factors`
    #: instead, these scales are all 1.
    scales: Parts
    #: The float32 scales that multiply partial sums, as bit patterns.
    factors: Array
    block: int
    #: The number of fraction bits of the product (significand of an element) * (significand of its
    #: scale).
    point: int
    #: True for each row that holds an infinity or NaN.
    special: Array


def side(x: Operand, scale: ScaleFormat | None, unit: MatrixUnit, k: int) -> Side:
    """Return a matrix as a `Side`, with each row padded to a multiple of `k` elements.

    A matrix instruction adds `k` products. The argument `x` is a result of `Operand.by_rows`. In a
    row of the `Side`, elements lie in the order in which the unit adds their products.

    If the unit adds products in groups, each significand is the element divided by the format's
    smallest positive number. Products can then be added without alignment.
    """
    source, (rows, length) = x.format, x.array.shape
    padded = -(-length // k) * k
    elements = table(source)[x.array].padded(padded)
    if unit.order:
        elements = elements[:, (np.arange(0, padded, k)[:, None] + np.array(unit.order)).ravel()]
    point = source.mantissa_bits
    if unit.group > 1:
        shift = np.where(elements.significands == 0, 0, elements.exponents - source.emin)
        elements = Parts(elements.significands << shift, np.zeros_like(elements.exponents), elements.classes)
        point -= source.emin
    block = x.blocks[-1] if x.scales is not None else max(padded, 1)
    scales = Parts(np.ones((rows, 1), np.int32), np.zeros((rows, 1), np.int32), np.zeros((rows, 1), np.uint8))
    factors = np.full((rows, 1), _ONE, np.int32)
    if x.scales is not None and scale is not None and unit.promotion:
        factors = np.ascontiguousarray(x.scales).view(np.int32)
    elif x.scales is not None and scale is not None:
        scales = Parts.of_scales(x.scales, scale).padded(-(-padded // block))
        point += 0 if scale.number is None else scale.number.mantissa_bits
    special = np.any(elements.classes >= INFINITY, 1) | np.any(scales.classes >= INFINITY, 1)
    return Side(elements, scales, factors, block, point, special)
