"""The order of an array's axes in memory, and copies that use all of each cache line they touch."""

from __future__ import annotations

import math
from itertools import product

import numpy as np

from mxnum.memory.dtypes import Array

Order = tuple[int, ...]

#: Elements on the side of a tile. Arrays whose innermost axes differ are copied tile by tile.
_SIDE = 128


def memory_order(array: Array) -> Order:
    """Return the axes ordered by their strides, longest first.

    Return C order if elements share memory (a stride is 0).
    """
    axes = tuple(range(array.ndim))
    if array.flags.c_contiguous:
        return axes
    strides = [
        abs(stride) if length > 1 else math.inf for length, stride in zip(array.shape, array.strides, strict=True)
    ]
    return axes if 0 in strides else tuple(sorted(axes, key=lambda axis: -strides[axis]))


def contiguous(array: Array) -> Array:
    """Return the array itself if it is C-contiguous, else a contiguous copy."""
    if array.flags.c_contiguous:
        return array
    room = np.empty(array.shape, array.dtype)
    copy(array, room)
    return room


def copy(source: Array, target: Array) -> None:
    """Store the elements of `source` in `target`, a separate array of the same shape and dtype.

    numpy follows the memory order of the target. If the source has another order, each element
    touches another cache line, and the cache keeps few lines that are a power of two apart. So this
    function first copies a tile in the source's own order: all lines of that copy stay in the cache
    until their last element is read.
    """
    fast, slow = _innermost(target), _innermost(source)
    if fast == slow or min(source.shape[fast], source.shape[slow]) < _SIDE // 16:
        target[...] = source
        return
    others = [axis for axis in range(source.ndim) if axis not in (fast, slow)]
    order = (*others, slow, fast)
    source, target = source.transpose(order), target.transpose(order)
    starts = (range(0, length, _SIDE) for length in source.shape[-2:])
    for row, column in product(*starts):
        tile = ..., slice(row, row + _SIDE), slice(column, column + _SIDE)
        target[tile] = source[tile].copy(order="K")


def _innermost(array: Array) -> int:
    """Return the axis with the shortest stride; -1 if no axis has two elements."""
    longer = [axis for axis in range(array.ndim) if array.shape[axis] > 1]
    return min(longer, key=lambda axis: (abs(array.strides[axis]), -axis), default=-1)
