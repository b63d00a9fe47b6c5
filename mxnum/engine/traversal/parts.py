"""Cuts arrays of any strides into contiguous parts, each with a `Walk` for a loop.

Arrays that are not contiguous are copied chunk by chunk, in an order that uses every element of a
cache line while the line is in the cache. If no `Walk` supports the shape of the blocks, every
block is copied to a row.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import pairwise, product
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np

from mxnum.engine.machine.workers import bounds, run_in_threads, worth
from mxnum.engine.traversal.block_walk import ELEMENTS_PER_THREAD, Walk, walk_of
from mxnum.layout import Blocks, element_strides
from mxnum.memory.dtypes import Array

Order = tuple[int, ...]

#: The number of elements along a side of a tile. `copy` copies tile by tile if the source and the
#: target have different innermost axes.
_SIDE = 128


def memory_order(array: Array) -> Order:
    """Return the axes ordered by their strides, longest first.

    If a stride is 0, elements share memory, and the axes are returned in C order.
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

    numpy copies in the memory order of `target`. If `source` has another order, numpy reads
    successive elements from different cache lines. If the addresses of these lines are a power of
    two apart, only a few lines fit into the cache. Therefore each tile is first copied in the order
    of `source`; this copy stays in the cache until all its elements are read.
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


#: The number of elements that are copied at a time by default.
CHUNK = 1 << 17
Where = tuple[Any, ...]


class Readable(Protocol):
    """An array, in any representation, that is read part by part."""

    def read(self, where: Where) -> Array:
        """Return the elements of a part, as an array of any strides."""


class Writable(Protocol):
    """An array, in any representation, that is written part by part."""

    def room(self, where: Where) -> Array:
        """Return an array of any strides, which the caller fills with the elements of a part."""

    def put(self, where: Where, part: Array) -> None:
        """Store `part`, the array that `room` returned and the caller has filled."""


class Plain(NamedTuple):
    """An array in memory with an item for each element."""

    array: Array

    def read(self, where: Where) -> Array:
        return self.array[where]

    def room(self, where: Where) -> Array:
        return self.array[where]

    def put(self, where: Where, part: Array) -> None:
        """Do nothing, because `room` returned a view of the array."""


class Chunk(NamedTuple):
    """The slices of an array that make one chunk, and the slices of the chunk's scales."""

    where: Where
    blocks_where: Where
    #: The C-order index of the first element; None if the elements of the chunk are not
    #: consecutive.
    first: int | None


class Part(NamedTuple):
    """The contiguous parts of a call's arrays that a loop processes together, and their `Walk`."""

    walk: Walk
    #: The elements that the loop reads, and the array that it writes.
    x: Array
    out: Array
    #: Arrays with an item for each block: scales and offsets.
    sides: tuple[Array, ...]
    #: The tensor scale of each block; None if there is none.
    tensor_scale: Array | None
    #: The C-order index of the first element; None if the elements of the part are not consecutive.
    first: int | None
    #: The random words of the elements; None if rounding needs no words, or if `first` determines
    #: the words.
    words: Array | None


@dataclass(frozen=True)
class Arrays:
    """The input, the output and the scales of a call, to be processed part by part."""

    shape: tuple[int, ...]
    blocks: Blocks
    x: Readable
    out: Writable
    #: Scales and offsets.
    sides: tuple[Array, ...]
    #: Random words, one for each element.
    words: Readable | None = None
    #: The tensor scale of each block.
    tensor_scale: Array | None = None
    #: True if loops compute the random words of consecutive elements from the index of the first
    #: element. `words` is then read only for parts whose elements are not consecutive.
    first_will_do: bool = False
    writes_sides: bool = False
    #: Along the last axis, parts begin at multiples of `whole_rows` elements.
    whole_rows: int = 1
    #: True if results overwrite the input. An input that is overwritten is first copied part by
    #: part, because compilers do not vectorize a loop that reads and writes the same array.
    in_place: bool = False
    #: How short blocks are padded when blocks are copied to rows: with zeros if True, else with one
    #: of the block's elements.
    fills_with_zeros: bool = False
    #: The greatest number of elements of a part. A part that cannot be cut further may have more.
    at_once: int = CHUNK

    def run(self, work: Callable[[Part], None], threads: int | None) -> None:
        """Call `work` with each part, in at most `threads` threads."""
        cuts = (*self.blocks[:-1], math.lcm(self.blocks[-1], self.whole_rows)) if self.blocks else ()
        parts = chunks(self.shape, cuts, self.blocks, self.at_once)
        run_in_threads(partial(self._go, work), shares_of(parts, math.prod(self.shape), threads))

    def _go(self, work: Callable[[Part], None], chunks: Sequence[Chunk]) -> None:
        """Make the part of each chunk, and call `work` with it.

        The results of one part are stored before the next part is read.
        """
        by_walk = walk_of(self.shape, self.blocks) is not None
        for where, blocks_where, first in chunks:
            given = self.x.read(where)
            if by_walk:
                read, walk = contiguous(given), walk_of(given.shape, self.blocks)
                read = read.copy() if self.in_place and read is given else read
                assert walk is not None
            else:
                read, first = as_rows(given, self.blocks, "constant" if self.fills_with_zeros else "edge"), None
                walk = Walk(1, read.shape[0], read.shape[1], 1, read.shape[1])
            target = self.out.room(where)
            is_aside = not by_walk or not target.flags.c_contiguous
            out = np.empty(read.shape, target.dtype) if is_aside else target
            words = None
            if self.words is not None and (first is None or not self.first_will_do):
                words = self.words.read(where)
                words = contiguous(words) if by_walk else as_rows(words, self.blocks)
            sides = [side[blocks_where] for side in self.sides]
            flat = tuple(contiguous(side) for side in sides)
            tensor = None if self.tensor_scale is None else contiguous(self.tensor_scale[blocks_where])
            work(Part(walk, read, out, flat, tensor, first, words))
            if is_aside:
                copy(out if by_walk else from_rows(out, target.shape, self.blocks), target)
            self.out.put(where, target)
            if self.writes_sides:
                for side, made in zip(sides, flat, strict=True):
                    if made is not side:
                        side[...] = made


def shares_of(items: Sequence[Any], elements: int, threads: int | None) -> list[Sequence[Any]]:
    """Divide the items into shares, one share for each thread that is worth starting.

    `elements` is the total number of elements of all items.
    """
    count = min(len(items), worth(elements, ELEMENTS_PER_THREAD, threads))
    return [items[start:stop] for start, stop in pairwise(bounds(len(items), count))]


def as_rows(part: Array, blocks: Blocks, fill: Literal["edge", "constant"] = "edge") -> Array:
    """Return the elements of an array as rows, one row for each block.

    Short blocks are padded with one of their elements, or with zeros if `fill` is "constant".
    """
    sizes = _clipped(part.shape, blocks)
    padding = [(0, -length % size) for length, size in zip(part.shape, sizes, strict=True)]
    if any(after for _, after in padding):
        part = np.pad(part, padding, mode=fill)
    return contiguous(_by_blocks(part, sizes).reshape(-1, math.prod(sizes)))


def from_rows(rows: Array, shape: tuple[int, ...], blocks: Blocks) -> Array:
    """Return the array of shape `shape` from which `as_rows` made `rows`."""
    sizes = _clipped(shape, blocks)
    padded = np.empty([-(-length // size) * size for length, size in zip(shape, sizes, strict=True)], rows.dtype)
    target = _by_blocks(padded, sizes)
    target[...] = rows.reshape(target.shape)
    return padded[tuple(slice(length) for length in shape)]


def _clipped(shape: tuple[int, ...], blocks: Blocks) -> Blocks:
    return tuple(min(size, length) for size, length in zip(blocks, shape, strict=True))


def _by_blocks(array: Array, blocks: Blocks) -> Array:
    """Return `array`, which consists of whole blocks, as an array of blocks.

    The result has twice as many axes as `array`. The first half of its indices selects a block, and
    the second half selects an element of this block.
    """
    pairs = [(length // size, size) for length, size in zip(array.shape, blocks, strict=True)]
    rank = 2 * array.ndim
    return array.reshape([n for pair in pairs for n in pair]).transpose((*range(0, rank, 2), *range(1, rank, 2)))


@lru_cache(maxsize=64)
def chunks(shape: tuple[int, ...], cuts: Blocks, blocks: Blocks, most: int = CHUNK) -> Sequence[Chunk]:
    """Return chunks that cover `shape`, with at most `most` elements each if `cuts` allows it.

    Along axis i, chunks begin at multiples of `cuts[i]`, which is a multiple of `blocks[i]`.
    """
    if not shape:
        return [Chunk((...,), (...,), 0)]
    sizes = [max(1, min(cut, length)) for cut, length in zip(cuts, shape, strict=True)]
    # Along the axes before `axis`, chunks are as short as `cuts` allows. Along the axes after it,
    # chunks are as long as the array. `axis` is the first axis for which chunks can have at most
    # `most` elements.
    fits = (math.prod(sizes[: i + 1]) * math.prod(shape[i + 1 :]) <= most for i in range(len(shape)))
    axis = next((i for i, small in enumerate(fits) if small), len(shape) - 1)
    at_once = max(1, most // max(1, math.prod(sizes[: axis + 1]) * math.prod(shape[axis + 1 :])))
    in_all = -(-shape[axis] // sizes[axis])
    # Choose the step so that all chunks have about the same size.
    step = -(-in_all // max(1, -(-in_all // at_once))) * sizes[axis]
    steps = [*sizes[:axis], max(step, 1)]
    strides, in_line = element_strides(shape), all(size == 1 for size in sizes[:axis])
    made = []
    for starts in product(*(range(0, shape[i], steps[i]) for i in range(axis + 1))):
        where = [slice(start, min(start + steps[i], shape[i])) for i, start in enumerate(starts)]
        where += [slice(0, length) for length in shape[axis + 1 :]]
        of_blocks = [slice(part.start // size, -(-part.stop // size)) for part, size in zip(where, blocks, strict=True)]
        first = sum(start * strides[i] for i, start in enumerate(starts)) if in_line else None
        made.append(Chunk(tuple(where), tuple(of_blocks), first))
    return made
