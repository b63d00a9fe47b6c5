"""Bit patterns of floats, codes of any width, packed codes, and random numbers."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from mxnum.formats import FLOATS, ElementFormat
from mxnum.memory.dtypes import Array, code_dtype, numpy_dtype


def as_floats(bits: Array, source: ElementFormat) -> Array:
    """Return bit patterns viewed as floats of type `source`, or codes decoded to float32."""
    if source.name not in FLOATS:
        return _values(source)[bits]
    return np.ascontiguousarray(bits).view(numpy_dtype(source))


@cache
def _values(element: ElementFormat) -> Array:
    """Return an element format's values in float32, by code. NaNs keep the signs of their codes."""
    values = np.array(element.values(), np.float32)
    negative = np.arange(1 << element.bits) >> (element.bits - 1)
    return np.where(np.isnan(values), np.copysign(values, 0.5 - negative), values)


def as_bits(values: Any, source: ElementFormat) -> Array:
    """Return floats viewed as bit patterns."""
    return np.ascontiguousarray(values).view(f"u{source.bits // 8}")


def with_one_nan(values: Array, source: ElementFormat) -> Array:
    """Return floats as bit patterns; every NaN becomes the NaN code of the type."""
    bits = as_bits(values, source)
    return np.where(np.isnan(values), bits.dtype.type(source.nan_code or 0), bits)


def sign_bits(x: Array, source: ElementFormat) -> Array:
    """Return the sign bits of floats, with all other bits 0."""
    return np.asarray(x & x.dtype.type(1 << (source.bits - 1)))


def magnitude_bits(x: Array, source: ElementFormat) -> Array:
    """Return the bit patterns of floats with the sign bit 0."""
    return np.asarray(x & x.dtype.type((1 << (source.bits - 1)) - 1))


def fits(codes: Array, bits: int) -> Array:
    """Return a boolean array: True for each code that fits in `bits` bits."""
    return np.asarray((codes >= 0) & (codes < 1 << bits)) if codes.dtype == np.int64 else np.ones(codes.shape, bool)


def fitted(array: Array, bits: int) -> Array:
    """Return codes in the dtype for codes of `bits` bits, or in int64 if a code has more bits."""
    if array.dtype.kind == "u" and array.dtype.itemsize == 8:
        array = np.minimum(array, np.uint64((1 << 63) - 1))
    wide = array.astype(np.int64)
    return wide.astype(code_dtype(bits)) if fits(wide, bits).all() else wide


def ordinal(fmt: ElementFormat, code: int) -> int:
    """Return the rank of a code among the codes sorted by value; the rank of both zeros is 0."""
    sign = 1 << (fmt.bits - 1)
    if fmt.integer:
        return code - 2 * sign if code & sign else code
    return -(code & (sign - 1)) if code & sign else code


def unpacked(packed: Array, length: int, bits: int) -> Array:
    """Return the codes of packed rows, reading each byte from its lowest bit up.

    Unused bits of the last byte of a row are ignored.
    """
    stream = np.unpackbits(np.ascontiguousarray(packed), axis=-1, bitorder="little")[..., : length * bits]
    digits = stream.reshape(*packed.shape[:-1], length, bits).astype(np.int64)
    return np.asarray(digits @ (1 << np.arange(bits)))


class Generator:
    """A source of random integers, fixed by its seed."""

    def __init__(self, seed: int) -> None:
        self._generator = np.random.Philox(key=seed)

    def integers(self, low: int, high: int, shape: int | tuple[int, ...]) -> Array:
        """Return random integers in low..high inclusive.

        If the range has n <= 2**32 integers, the ratio of the lowest to the highest of their
        probabilities is at least 1 - n / 2**32.
        """
        count, values = int(np.prod(shape)), np.uint64(high - low + 1)
        raw = self._generator.random_raw(count)
        if high - low < 1 << 32:
            raw >>= np.uint64(32)
            raw *= values
            raw >>= np.uint64(32)
        else:
            raw >>= np.uint64(1)
            raw %= values
        found: Array = raw.view(np.int64).reshape(shape)
        found += low
        return found

    def choice(self, values: Array, shape: int | tuple[int, ...]) -> Array:
        """Return random members of `values`, each with equal probability."""
        chosen: Array = values[self.integers(0, len(values) - 1, shape)]
        return chosen

    def chance(self, share: float, shape: int | tuple[int, ...]) -> Array:
        """Return random booleans that are True with probability `share`."""
        return self.integers(0, (1 << 20) - 1, shape) < share * (1 << 20)

    def patterns(self, source: ElementFormat, shape: int | tuple[int, ...]) -> Array:
        """Return random bit patterns, all with equal probability, infinities and NaNs included."""
        count = int(np.prod(shape))
        raw = self._generator.random_raw(count)
        return (raw >> np.uint64(64 - source.bits)).astype(f"u{source.bits // 8}").reshape(shape)

    def bell(self, shape: tuple[int, ...]) -> Array:
        """Return bell-shaped numbers of mean 0 and variance about 1.

        Each number is a scaled sum of twelve uniform integers of 21 bits, three from each random
        word.
        """
        raw = self._generator.random_raw(4 * int(np.prod(shape))).reshape(4, *shape)
        total = np.zeros(shape, np.uint64)
        for word in raw:
            for shift in (0, 21, 42):
                total += (word >> np.uint64(shift)) & np.uint64((1 << 21) - 1)
        return (total.astype(np.float64) - 6.0 * ((1 << 21) - 1)) / (1 << 21)
