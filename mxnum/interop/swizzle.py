"""Put scales in the order that tensor cores read: tiles of 128 rows x 4 columns (cuBLAS).

The matrix of scales is padded with code 0 to whole tiles, and tiles are stored row by row. Within a
tile, the scale in row r and column c is at byte (r mod 32) * 16 + (r div 32) * 4 + c.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mxnum import errors
from mxnum.array import MXArray
from mxnum.interop._checked import SCALE_TYPES
from mxnum.memory.dtypes import Array, as_array
from mxnum.memory.tensors import in_kind

_ROWS, _COLUMNS = 128, 4


def swizzle_scales(scales: Any) -> Array:
    """Return a matrix of scale codes as a flat array of bytes in the order of tensor cores.

    The matrix has one row of scales for each row of the quantized matrix.

    >>> import numpy as np
    >>> from mxnum.interop.swizzle import swizzle_scales
    >>> swizzle_scales(np.arange(128 * 4, dtype=np.uint8).reshape(128, 4))[:8]
    array([  0,   1,   2,   3, 128, 129, 130, 131], dtype=uint8)
    """
    array = _codes("scales", scales)
    errors.require(array.ndim == 2, "scales", "two-dimensional", array.shape)
    tiles = _tiles(array.shape)
    padded = np.zeros((tiles[0] * _ROWS, tiles[1] * _COLUMNS), np.uint8)
    padded[: array.shape[0], : array.shape[1]] = array
    # The axes are: row tile, r div 32, r mod 32, column tile, c.
    split = padded.reshape(tiles[0], 4, 32, tiles[1], _COLUMNS)
    swizzled: Array = in_kind(np.ascontiguousarray(split.transpose(0, 3, 2, 1, 4)).ravel(), scales)
    return swizzled


def unswizzle_scales(swizzled: Any, shape: tuple[int, int]) -> Array:
    """Return the matrix of scale codes, without padding, from the bytes of `swizzle_scales`."""
    array = _codes("swizzled", swizzled)
    shape = tuple(errors.integer("shape", length, 0, 1 << 62) for length in shape)  # type: ignore[assignment]
    tiles = _tiles(shape)
    expected = tiles[0] * tiles[1] * _ROWS * _COLUMNS
    errors.require(array.size == expected, "swizzled", f"of {expected} bytes for scales of {shape}", array.size)
    split = array.reshape(tiles[0], tiles[1], 32, 4, _COLUMNS).transpose(0, 3, 2, 1, 4)
    padded = np.ascontiguousarray(split).reshape(tiles[0] * _ROWS, tiles[1] * _COLUMNS)
    scales: Array = in_kind(padded[: shape[0], : shape[1]].copy(), swizzled)
    return scales


def _codes(argument: str, scales: Any) -> Array:
    """Return scale codes as bytes; accept torch's and ml_dtypes' types for scale codes too."""
    is_array = isinstance(scales, MXArray)
    errors.require_type(not is_array, argument, "the scales of the MXArray, q.scales", type(scales).__name__)
    array: Array = as_array(argument, scales, anywhere=False)
    array = array.view(np.uint8) if array.dtype.name in SCALE_TYPES.values() else array
    errors.require_dtype(argument, array.dtype, np.dtype(np.uint8), " of scale codes")
    return array


def _tiles(shape: tuple[int, ...]) -> tuple[int, int]:
    errors.require(len(shape) == 2, "shape", "of two axes", shape)
    return -(-shape[0] // _ROWS), -(-shape[1] // _COLUMNS)
