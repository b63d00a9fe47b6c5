"""Shapes of blocks, scales and packed arrays.

The arguments of a caller can describe blocks in several ways. This module converts them all to one
tuple, `blocks`: the length of a block along each axis.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from mxnum import errors

Blocks = tuple[int, ...]


def resolve_blocks(
    shape: tuple[int, ...],
    default_block: int,
    *,
    axis: int | None = None,
    block_size: int | None = None,
    block_shape: Sequence[int] | None = None,
    blocks: Sequence[int] | None = None,
) -> Blocks:
    """Return the length of a block along each axis, from the arguments of a caller.

    `block_size` (default: the format's) is the length of blocks along `axis` (default: the last
    axis). `block_shape=(r, c)` divides the last two axes into tiles of r by c elements. `blocks`
    replaces `axis`, `block_size` and `block_shape`, and must not be combined with them.
    """
    rank = len(shape)
    if blocks is not None:
        for name, given in (("axis", axis), ("block_size", block_size), ("block_shape", block_shape)):
            if given is not None:
                raise errors.exclusive(name, "blocks")
        return _sizes("blocks", blocks, rank)
    if block_shape is not None:
        for name, given in (("axis", axis), ("block_size", block_size)):
            if given is not None:
                raise errors.exclusive(name, "block_shape")
        tile = _sizes("block_shape", block_shape, 2)
        errors.require(rank >= 2, "block_shape", "used with an array of at least two axes", tuple(block_shape))
        return (1,) * (rank - 2) + tile
    size = default_block if block_size is None else errors.positive_integer("block_size", block_size)
    if rank == 0:
        errors.require(axis in (None, -1, 0), "axis", "0 or -1 for an array without axes", axis)
        return ()
    along = normalize_axis(-1 if axis is None else axis, rank)
    return tuple(size if i == along else 1 for i in range(rank))


def normalize_axis(axis: Any, rank: int) -> int:
    """Return an axis as a number from 0 to rank - 1; a negative `axis` counts from the end."""
    return errors.integer("axis", axis, -rank, rank - 1) % rank


def scales_shape(shape: tuple[int, ...], blocks: Blocks) -> tuple[int, ...]:
    """Return the shape of the scales, ceil(shape / blocks): incomplete blocks have scales too."""
    return tuple(-(-length // block) for length, block in zip(shape, blocks, strict=True))


def element_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the strides of a contiguous array in C order, counted in elements."""
    return tuple(math.prod(shape[axis + 1 :]) for axis in range(len(shape)))


def collapse(shape: tuple[int, ...], blocks: Blocks) -> tuple[tuple[int, ...], Blocks]:
    """Return an equivalent shape, and its blocks, with as few axes as possible but at least two.

    The function merges neighbouring axes along which blocks have length 1, so that the common
    layouts share a compiled loop. The array must be contiguous.
    """
    lengths: list[int] = []
    sizes: list[int] = []
    for length, block in zip(shape, blocks, strict=True):
        if sizes and sizes[-1] == block == 1:
            lengths[-1] *= length
        else:
            lengths.append(length)
            sizes.append(block)
    while len(lengths) < 2:
        lengths.insert(0, 1)
        sizes.insert(0, 1)
    return tuple(lengths), tuple(sizes)


def block_lengths(argument: str, values: Sequence[int] | None) -> Blocks | None:
    """Return the block lengths in `values` as a tuple, or None if `values` is None."""
    return None if values is None else errors.block_lengths(argument, values)


def _sizes(argument: str, values: Sequence[int], count: int) -> Blocks:
    sizes = block_lengths(argument, values) or ()
    errors.require(len(sizes) == count, argument, f"a tuple of {count} block lengths", sizes)
    return sizes


def packed_length(length: int, bits: int) -> int:
    """Return the number of bytes of a packed row of `length` codes."""
    return (length * bits + 7) // 8
