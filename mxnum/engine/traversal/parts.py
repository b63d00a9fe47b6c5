"""Arrays of any strides as contiguous parts, each with a walk that loops can take.

What is not contiguous is copied chunk by chunk; and where no walk goes through the blocks, every block is made a row.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import product
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np

from mxnum.engine.machine.workers import run_in_threads
from mxnum.engine.traversal.block_walk import Walk, shares_of, walk_of
from mxnum.engine.traversal.blocked_copy import contiguous, copy
from mxnum.layout import Blocks, element_strides
from mxnum.memory.dtypes import Array

#: Elements of an array that are copied at a time; of one whose copies have a byte for each, four times as many.
CHUNK = 1 << 17
Where = tuple[Any, ...]


class Readable(Protocol):
    """What has as many elements as the array that is gone through, and is read part by part."""

    def read(self, where: Where) -> Array:
        """A part, of any strides."""


class Writable(Protocol):
    """The same of what is written."""

    def room(self, where: Where) -> Array:
        """Where the elements of a part go, of any strides."""

    def put(self, where: Where, part: Array) -> None:
        """That part, when they are there."""


class Plain(NamedTuple):
    """An array in memory, an item for each element."""

    array: Array

    def read(self, where: Where) -> Array:
        return self.array[where]

    def room(self, where: Where) -> Array:
        return self.array[where]

    def put(self, where: Where, part: Array) -> None:
        """It is there already."""


class Chunk(NamedTuple):
    """Slices of an array, and of its scales."""

    where: Where
    blocks_where: Where
    #: The C-order index of the first element; None where the others do not follow it one by one.
    first: int | None


class Part(NamedTuple):
    """A part of all arrays, each contiguous, with the walk of a loop through it."""

    walk: Walk
    #: What is read, and what is written.
    x: Array
    out: Array
    #: What belongs to its blocks: scales, offsets; and what is read beside them.
    sides: tuple[Array, ...]
    #: The C-order index of its first element, if the others follow it one by one.
    first: int | None
    #: Words that go with its elements; None where there are none, or `first` says which they are.
    words: Array | None


@dataclass(frozen=True)
class Arrays:
    """An array that is gone through, and what goes with its elements and its blocks."""

    shape: tuple[int, ...]
    blocks: Blocks
    x: Readable
    out: Writable
    #: Scales, offsets.
    sides: tuple[Array, ...]
    #: Words that are read with the elements.
    words: Readable | None = None
    #: What is read beside the sides, shaped as they are.
    beside: Array | None = None
    #: Whether parts whose elements follow each other need no words, but the index of the first element.
    first_will_do: bool = False
    writes_sides: bool = False
    #: What a cut along the last axis has to be a multiple of.
    whole_rows: int = 1
    #: Whether results go over what is read, which is copied then: no loop is vectorized whose arrays are one.
    in_place: bool = False
    #: Whether short blocks that are made rows are filled with zeros, not with an element that they have.
    fills_with_zeros: bool = False
    #: Elements of a part, at most, if its blocks are not larger.
    at_once: int = CHUNK

    def run(self, work: Callable[[Part], None], threads: int | None) -> None:
        """Call `work` with each part, so many at a time."""
        cuts = (*self.blocks[:-1], math.lcm(self.blocks[-1], self.whole_rows)) if self.blocks else ()
        parts = chunks(self.shape, cuts, self.blocks, self.at_once)
        run_in_threads(partial(self._go, work), shares_of(parts, math.prod(self.shape), threads))

    def _go(self, work: Callable[[Part], None], chunks: Sequence[Chunk]) -> None:
        """Part after part: what was written to one is in its place before the next is read."""
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
            beside = () if self.beside is None else (contiguous(self.beside[blocks_where]),)
            work(Part(walk, read, out, (*flat, *beside), first, words))
            if is_aside:
                copy(out if by_walk else from_rows(out, target.shape, self.blocks), target)
            self.out.put(where, target)
            if self.writes_sides:
                for side, made in zip(sides, flat, strict=True):
                    if made is not side:
                        side[...] = made


def as_rows(part: Array, blocks: Blocks, fill: Literal["edge", "constant"] = "edge") -> Array:
    """The elements of an array with a row for each block; short blocks are filled with an element that they have.

    Or with zeros: "constant".
    """
    sizes = _clipped(part.shape, blocks)
    padding = [(0, -length % size) for length, size in zip(part.shape, sizes, strict=True)]
    if any(after for _, after in padding):
        part = np.pad(part, padding, mode=fill)
    return contiguous(_by_blocks(part, sizes).reshape(-1, math.prod(sizes)))


def from_rows(rows: Array, shape: tuple[int, ...], blocks: Blocks) -> Array:
    """The inverse, for an array of that shape."""
    sizes = _clipped(shape, blocks)
    padded = np.empty([-(-length // size) * size for length, size in zip(shape, sizes, strict=True)], rows.dtype)
    target = _by_blocks(padded, sizes)
    target[...] = rows.reshape(target.shape)
    return padded[tuple(slice(length) for length in shape)]


def _clipped(shape: tuple[int, ...], blocks: Blocks) -> Blocks:
    return tuple(min(size, length) for size, length in zip(blocks, shape, strict=True))


def _by_blocks(array: Array, blocks: Blocks) -> Array:
    """A view of whole blocks with the axes (number of blocks along each, elements of a block along each)."""
    pairs = [(length // size, size) for length, size in zip(array.shape, blocks, strict=True)]
    rank = 2 * array.ndim
    return array.reshape([n for pair in pairs for n in pair]).transpose((*range(0, rank, 2), *range(1, rank, 2)))


@lru_cache(maxsize=64)
def chunks(shape: tuple[int, ...], cuts: Blocks, blocks: Blocks, most: int = CHUNK) -> Sequence[Chunk]:
    """Chunks with at most so many elements each, if that can be, each a multiple of `cuts` long, and so of blocks."""
    if not shape:
        return [Chunk((...,), (...,), 0)]
    sizes = [max(1, min(cut, length)) for cut, length in zip(cuts, shape, strict=True)]
    # The first axis that can be cut finely enough; of those before it as little at a time as is allowed.
    fits = (math.prod(sizes[: i + 1]) * math.prod(shape[i + 1 :]) <= most for i in range(len(shape)))
    axis = next((i for i, small in enumerate(fits) if small), len(shape) - 1)
    at_once = max(1, most // max(1, math.prod(sizes[: axis + 1]) * math.prod(shape[axis + 1 :])))
    in_all = -(-shape[axis] // sizes[axis])
    step = -(-in_all // max(1, -(-in_all // at_once))) * sizes[axis]  # all chunks have about the same size
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
