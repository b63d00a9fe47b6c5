"""Bit patterns of floats, codes that fit their width or not, and codes packed in bytes."""

from __future__ import annotations

from typing import Any

import numpy as np

from mxnum.formats import ElementFormat
from mxnum.memory.dtypes import Array, code_dtype, numpy_dtype


def as_floats(bits: Array, source: ElementFormat) -> Array:
    """Return bit patterns viewed as floats."""
    return np.ascontiguousarray(bits).view(numpy_dtype(source))


def as_bits(values: Any, source: ElementFormat) -> Array:
    """Return floats viewed as bit patterns."""
    return np.ascontiguousarray(values).view(f"u{source.bits // 8}")


def with_one_nan(values: Array, source: ElementFormat) -> Array:
    """Return floats as bit patterns, with every NaN as the type's own NaN code."""
    bits = as_bits(values, source)
    return np.where(np.isnan(values), bits.dtype.type(source.nan_code or 0), bits)


def sign_bits(x: Array, source: ElementFormat) -> Array:
    """Return bit patterns of floats with their sign alone."""
    return np.asarray(x & x.dtype.type(1 << (source.bits - 1)))


def magnitude_bits(x: Array, source: ElementFormat) -> Array:
    """Return bit patterns of floats without their sign."""
    return np.asarray(x & x.dtype.type((1 << (source.bits - 1)) - 1))


def fits(codes: Array, bits: int) -> Array:
    """Return for each code whether it fits in that many bits."""
    return np.asarray((codes >= 0) & (codes < 1 << bits)) if codes.dtype == np.int64 else np.ones(codes.shape, bool)


def fitted(array: Array, bits: int) -> Array:
    """Return codes in the smallest type that holds them; in int64 if one of them does not fit its bits."""
    if array.dtype.kind == "u" and array.dtype.itemsize == 8:
        array = np.minimum(array, np.uint64((1 << 63) - 1))
    wide = array.astype(np.int64)
    return wide.astype(code_dtype(bits)) if fits(wide, bits).all() else wide


def unpacked(packed: Array, length: int, bits: int) -> Array:
    """Return the codes of packed rows, each from its lowest bit on. The unused bits of a last byte are ignored."""
    stream = np.unpackbits(np.ascontiguousarray(packed), axis=-1, bitorder="little")[..., : length * bits]
    digits = stream.reshape(*packed.shape[:-1], length, bits).astype(np.int64)
    return np.asarray(digits @ (1 << np.arange(bits)))
