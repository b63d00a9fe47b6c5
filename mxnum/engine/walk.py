"""How an operation goes through an array: the shape its loop sees, what each thread does, and in which chunks."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import pairwise, product
from typing import Any, NamedTuple

import numpy as np

from mxnum.dtypes import Array
from mxnum.engine.pieces import bounds, in_pieces, worth
from mxnum.engine.rows import PIECE, SHORT_RUN, USUAL_RUN
from mxnum.layout import Blocks, collapse, element_strides

#: Blocks that a loop along rows takes at a time, at most: they stay in the first cache between its phases.
GROUP = 32
#: Below this many elements a thread costs more than it saves.
ELEMENTS_PER_THREAD = 1 << 19
#: Elements of an array that is not contiguous which are copied at a time.
CHUNK = 1 << 17
#: Columns of a panel, at least: fewer are worth a copy in which their blocks are rows.
NARROW = 8
#: Elements of an array that is worth it, at least.
WORTH_A_COPY = 1 << 14
#: Elements of rows that lie apart, at least: shorter ones are sooner copied.
WORTH_A_LOOP = 64
#: Elements of a panel of columns: while one is done, the next is fetched to the first caches.
PANEL = 1 << 14
#: Columns of a panel, at most: what rows of random words are turned into stays below a MiB.
WIDEST_PANEL = 3072
#: Run lengths for which tiles have a loop of their own.
CONSTANT_RUNS = (1, 2, 4, 8, 16)

Bounds = tuple[int, int, int, int]


@dataclass(frozen=True)
class Walk:
    """An array as (planes, rows, columns) with blocks (1, k, run): contiguous, or of contiguous rows that lie apart."""

    planes: int
    rows: int
    columns: int
    k: int
    run: int
    #: From a row of what is read to the next, in elements, where that is not `columns`.
    pitch: int | None = None

    @cached_property
    def along_rows(self) -> bool:
        """Whether the loops of `rows` take it; those of `columns` take the others."""
        return self.k == 1 and self.run >= SHORT_RUN

    @cached_property
    def is_narrow(self) -> bool:
        """Whether loops along the columns would be too short."""
        return self.run == 1 < self.k and self.columns < NARROW and self.elements >= WORTH_A_COPY

    @cached_property
    def constant_run(self) -> int:
        """What run is, where there is a loop for that length; along rows if all but one of many blocks have it."""
        if not self.along_rows:
            return self.run if self.run in CONSTANT_RUNS else 0
        is_common = self.run in (USUAL_RUN, SHORT_RUN)
        return self.run if is_common and (self.columns % self.run == 0 or self.columns >= 8 * self.run) else 0

    @cached_property
    def panel(self) -> int:
        """Columns of a panel, a multiple of run."""
        fits = min(WIDEST_PANEL, max(PANEL // self.k, 64), self.columns)
        return max(1, fits // self.run) * self.run

    @cached_property
    def group(self) -> int:
        """Blocks of a group."""
        return max(1, min(GROUP, PIECE // self.run))

    @cached_property
    def shape(self) -> tuple[int, ...]:
        """What the loop is told."""
        if self.along_rows:
            return self.columns, self.run, self.group, self.step
        return self.rows, self.columns, self.k, self.run, self.panel, self.step

    @cached_property
    def step(self) -> int:
        """From a row of what is read to the next."""
        return self.columns if self.pitch is None else self.pitch

    @cached_property
    def bands(self) -> tuple[tuple[int, int, int, int, int, int], Bounds]:
        """Shape and bounds for loops that take bands of rows whatever the blocks."""
        shape = self.rows, self.columns, self.k, self.run, self.panel, self.step
        return shape, (0, self.planes * -(-self.rows // self.k), 0, self.columns)

    @cached_property
    def groups(self) -> int:
        """How many groups, or panels, there are."""
        if self.along_rows:
            full = self.columns // self.run
            return self.planes * self.rows * (-(-full // self.group) + (full * self.run < self.columns))
        return self.planes * -(-self.rows // self.k) * -(-self.columns // self.panel)

    @cached_property
    def extent(self) -> tuple[int, int, int]:
        """Rows or bands, what the loop takes of each, and how much of that at a time."""
        if self.along_rows:
            return self.planes * self.rows, -(-self.columns // self.run), self.group
        return self.planes * -(-self.rows // self.k), self.columns, self.panel

    @cached_property
    def whole(self) -> Bounds:
        """The bounds of one call for all."""
        outer, inner, _ = self.extent
        return 0, outer, 0, inner

    @cached_property
    def elements(self) -> int:
        return self.planes * self.rows * self.columns

    @cached_property
    def is_for_one(self) -> bool:
        """Whether more than one thread is never worth it."""
        return worth(self.elements, ELEMENTS_PER_THREAD, 2) == 1

    def pieces(self, threads: int | None) -> list[Bounds]:
        """The bounds of the calls that make up the whole, one for each thread that is worth it."""
        count = worth(self.elements, ELEMENTS_PER_THREAD, threads)
        if count == 1:
            return [self.whole]
        outer, inner, step = self.extent
        if outer >= count:
            return [(a, b, 0, inner) for a, b in pairwise(bounds(outer, count))]
        return [(0, outer, a, b) for a, b in pairwise(bounds(inner, count, step)) if a < b]


@lru_cache(maxsize=4096)
def plan(shape: tuple[int, ...], blocks: Blocks) -> Walk | None:
    """How the fast loops go through a contiguous array; None where blocks span axes that no loop has."""
    clipped = tuple(min(block, max(1, length)) for block, length in zip(blocks, shape, strict=True))
    lengths, sizes = (list(axes) for axes in collapse(shape, clipped))
    if sizes[-2] == 1 and lengths[-1] % sizes[-1] == 0:  # no block is cut short: rows join
        lengths[-2:], sizes[-2:] = [lengths[-2] * lengths[-1]], [sizes[-1]]
    while len(lengths) < 3:
        lengths.insert(0, 1)
        sizes.insert(0, 1)
    if len(lengths) > 3 or sizes[0] != 1:
        return None
    planes, rows, columns = lengths
    return Walk(planes, rows, columns, sizes[1], sizes[2])


@lru_cache(maxsize=1024)
def plan_apart(shape: tuple[int, ...], blocks: Blocks, pitch: int) -> Walk | None:
    """The same for an array whose rows are contiguous and begin every `pitch` elements."""
    walk, columns = plan(shape, blocks), shape[-1]
    if walk is None or walk.is_narrow or columns < WORTH_A_LOOP:
        return None
    if walk.columns == columns:
        return replace(walk, pitch=pitch)
    if walk.k > 1 or walk.columns % columns or columns % walk.run:
        return None
    return Walk(1, math.prod(shape[:-1]), columns, 1, walk.run, pitch)


def in_threads(loop: Callable[..., Any], walk: Walk) -> Callable[..., int]:
    """(threads, arrays, *rest) -> the sum of what a loop returns that goes through all of a walk.

    The loop takes three arrays, shape, bounds, and the rest.
    """
    shape, whole, is_for_one = walk.shape, walk.whole, walk.is_for_one

    def run(threads: int | None, flat: tuple[Array, Array, Array], *rest: Any) -> int:
        if is_for_one or threads == 1:
            return loop(*flat, shape, whole, *rest) or 0

        def work(piece: Bounds) -> int:
            return loop(*flat, shape, piece, *rest) or 0

        return sum(in_pieces(work, walk.pieces(threads)))

    return run


def shares(items: Sequence[Any], elements: int, threads: int | None) -> list[Sequence[Any]]:
    """What there is to do for so many elements, shared among the threads that are worth it."""
    count = min(len(items), worth(elements, ELEMENTS_PER_THREAD, threads))
    return [items[start:stop] for start, stop in pairwise(bounds(len(items), count))]


class Chunk(NamedTuple):
    """Slices of an array, and of its scales."""

    where: tuple[Any, ...]
    blocks_where: tuple[Any, ...]
    #: The C-order index of the first element; None where the others do not follow it one by one.
    first: int | None


@lru_cache(maxsize=64)
def chunks(shape: tuple[int, ...], blocks: Blocks, most: int = CHUNK) -> Sequence[Chunk] | None:
    """Chunks of whole blocks, with at most so many elements each; None where blocks are too large for that."""
    if not shape:
        return [Chunk((...,), (...,), 0)]
    sizes = [min(block, length) for block, length in zip(blocks, shape, strict=True)]
    # The first axis that can be cut finely enough; of those before it a block at a time is taken.
    fits = (math.prod(sizes[: i + 1]) * math.prod(shape[i + 1 :]) <= most for i in range(len(shape)))
    axis = next((i for i, small in enumerate(fits) if small), None)
    if axis is None:
        return None
    at_once = most // (math.prod(sizes[: axis + 1]) * math.prod(shape[axis + 1 :]))
    in_all = -(-shape[axis] // sizes[axis])
    step = -(-in_all // -(-in_all // at_once)) * sizes[axis]  # all chunks have about the same size
    steps, rest = [*sizes[:axis], step], (slice(None),) * (len(shape) - axis - 1)
    strides, in_line = element_strides(shape), all(size == 1 for size in sizes[:axis])
    made = []
    for starts in product(*(range(0, shape[i], steps[i]) for i in range(axis + 1))):
        where = [slice(start, min(start + steps[i], shape[i])) for i, start in enumerate(starts)]
        of_blocks = [slice(part.start // blocks[i], -(-part.stop // blocks[i])) for i, part in enumerate(where)]
        first = sum(start * strides[i] for i, start in enumerate(starts)) if in_line else None
        made.append(Chunk((*where, *rest), (*of_blocks, *rest), first))
    return made


def overlaps_partly(x: Array, out: Array) -> bool:
    """Whether storing to `out` could change an element of `x` not read yet: they share memory, but not place."""
    if not np.may_share_memory(x, out):
        return False
    return out.ctypes.data != x.ctypes.data or out.strides != x.strides or out.dtype != x.dtype
