"""The order in which memory has the axes of an array, and copies that use all of the lines of the cache they touch."""

from __future__ import annotations

import math
from itertools import product

import numpy as np

from mxnum.memory.dtypes import Array

Order = tuple[int, ...]

#: Elements on the side of a tile that is copied at once, where the memory of two arrays runs along different axes.
_SIDE = 128


def memory_order(array: Array) -> Order:
    """The axes by their strides, longest first; C order where elements share their memory."""
    axes = tuple(range(array.ndim))
    if array.flags.c_contiguous:
        return axes
    strides = [
        abs(stride) if length > 1 else math.inf for length, stride in zip(array.shape, array.strides, strict=True)
    ]
    return axes if 0 in strides else tuple(sorted(axes, key=lambda axis: -strides[axis]))


def contiguous(array: Array) -> Array:
    """The array itself if it is C-contiguous, a copy if not."""
    if array.flags.c_contiguous:
        return array
    room = np.empty(array.shape, array.dtype)
    copy(array, room)
    return room


def copy(source: Array, target: Array) -> None:
    """Fill `target` with the elements of `source`, of the same shape and dtype, which it does not overlap.

    numpy goes along the memory of the target, and touches a line of the cache for each element where that of the source
    runs along another axis. Of a tile that was copied as it lies, every line is still there when its next element is
    asked for; of the source's own lines, powers of two apart, the cache keeps few.
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
    """The axis with the shortest step, or the last."""
    longer = [axis for axis in range(array.ndim) if array.shape[axis] > 1]
    return min(longer, key=lambda axis: (abs(array.strides[axis]), -axis), default=-1)
