"""Divide arrays into pieces of whole blocks, to bound memory, and reduce the blocks of an array."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from mxnum.definition.random import philox4x32
from mxnum.layout import Blocks
from mxnum.memory.dtypes import Array

Slices = tuple[slice, ...]


def chunks(shape: tuple[int, ...], blocks: Blocks, limit: int) -> Iterator[Slices]:
    """Yield, in C order, the slices of pieces that cover an array.

    Each piece consists of whole blocks and has at most `limit` elements. If one block has more than
    `limit` elements, each piece is one block.
    """
    lengths = [min(block, length) for block, length in zip(blocks, shape, strict=True)]
    for axis in reversed(range(len(shape))):
        room = max(1, limit // max(1, math.prod(lengths)))
        lengths[axis] = min(shape[axis], lengths[axis] * room)
        if lengths[axis] < shape[axis]:
            break
    steps = [range(0, length, max(1, step)) for length, step in zip(shape, lengths, strict=True)]
    for starts in itertools.product(*steps):
        yield tuple(slice(start, start + step) for start, step in zip(starts, lengths, strict=True))


def of_blocks(part: Slices, blocks: Blocks) -> Slices:
    """Return the slices that select the scales of one piece of an array."""
    return tuple(
        slice(piece.start // block, -(-piece.stop // block)) for piece, block in zip(part, blocks, strict=True)
    )


def spread(per_block: Array, blocks: Blocks, shape: tuple[int, ...]) -> Array:
    """Return an array in which each element has the value of its block."""
    for axis, (block, length) in enumerate(zip(blocks, shape, strict=True)):
        if block > 1:
            per_block = np.repeat(per_block, min(block, length), axis)
    return per_block[tuple(slice(length) for length in shape)]


def gather(operation: np.ufunc, values: Array, blocks: Blocks) -> Array:
    """Return `operation.reduce` over each block; the last block of an axis may be shorter."""
    for axis, block in enumerate(blocks):
        if block > 1:
            values = operation.reduceat(values, np.arange(0, values.shape[axis], block), axis)
    return values


def positions(part: Slices, shape: tuple[int, ...]) -> Array:
    """Return, for each element of a piece, the element's C-order index in the whole array."""
    index: Any = np.zeros((), np.int64)
    for piece, length in zip(part, shape, strict=True):
        index = index[..., None] * length + np.arange(piece.start, min(piece.stop, length), dtype=np.int64)
    return np.asarray(index)


def random_words(index: Array, seed: int, stream: int) -> Array:
    """Return the random words of `quantize(seed=, stream=)` for the C-order indices `index`."""
    group = index >> 2
    low = 0xFFFFFFFF
    counter = group & low, group >> 32, np.int64(stream & low), np.int64(stream >> 32)
    philox: Any = philox4x32
    words = philox(*counter, np.int64(seed & low), np.int64(seed >> 32))
    return np.choose(index & 3, np.broadcast_arrays(*words)).astype(np.uint32)
