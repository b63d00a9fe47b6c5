"""Values split into integers: each value is a sum of terms m * 2**e, with abs(m) < 2**53.

Each m is an integer. A value has one term, or two terms if its block has an offset.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from mxnum.definition.offset import OFFSET
from mxnum.definition.unpack import FINITE, NAN, make_unpack
from mxnum.engine.products.operands import Operand
from mxnum.formats import E8M0, FLOATS, ElementFormat
from mxnum.memory.dtypes import Array, signed_bits

#: The classes of positive values. The class of a negative value is one more than the class of its
#: magnitude.
NUMBER, ZERO, INFINITY, NOT_A_NUMBER = 0, 2, 4, 6


@dataclass(frozen=True)
class Term:
    """An array of numbers m * 2**e, and their classes.

    The signed significand m is zero for infinities and NaN.
    """

    significands: Array
    exponents: Array
    classes: Array

    @classmethod
    def of_codes(cls, codes: Array, source: ElementFormat) -> Term:
        """Return the values of codes of a format. The codes are integers of any type and shape."""
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
        """Return the numbers of this term times scales, which are E8M0 codes or float32 values.

        If scales are float32 values, the significands of this term must have at most 29 bits, so
        that the products fit into 53 bits.
        """
        if scales.dtype == np.float32:
            return self * Term.of_codes(signed_bits(scales), FLOATS["float32"])
        nan = scales == E8M0.nan_code
        return Term(
            np.where(nan, 0, self.significands),
            np.where(nan | (self.significands == 0), 0, self.exponents + (scales.astype(np.int32) - E8M0.bias)),
            np.where(nan, np.uint8(NOT_A_NUMBER), self.classes),
        )

    def __mul__(self, other: Term) -> Term:
        """Return the exact products. The product is NaN for a NaN factor, and for 0 * infinity."""
        kinds = [x.classes & ~np.uint8(1) for x in (self, other)]
        kind, least = np.maximum(*kinds), np.minimum(*kinds)
        is_nan = (kind == NOT_A_NUMBER) | ((kind == INFINITY) & (least == ZERO))
        sign = (self.classes ^ other.classes) & np.uint8(1)
        is_number = kind == NUMBER
        return Term(
            np.where(is_number, self.significands * other.significands, 0),
            np.where(is_number, self.exponents + other.exponents, 0).astype(np.int32),
            np.where(is_nan, np.uint8(NOT_A_NUMBER), kind | sign),
        )


@cache
def meanings(element: ElementFormat) -> Term:
    """Return the values of all elements of a format, indexed by code."""
    return Term.of_codes(np.arange(1 << element.bits), element)


@dataclass(frozen=True)
class Terms:
    """A matrix of values, split into the terms from which loops compute exact products."""

    significands: Array  # Significands and exponents have the shape (terms, rows, length).
    exponents: Array
    classes: Array  # The classes of values, of shape (rows, length).
    special: Array  # True for each row that holds an infinity or NaN

    @classmethod
    def of(cls, *terms: Term) -> Terms:
        """Return a matrix of values: each value is one term, or the sum of two terms."""
        classes = terms[0].classes if len(terms) == 1 else class_of_sum(*terms)
        significands, exponents = np.stack([t.significands for t in terms]), np.stack([t.exponents for t in terms])
        return cls(significands, exponents, classes, np.any(classes >= INFINITY, -1))

    @classmethod
    def of_elements(cls, x: Operand) -> Terms:
        """Return the elements of the matrix `x`, not multiplied by scales."""
        return cls.of(meanings(x.format)[x.array])

    @classmethod
    def of_values(cls, x: Operand) -> Terms:
        """Return the exact values of `x`, a matrix that comes from `Operand.by_rows`."""
        if x.scales is None:
            return cls.of(Term.of_codes(signed_bits(x.array), x.format))
        values = meanings(x.format)[x.array].scaled(_for_each_element(x.scales, x))
        if x.offsets is None:
            return cls.of(values)
        return cls.of(values, Term.of_codes(_for_each_element(x.offsets.view(np.uint16), x), OFFSET))

    @property
    def parts(self) -> list[Array]:
        return [self.significands, self.exponents, self.classes, self.special]

    @property
    def range(self) -> tuple[int, int]:
        """The least and the greatest exponent among the terms that are not zero."""
        present = self.exponents[self.significands != 0]
        return (int(present.min()), int(present.max())) if present.size else (0, 0)


def _for_each_element(per_block: Array, x: Operand) -> Array:
    length = x.array.shape[-1]
    return np.repeat(per_block, min(x.blocks[-1], length), -1)[:, :length]


def class_of_sum(first: Term, second: Term) -> Array:
    """Return the classes of the exact sums first + second."""
    a, b = first.classes, second.classes
    # The magnitude with the higher leading bit is greater. If both leading bits have the same
    # position, the aligned significands are compared.
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
