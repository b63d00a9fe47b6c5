"""Make whole arrays in many shapes and memory layouts, and convert arrays to and from blocks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from mxnum import errors
from mxnum.layout import Blocks, scales_shape
from mxnum.memory.dtypes import Array

Shape = tuple[int, int]

#: The memory layouts of arrays, with a description of each.
LAYOUTS = {
    "contiguous": "rows one after the other",
    "transposed": "the transpose of a contiguous array",
    "strided": "every second row and every third column of an array",
    "part": "a part of a larger array: each row is contiguous, with a gap before the next row",
}


def shapes_of(blocks: Blocks) -> list[Shape]:
    """Return the shapes to test with `blocks`, from one element to several million elements."""
    small = [_scaled(blocks, factors) for factors in ((1, 0), (3, 1), (7, 3), (33, 2))]
    short = [_scaled(blocks, factors, more) for factors in ((1, 1), (3, 1), (5, 2)) for more in (-1, 1)]
    tails = [_scaled(blocks, (130, 5), 7), _scaled(blocks, (128, 4)), _scaled(blocks, (256, 8))]
    # The large shapes have more than 65,535 rows (the limit of some dimensions of a CUDA grid),
    # long rows, or many long rows.
    large = [_scaled(blocks, factors, 1) for factors in ((65_537, 1), (3, 21_846), (1030, 64))]
    if min(blocks) > 1:  # a row of tiles has several rows of elements, so fewer rows of tiles suffice
        large = [_scaled(blocks, factors, 1) for factors in ((2, 1025), (1030, 2), (45, 45))]
    kept = [shape for shape in [(1, 1), *small, *short, *tails, *large] if min(shape) > 0]
    return list(dict.fromkeys(kept))


def _scaled(blocks: Blocks, factors: tuple[int, int], more: int = 0) -> Shape:
    """Return the shape of an array of whole blocks, plus `more` elements along the blocks' axis.

    `factors` has the number of lines and the number of blocks in each line. A line is a row or a
    column of blocks. For tiles, `more` is added to the number of rows and subtracted from the
    number of columns.
    """
    rows, along = factors
    first, second = blocks
    if min(blocks) > 1:
        return min(rows, 40) * first + more, max(1, along) * second - more
    if first > 1:
        return along * first + more, rows
    return rows, along * second + more


def checked_shapes(shapes: Sequence[Any]) -> list[Shape]:
    """Return the argument `shapes` as pairs of lengths, or raise an error if it is invalid."""
    found = []
    for shape in shapes:
        good = isinstance(shape, (tuple, list)) and len(shape) == 2
        errors.require(good, "shapes", "pairs of lengths", shape)
        rows, columns = (errors.positive_integer("shapes", length) for length in shape)
        found.append((rows, columns))
    errors.require(bool(found), "shapes", "at least one pair of lengths", shapes)
    return found


def laid(array: Array, layout: str) -> Array:
    """Return a new array with the elements of `array` in a memory layout.

    The gaps between the elements hold other numbers, so that a kernel that reads the gaps fails.
    """
    rows, columns = array.shape
    if layout == "contiguous":
        return array.copy()
    if layout == "transposed":
        return np.ascontiguousarray(array.T).T
    strided = layout == "strided"
    whole = (2 * rows + 1, 3 * columns + 1) if strided else (rows + 2, columns + 5)
    around = np.resize(array.ravel()[::-1], whole)
    view = around[: 2 * rows : 2, : 3 * columns : 3] if strided else around[1:-1, 2:-3]
    view[...] = array
    return view


def as_memory(view: Array) -> Array:
    """Return what a kernel reads if it mistakes a strided view for contiguous memory."""
    return np.lib.stride_tricks.as_strided(view, view.shape, (view.shape[1] * view.itemsize, view.itemsize))


def to_blocks(array: Array, blocks: Blocks) -> Array:
    """Return the blocks of an array, one block in each row, in the order of their scales.

    Short blocks are padded with zeros.
    """
    counts = scales_shape(array.shape, blocks)
    padded = np.zeros(tuple(n * b for n, b in zip(counts, blocks, strict=True)), array.dtype)
    padded[: array.shape[0], : array.shape[1]] = array
    split = padded.reshape(counts[0], blocks[0], counts[1], blocks[1])
    return np.ascontiguousarray(split.transpose(0, 2, 1, 3)).reshape(counts[0] * counts[1], -1)


def from_blocks(rows: Array, shape: Shape, blocks: Blocks) -> Array:
    """Return the array of shape `shape` whose blocks are `rows`, without the padding of blocks."""
    counts = scales_shape(shape, blocks)
    split = rows.reshape(counts[0], counts[1], *blocks).transpose(0, 2, 1, 3)
    return split.reshape(counts[0] * blocks[0], counts[1] * blocks[1])[: shape[0], : shape[1]].copy()
