"""Arrays of any strides as parts that loops can take: contiguous, or copied to where they are.

The axes are taken in the order that memory has them, so that arrays which run the same way are not copied at all.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numba
import numpy as np

from mxnum.dtypes import Array
from mxnum.engine.draws import draw_words
from mxnum.engine.request import RandomBits
from mxnum.engine.turning import SQUARE, contiguous, copy, row_step
from mxnum.engine.walk import CHUNK, Chunk, Walk, chunks, plan, plan_apart, shares
from mxnum.layout import Blocks, element_strides

Order = tuple[int, ...]

#: Elements of a block that is copied, at most: what is larger is left to loops that need no copy.
LARGEST = 1 << 20
#: Elements of an array whose rows lie apart, at least: fewer are copied, which costs less than to find that out.
_FEW = 1 << 12
#: Where results would go, if there were any.
NOTHING = np.empty(1, np.uint8)


class Part(NamedTuple):
    """A part of all arrays, each contiguous, with the loop's way through it."""

    walk: Walk
    #: What is read; its rows may lie apart, if the walk says so.
    x: Array
    #: Where results go.
    out: Array
    sides: tuple[Array, ...]
    #: Random bits for this part alone, of which the first element has the C-order index `first`. Words are contiguous,
    #: or those of a matrix whose columns are, where loops along columns read them.
    random: RandomBits | None
    first: int


@dataclass(frozen=True)
class Parts:
    """An array, its results, and what belongs to its blocks (scales, offsets), with the chunks they are taken in."""

    blocks: Blocks
    x: Array
    out: Array | None
    sides: tuple[Array, ...]
    #: Whether loops write to the sides.
    writes_sides: bool
    random: RandomBits | None
    #: Which axis of the array that was given each axis is, and that array's shape.
    order: Order
    shape: tuple[int, ...]
    #: Whether results go over the array. They are written beside it first: no loop is vectorized whose arrays are one.
    in_place: bool
    chunks: Sequence[Chunk]
    #: The way through all of it, where that is one part and its rows lie apart.
    walk: Walk | None = None

    @property
    def is_whole(self) -> bool:
        return len(self.chunks) == 1

    def shares(self, threads: int | None) -> list[Sequence[Chunk]]:
        """The chunks, shared among the threads that are worth it."""
        return shares(self.chunks, self.x.size, threads)

    def each(self, some: Sequence[Chunk] | None = None) -> Iterator[Part]:
        """Part after part: what was written to one is in its place when the next is asked for."""
        room = _Room()
        for chunk in self.chunks if some is None else some:
            x, walk = self.x[chunk.where], self.walk
            if walk is None:
                x = room.read("x", x)
                walk = plan(x.shape, self.blocks)
            assert walk is not None
            results = None if self.out is None else self.out[chunk.where]
            out = NOTHING if results is None else room.beside("out", results, self.in_place)
            sides = [side[chunk.blocks_where] for side in self.sides]
            flat = tuple(room.read(index, side) for index, side in enumerate(sides))
            random, first = self._random(room, chunk)
            yield Part(walk, x, out, flat, random, first)
            if results is not None and out is not results:
                copy(out, results)
            for side, filled in zip(sides, flat, strict=True):
                if self.writes_sides and filled is not side:
                    side[...] = filled

    def _random(self, room: _Room, chunk: Chunk) -> tuple[RandomBits | None, int]:
        random = self.random
        if random is None or (random.is_turned and self.is_whole):
            return random, 0
        if random.words is not None:
            words, bits = random.words[chunk.where], random.sr_bits
        elif chunk.first is not None and self.order == tuple(range(len(self.order))):
            return random, chunk.first
        else:
            words, bits = self._drawn(random, chunk), 30
        words = words if _is_turned(words, self.blocks) else room.read("words", words)
        return RandomBits(bits, words=words), 0

    def _drawn(self, random: RandomBits, chunk: Chunk) -> Array:
        """The bits of a chunk, aligned to 30, as the C-order index of each element in the array given has them."""
        place = tuple(np.argsort(self.order))
        where = [chunk.where[axis].indices(self.x.shape[axis])[:2] for axis in place]
        lengths, strides = [stop - start for start, stop in where], element_strides(self.shape)
        leading = max(0, len(lengths) - 1)
        while leading and lengths[leading] == self.shape[leading]:  # rows that follow each other are one
            leading -= 1
        firsts = np.full((1,) * leading, sum(start * step for (start, _), step in zip(where, strides, strict=True)))
        for axis in range(leading):
            along = (1,) * axis + (-1,) + (1,) * (leading - axis - 1)
            firsts = firsts + (np.arange(lengths[axis]) * strides[axis]).reshape(along)
        words = np.empty(lengths, np.uint32)
        draw_words(random.sr_bits)((*random.key, 0), firsts.reshape(-1), words.reshape(-1))
        return words.transpose(self.order)


def cut(
    blocks: Blocks,
    x: Array,
    out: Array | None = None,
    sides: tuple[Array, ...] = (),
    random: RandomBits | None = None,
    *,
    writes_sides: bool = False,
    most: int | None = None,
    apart: bool = False,
) -> Parts | None:
    """The parts of arrays that have elements; None where no loop takes such blocks, or a block is too large to copy.

    Arrays that are contiguous when their axes are in some order are one part, unless there may be at `most` so many
    elements in each. With `apart` so are those that are read, if only their rows are contiguous.
    """
    order = _order(blocks, x, out)
    if order is None:
        return None
    shape, turned = x.shape, order != tuple(range(x.ndim))
    if turned:
        blocks, x = tuple(blocks[axis] for axis in order), x.transpose(order)
        out, sides = None if out is None else out.transpose(order), tuple(side.transpose(order) for side in sides)
        if random is not None and random.words is not None:
            random = RandomBits(random.sr_bits, words=random.words.transpose(order))
    if not writes_sides:
        sides = tuple(contiguous(side) if side.size <= CHUNK else side for side in sides)
    words = None if random is None or _is_turned(random.words, blocks) else random.words
    others = [array for array in (out, *sides, words) if array is not None]
    is_drawn = turned and random is not None and random.words is None
    if is_drawn and apart and _counts_along_columns(x.shape, blocks, order):
        assert random is not None
        random, is_drawn = replace(random, is_turned=True), False
    in_place = out is not None and np.may_share_memory(x, out)
    size = CHUNK
    if not (is_drawn or in_place) and all(array.flags.c_contiguous for array in others):
        walk = _plan_apart(x, blocks) if apart and not x.flags.c_contiguous else None
        if walk is not None or x.flags.c_contiguous:
            size = x.size if most is None else most
        if x.size <= size:
            everything = (slice(None),) * x.ndim or (...,)
            chunk = Chunk(everything, everything, 0)
            return Parts(blocks, x, out, sides, writes_sides, random, order, shape, in_place, [chunk], walk)
    some = chunks(x.shape, blocks, size) or chunks(x.shape, blocks, LARGEST)
    return None if some is None else Parts(blocks, x, out, sides, writes_sides, random, order, shape, in_place, some)


def _counts_along_columns(shape: tuple[int, ...], blocks: Blocks, order: Order) -> bool:
    """Whether loops see the transpose of a matrix, by bands and panels, and `draw_from_turned_seed` has its words."""
    if order != (1, 0) or shape[0] % 4:
        return False
    walk = plan(shape, blocks)
    return walk is not None and (walk.planes, walk.rows, walk.columns) == (1, *shape) and walk.k >= 4


def _plan_apart(x: Array, blocks: Blocks) -> Walk | None:
    """The way through an array whose rows are contiguous and equally far from each other; None through any other."""
    if x.size < _FEW or not x.flags.aligned or x.strides[-1] != x.itemsize or numba.config.DISABLE_JIT:
        return None
    step = row_step(x)
    return None if step is None else plan_apart(x.shape, blocks, step)


def _is_turned(words: Array | None, blocks: Blocks) -> bool:
    """Whether random words can be read where they are though they are not in C order: see `draw_from_turned_words`."""
    if words is None or words.ndim != 2 or words.flags.c_contiguous or numba.config.DISABLE_JIT:
        return False
    walk = plan(words.shape, blocks)
    if walk is None or (walk.planes, walk.rows, walk.columns) != (1, *words.shape) or walk.k < SQUARE:
        return False
    return bool(words.T.flags.c_contiguous)


def new_beside(x: Array, shape: tuple[int, ...], dtype: Any) -> Array:
    """A new array of that shape whose memory has the axes in the order in which that of `x` has them."""
    if x.flags.c_contiguous:
        return np.empty(shape, dtype)
    order = memory_order(x)
    return np.empty([shape[axis] for axis in order], dtype).transpose(np.argsort(order))


def _order(blocks: Blocks, x: Array, out: Array | None) -> Order | None:
    """The order of axes in which to go: as the wider of the two arrays lies, if loops take blocks that way."""
    order = memory_order(x if out is None or out.itemsize <= x.itemsize else out)
    walk = plan(tuple(x.shape[axis] for axis in order), tuple(blocks[axis] for axis in order))
    if walk is not None and not walk.is_narrow:
        return order
    blocked = [axis for axis in order if min(blocks[axis], x.shape[axis]) > 1]
    if len(blocked) > 2:
        return None
    return (*(axis for axis in order if axis not in blocked), *blocked)


def memory_order(array: Array) -> Order:
    """The axes by their strides, longest first; C order where elements share their memory."""
    axes = tuple(range(array.ndim))
    if array.flags.c_contiguous:
        return axes
    strides = [
        abs(stride) if length > 1 else math.inf for length, stride in zip(array.shape, array.strides, strict=True)
    ]
    return axes if 0 in strides else tuple(sorted(axes, key=lambda axis: -strides[axis]))


class _Room:
    """Arrays that are used again for each part."""

    def __init__(self) -> None:
        self._arrays: dict[object, Array] = {}

    def beside(self, name: object, array: Array, apart: bool = False) -> Array:
        """The array itself if it is contiguous and need not be `apart`, room for a copy if not."""
        if array.flags.c_contiguous and not apart:
            return array
        room = self._arrays.get(name)
        if room is None or room.size < array.size:
            room = self._arrays[name] = np.empty(array.size, array.dtype)
        return room[: array.size].reshape(array.shape)

    def read(self, name: object, array: Array) -> Array:
        """The array itself, or a copy of it."""
        room = self.beside(name, array)
        if room is not array:
            copy(array, room)
        return room
