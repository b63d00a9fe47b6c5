"""Operands of products: the parts of an array, and values taken apart into integers.

A value is a sum of terms m * 2**e with a signed integer m below 2**53: one term, or two where a block has an offset.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from mxnum.dtypes import Array, numpy_dtype, signed_bits, stored_bits
from mxnum.engine import cpu, host
from mxnum.formats import E8M0, FLOATS, ElementFormat
from mxnum.layout import Blocks
from mxnum.modes import Overflow, Rounding
from mxnum.scalar.offset import OFFSET
from mxnum.scalar.unpack import FINITE, NAN, make_unpack

FLOAT32 = FLOATS["float32"]
#: Classes of values, each plus one if negative.
NUMBER, ZERO, INFINITY, NOT_A_NUMBER = 0, 2, 4, 6

_UNIT = np.array([E8M0.bias], np.uint8)


@dataclass(frozen=True)
class Term:
    """An array of numbers m * 2**e: normalized signed m, zero for what is not a finite number, and classes."""

    significands: Array
    exponents: Array
    classes: Array

    @classmethod
    def of_codes(cls, codes: Array, source: ElementFormat) -> Term:
        """What codes of any format mean, given as integers of any type and shape."""
        width = source.mantissa_bits
        sign, exponent, significand, kind = make_unpack(source, width)(codes.astype(np.int64))
        finite = kind == FINITE
        magnitude = np.where(finite, np.where(significand == 0, ZERO, NUMBER), INFINITY)
        return cls(
            np.where(finite, np.where(sign == 1, -significand, significand), 0),
            np.where(finite & (significand != 0), exponent - width, 0).astype(np.int32),
            np.where(kind == NAN, NOT_A_NUMBER, magnitude + sign).astype(np.uint8),
        )

    def __getitem__(self, index: Any) -> Term:
        return Term(self.significands[index], self.exponents[index], self.classes[index])

    def scaled(self, scales: Array) -> Term:
        """Times powers of two, given as E8M0 codes."""
        nan = scales == E8M0.nan_code
        return Term(
            np.where(nan, 0, self.significands),
            np.where(nan | (self.significands == 0), 0, self.exponents + (scales.astype(np.int32) - E8M0.bias)),
            np.where(nan, np.uint8(NOT_A_NUMBER), self.classes),
        )


def class_of_sum(first: Term, second: Term) -> Array:
    """The classes of first + second, exactly."""
    a, b = first.classes, second.classes
    # Magnitudes compare as (exponent of the leading bit, significand with its leading bit in one place).
    (size_a, order_a), (size_b, order_b) = (_leading(x) for x in (first, second))
    larger = np.where(order_a == order_b, size_a > size_b, order_a > order_b)
    equal = (order_a == order_b) & (size_a == size_b)
    opposite = np.where(equal, np.uint8(ZERO), np.where(larger, a, b))
    both_infinite = np.where(a == b, a, np.uint8(NOT_A_NUMBER))
    return np.select(
        [
            (a < ZERO) & (b < ZERO) & (a != b),
            (a >= INFINITY) & (b >= INFINITY),
            (b >= INFINITY) | (a // 2 == ZERO // 2),
        ],
        [opposite, both_infinite, b],
        a,
    )


def _leading(x: Term) -> tuple[Array, Array]:
    magnitude = np.abs(x.significands)
    length = np.frexp(magnitude.astype(np.float64))[1]
    return magnitude << (53 - length), x.exponents + length


@dataclass(frozen=True)
class Terms:
    """Values taken apart: what a loop over exact products reads."""

    significands: Array  # (*batch, terms, rows, length)
    exponents: Array
    classes: Array  # (*batch, 1, rows, length): of the values
    special: Array  # (*batch, 1, rows, 1): whether a row holds an infinity or NaN

    @classmethod
    def of(cls, *terms: Term) -> Terms:
        """One term, or two to be added."""
        classes = (terms[0].classes if len(terms) == 1 else class_of_sum(*terms))[..., np.newaxis, :, :]
        return cls(
            np.stack([t.significands for t in terms], -3),
            np.stack([t.exponents for t in terms], -3),
            classes,
            np.any(classes >= INFINITY, -1, keepdims=True),
        )

    @property
    def parts(self) -> list[Array]:
        return [self.significands, self.exponents, self.classes, self.special]

    @property
    def range(self) -> tuple[int, int]:
        """The least and the greatest exponent of a term that is not zero."""
        present = self.exponents[self.significands != 0]
        return (int(present.min()), int(present.max())) if present.size else (0, 0)


@cache
def meanings(element: ElementFormat) -> Term:
    """By code."""
    return Term.of_codes(np.arange(1 << element.bits), element)


@dataclass(frozen=True)
class Operand:
    """Floats, or the parts of an MX array; at least two axes, the last one being summed over."""

    #: Float values, or element codes.
    array: Array
    #: Their float type, or element format.
    format: ElementFormat
    #: What an MX array has besides; `blocks` is empty for floats.
    blocks: Blocks = ()
    scales: Array | None = None
    offsets: Array | None = None

    def viewed(self, view: Callable[[Array], Array], blocks: Blocks) -> Operand:
        """The same view of every part."""
        scales = None if self.scales is None else view(self.scales)
        offsets = None if self.offsets is None else view(self.offsets)
        return Operand(view(self.array), self.format, blocks if self.blocks else (), scales, offsets)

    def row(self) -> Operand:
        """A vector as a matrix of one row."""
        return self.viewed(lambda x: x[np.newaxis], (1, *self.blocks))

    def swapped(self) -> Operand:
        """The last two axes exchanged."""
        return self.viewed(lambda x: x.swapaxes(-1, -2), (*self.blocks[:-2], *self.blocks[:-3:-1]))

    def expanded(self, per_block: Array, axes: int) -> Array:
        """What blocks have, for each element along the first `axes` axes; still for each block along the others."""
        for axis, (block, length) in enumerate(zip(self.blocks[:axes], self.array.shape, strict=False)):
            if block > 1:
                per_block = np.repeat(per_block, block, axis)[(slice(None),) * axis + (slice(length),)]
        return np.ascontiguousarray(per_block)

    def row_scales(self) -> Array:
        """The scale codes of each row, one for each block along the last axis."""
        assert self.scales is not None
        if all(block == 1 for block in self.blocks[:-1]):
            return np.ascontiguousarray(self.scales)
        return self.expanded(self.scales, self.array.ndim - 1)

    def float32(self, threads: int | None = None) -> Array:
        """The values in float32, rounded once to nearest even."""
        if self.format == FLOAT32:
            return self.array
        if not self.array.flags.c_contiguous and self.array.swapaxes(-1, -2).flags.c_contiguous:
            return self.swapped().float32(threads).swapaxes(-1, -2)
        if self.scales is None:
            return narrowed(np.ascontiguousarray(self.array), self.format, FLOAT32)
        return host.dequantize(
            self.array, self.scales, self.offsets, self.format, self.blocks, FLOAT32, threads=threads
        )

    def elements(self) -> Terms:
        """The elements of an MX array, without scales."""
        return Terms.of(meanings(self.format)[self.array])

    def terms(self) -> Terms:
        """The exact values."""
        if self.scales is None:
            return Terms.of(Term.of_codes(signed_bits(self.array), self.format))
        values = meanings(self.format)[self.array].scaled(self.expanded(self.scales, self.array.ndim))
        if self.offsets is None:
            return Terms.of(values)
        offsets = self.expanded(self.offsets, self.array.ndim).view(np.uint16)
        return Terms.of(values, Term.of_codes(offsets, OFFSET))


def narrowed(x: Array, source: ElementFormat, target: ElementFormat) -> Array:
    """A C-contiguous array of floats in another float type: to nearest even, infinity beyond its range."""
    if source == target:
        return x
    result = np.empty(x.shape, numpy_dtype(target))
    encode = cpu.encode_elements(source, target, Rounding.RNE, Overflow.IEEE, None)
    bits, codes = signed_bits(x).reshape(1, -1), stored_bits(result).reshape(1, -1)
    encode(bits, (1, max(1, x.size)), (1, 1), _UNIT, codes, 0)
    return result
