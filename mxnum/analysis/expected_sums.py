"""Compute the expected mean and variance of the error of each dot product in a sample of results.

The magnitudes of terms and of exact partial sums determine which bits each step drops. Dropped bits
are modelled as uniform and independent. `compare_products` divides the difference between the
products of two software stacks into parts, and compares each part with the error that this module
predicts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from mxnum.formats import FLOATS
from mxnum.memory.dtypes import Array
from mxnum.units import MatrixUnit
from mxnum.units.unit import OPERANDS

#: The exponent that `_exponents` returns for zero. It is below the exponents of all other numbers.
_NOTHING = -(1 << 12)
#: `_lowest_bits` returns this exponent for zero, because zero is a multiple of every power of two.
_EVERYTHING = 1 << 12


class Error(NamedTuple):
    """The mean and the variance of the error of each sum."""

    mean: Array
    variance: Array

    @property
    def square(self) -> float:
        """The expected square of the error, averaged over the sums."""
        return float(np.mean(self.mean**2 + self.variance)) if self.mean.size else 0.0


@dataclass(frozen=True)
class Sums:
    """The float64 operands of sums of products. Sum i is the dot product of a[i] and b[i]."""

    a: Array
    b: Array

    def no_error(self) -> Error:
        """Return the error of exact sums, which is zero."""
        return Error(np.zeros(len(self.a)), np.zeros(len(self.a)))

    def cut(self, segment: int, terms: int, order: tuple[int, ...] = (), bits: int = 53) -> _Terms:
        """Divide each sum into segments, and each segment into steps.

        A segment has `segment` products, and a step has `terms` products. The last segment, and the
        last step of each segment, are padded with zeros. The mantissa of each operand is assumed to
        have at most `bits` bits.
        """
        count, k = self.a.shape
        period = len(order) or 1
        padded = -(-k // period) * period
        index = np.arange(padded)
        if order:
            index = (np.arange(0, padded, period)[:, None] + np.array(order)).ravel()
        segment = min(segment, padded)
        exponents = _exponents(self.a) + _exponents(self.b)
        low = np.maximum(_lowest_bits(self.a) + _lowest_bits(self.b), exponents - 2 * bits)
        made = []
        for x, fill in ((self.a * self.b, 0), (exponents, 2 * _NOTHING), (low, _EVERYTHING)):
            x = np.pad(x, ((0, 0), (0, padded - k)), constant_values=fill)[:, index]
            x = np.pad(x, ((0, 0), (0, -padded % segment)), constant_values=fill).reshape(count, -1, segment)
            x = np.pad(x, ((0, 0), (0, 0), (0, -segment % terms)), constant_values=fill)
            made.append(x.reshape(*x.shape[:2], -1, terms))
        return _Terms(*made)


class _Terms(NamedTuple):
    """Products with the axes (sum, segment, step, term)."""

    products: Array
    exponents: Array
    #: For each product, a number e such that the product is a multiple of 2**e.
    last: Array

    def partial_sums(self) -> tuple[Array, Array]:
        """Return the exact sum s after each step, and an e such that s is a multiple of 2**e."""
        last = np.minimum.accumulate(self.last.min(axis=3), axis=2)
        return np.cumsum(self.products.sum(axis=3), axis=2), last


def rounded_to_nearest(sums: Sums, terms: int, fraction_bits: int = 23) -> Error:
    """Return the expected error of sums that are rounded to nearest after each `terms` products."""
    steps = _dropped(*sums.cut(sums.a.shape[1], terms).partial_sums(), fraction_bits)
    return Error(np.zeros(len(steps)), np.asarray((steps * steps).sum(axis=(1, 2)) / 12))


def truncated(sums: Sums, unit: MatrixUnit, promotion: int) -> Error:
    """Return the expected error of a unit that adds in chains of fused sums and drops low bits.

    If `promotion` is not 0, a new chain starts from zero after every `promotion` products.
    """
    from_zero = promotion or (unit.k[-1] if unit.addend == "after" else 0)
    # If a unit has groups, the exact sum of a group of products is one term. Such a unit's operands
    # include block scales, so the mantissas of operands may have up to 53 bits.
    bits = 53 if unit.group > 1 else max(OPERANDS[name].mantissa_bits for name in unit.operands)
    terms = sums.cut(from_zero or sums.a.shape[1], unit.terms, unit.order, bits)
    after, last = terms.partial_sums()
    before = np.concatenate([np.zeros_like(after[:, :, :1]), after[:, :, :-1]], axis=2)
    largest = np.maximum(terms.exponents.max(axis=3), _exponents(before))
    step = np.ldexp(1.0, np.maximum(largest - unit.fraction_bits, -1000))
    products, own = (x.reshape(*x.shape[:3], -1, unit.group) for x in (terms.products, terms.last))
    products, own = products.sum(axis=4), np.ldexp(1.0, np.clip(own.min(axis=4), -1000, 1000))
    # Terms are truncated to multiples of `step`. A truncated term loses step / 2 on average.
    lost = np.minimum(np.where(own < step[..., None], step[..., None] / 2, 0), abs(products))
    mean, variance = -(np.sign(products) * lost).sum(axis=(1, 2, 3)), (lost * lost).sum(axis=(1, 2, 3)) / 3
    results = np.maximum(_dropped(after, last, unit.result_bits) - step, 0)
    if unit.rounding == "rtz":
        mean = mean - (np.sign(after) * results).sum(axis=(1, 2)) / 2
    variance = variance + (results * results).sum(axis=(1, 2)) / 12
    if from_zero:
        own_bits = 23 if promotion else FLOATS[unit.accumulator].mantissa_bits
        added = _dropped(np.cumsum(after[:, :, -1], axis=1), last.min(axis=(1, 2))[:, None], own_bits)
        variance = variance + (added * added).sum(axis=1) / 12
    return Error(np.asarray(mean), np.asarray(variance))


def _exponents(x: Array) -> Array:
    return np.where((x != 0) & np.isfinite(x), np.frexp(x)[1] - 1, _NOTHING)


def _lowest_bits(x: Array) -> Array:
    """Return the exponent of the lowest set bit of each number."""
    significand, exponent = np.frexp(np.where(np.isfinite(x), x, 0))
    whole = np.ldexp(abs(significand), 53).astype(np.int64)
    return np.where(x == 0, _EVERYTHING, exponent - 53 + _exponents((whole & -whole).astype(np.float64)))


def _dropped(x: Array, last: Array, fraction_bits: int) -> Array:
    """Return the ulp of x rounded to `fraction_bits` fraction bits, or 0 if the rounding is exact.

    x is a multiple of 2**last.
    """
    exponent = _exponents(x) - fraction_bits
    return np.where((x == 0) | (exponent <= last), 0.0, np.ldexp(1.0, np.maximum(exponent, -1000)))
