"""Scales in the order in which tensor cores read them: tiles of 128 rows by 4 columns (cuBLAS, block-scaled types).

Rows and columns are padded with code 0 to whole tiles; tiles follow each other by rows. Within a tile, row r and column
c lie at byte (r mod 32) * 16 + (r div 32) * 4 + c.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mxnum import errors
from mxnum.dtypes import Array

_ROWS, _COLUMNS = 128, 4


def swizzle_scales(scales: Any) -> Array:
    """The bytes of a two-dimensional array of scale codes, one row of scales per row of the matrix, as a flat array.

    >>> import numpy as np
    >>> from mxnum.interop.swizzle import swizzle_scales
    >>> swizzle_scales(np.arange(128 * 4, dtype=np.uint8).reshape(128, 4))[:8]
    array([  0,   1,   2,   3, 128, 129, 130, 131], dtype=uint8)
    """
    scales = np.asarray(scales)
    errors.require_dtype("scales", scales.dtype, np.dtype(np.uint8), " of E8M0 codes")
    errors.require(scales.ndim == 2, "scales", "two-dimensional", scales.shape)
    tiles = _tiles(scales.shape)
    padded = np.zeros((tiles[0] * _ROWS, tiles[1] * _COLUMNS), np.uint8)
    padded[: scales.shape[0], : scales.shape[1]] = scales
    split = padded.reshape(tiles[0], 4, 32, tiles[1], _COLUMNS)  # row tile, r div 32, r mod 32, column tile, c
    return np.ascontiguousarray(split.transpose(0, 3, 2, 1, 4)).ravel()


def unswizzle_scales(swizzled: Any, shape: tuple[int, int]) -> Array:
    """The scale codes of that shape from what `swizzle_scales` returns; padding is dropped."""
    swizzled = np.asarray(swizzled)
    errors.require_dtype("swizzled", swizzled.dtype, np.dtype(np.uint8), " of E8M0 codes")
    tiles = _tiles(shape)
    expected = tiles[0] * tiles[1] * _ROWS * _COLUMNS
    errors.require(swizzled.size == expected, "swizzled", f"of {expected} bytes for scales of {shape}", swizzled.size)
    split = swizzled.reshape(tiles[0], tiles[1], 32, 4, _COLUMNS).transpose(0, 3, 2, 1, 4)
    padded = np.ascontiguousarray(split).reshape(tiles[0] * _ROWS, tiles[1] * _COLUMNS)
    return padded[: shape[0], : shape[1]].copy()


def _tiles(shape: tuple[int, ...]) -> tuple[int, int]:
    errors.require(len(shape) == 2, "shape", "of two axes", shape)
    return -(-shape[0] // _ROWS), -(-shape[1] // _COLUMNS)
