"""How an operation goes through arrays: the shape its loop sees, what each thread does, and what is not contiguous."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import pairwise
from threading import Thread
from typing import Any

import numba
import numpy as np

from mxnum.dtypes import Array
from mxnum.engine.rows import PIECE, SHORT_RUN, USUAL_RUN
from mxnum.layout import Blocks, collapse

#: Blocks that a loop along rows takes at a time, at most: they stay in the first cache between its phases.
GROUP = 32
#: Below this many elements a thread costs more than it saves.
ELEMENTS_PER_THREAD = 1 << 19
#: Elements of an array that is not contiguous which are copied at a time.
CHUNK = 1 << 17
#: Elements of a panel of columns, which both phases of a loop find in the second cache.
PANEL = 1 << 17
#: Columns of a panel, at most.
WIDEST_PANEL = 4096
#: Run lengths for which tiles have a loop of their own.
CONSTANT_RUNS = (1, 2, 4, 8, 16)

Bounds = tuple[int, int, int, int]


@dataclass(frozen=True)
class Walk:
    """A contiguous array as (planes, rows, columns) with blocks (1, k, run)."""

    planes: int
    rows: int
    columns: int
    k: int
    run: int

    @cached_property
    def along_rows(self) -> bool:
        """Whether the loops of `rows` take it; those of `columns` take the others."""
        return self.k == 1 and self.run >= SHORT_RUN

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
            return self.columns, self.run, self.group
        return self.rows, self.columns, self.k, self.run, self.panel

    @cached_property
    def bands(self) -> tuple[tuple[int, int, int, int, int], Bounds]:
        """Shape and bounds for loops that take bands of rows whatever the blocks."""
        shape = self.rows, self.columns, self.k, self.run, self.panel
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
    def most_threads(self) -> int:
        """How many threads are worth it."""
        return max(1, self.planes * self.rows * self.columns // ELEMENTS_PER_THREAD)

    def pieces(self, threads: int) -> list[Bounds]:
        """The bounds of the calls that make up the whole, one for each thread that is worth it."""
        count = min(threads, self.most_threads)
        outer, inner, step = self.extent
        if outer >= count:
            return [(a, b, 0, inner) for a, b in pairwise(_bounds(outer, count, 1))]
        return [(0, outer, a, b) for a, b in pairwise(_bounds(inner, count, step)) if a < b]


def _bounds(length: int, parts: int, step: int) -> list[int]:
    steps = -(-length // step)
    return [min(length, steps * part // parts * step) for part in range(parts + 1)]


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


def in_threads(loop: Callable[..., Any], walk: Walk, threads: int | None, *arguments: Any) -> int:
    """Run a loop over all of a walk and add up what it returns. Its bounds come after three arrays and the shape.

    Threads are made for the call: they inherit its floating-point environment.
    """
    if walk.most_threads == 1 or threads == 1:
        return loop(*arguments[:3], walk.shape, walk.whole, *arguments[3:]) or 0
    pieces = walk.pieces(threads or numba.get_num_threads())
    results: list[int] = []

    def work(bounds: Bounds) -> None:
        results.append(loop(*arguments[:3], walk.shape, bounds, *arguments[3:]) or 0)

    workers = [Thread(target=work, args=(bounds,)) for bounds in pieces[1:]]
    for worker in workers:
        worker.start()
    work(pieces[0])
    for worker in workers:
        worker.join()
    return sum(results)


def rows_joined(shape: tuple[int, ...], blocks: Blocks) -> tuple[tuple[int, ...], Blocks]:
    """The shape and blocks of a contiguous array as few axes as rows allow, so that `chunks` can cut it anywhere."""
    if not shape:
        return (1,), (1,)
    walk = plan(shape, blocks)
    if walk is None or not walk.along_rows:
        return shape, blocks
    if walk.planes * walk.rows == 1:
        return (walk.columns,), (walk.run,)
    return (walk.planes * walk.rows, walk.columns), (1, walk.run)


def chunks(shape: tuple[int, ...], blocks: Blocks) -> Iterator[tuple[tuple[slice, ...], tuple[slice, ...], int]] | None:
    """Slices of an array and of its scales, with the C-order index of their first element; None if they are too large.

    Each is contiguous where the array is, holds whole blocks, and at most `CHUNK` elements.
    """
    axis = next((axis for axis, length in enumerate(shape) if length > 1), None)
    if axis is None:
        return None
    per_index = math.prod(shape[axis + 1 :])
    step = CHUNK // per_index // blocks[axis] * blocks[axis]
    if step == 0:
        return None
    before = (slice(None),) * axis

    def slices() -> Iterator[tuple[tuple[slice, ...], tuple[slice, ...], int]]:
        for start in range(0, shape[axis], step):
            stop = min(start + step, shape[axis])
            some_blocks = slice(start // blocks[axis], -(-stop // blocks[axis]))
            yield (*before, slice(start, stop)), (*before, some_blocks), start * per_index

    return slices()


def overlaps_partly(x: Array, out: Array) -> bool:
    """Whether storing to `out` could change an element of `x` not read yet: they share memory, but not place."""
    if not np.may_share_memory(x, out):
        return False
    return out.ctypes.data != x.ctypes.data or out.strides != x.strides or out.dtype != x.dtype
