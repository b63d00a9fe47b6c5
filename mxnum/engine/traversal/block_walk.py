"""How the loops go through a contiguous array: the shape that they see, and what each thread does."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import pairwise
from typing import Any

from mxnum.definition.word import dialect
from mxnum.engine.machine.workers import bounds, run_in_threads, worth
from mxnum.layout import Blocks, collapse
from mxnum.memory.dtypes import Array

#: Block lengths for which rows have a loop of constant length, the usual one and a shorter.
USUAL_RUN, SHORT_RUN = 32, 16
#: Run lengths for which tiles have a loop of their own.
CONSTANT_RUNS = (1, 2, 4, 8, 16)
#: Elements of a group of blocks, and for which random bits are drawn at a time, at most.
PIECE = 4096
#: Blocks that a loop along rows takes at a time, at most: they stay in the first cache between its phases.
GROUP = 32
#: Elements of a panel of columns: while one is done, the next is fetched to the first caches. And its columns, at most.
PANEL, WIDEST_PANEL = 1 << 14, 3072
#: The same along rows, for loops that take bands: as many float32 numbers as they ask for ahead, so that one panel is
#: fetched while the one before it is done.
ROW_PANEL = 2048
#: Below this many elements a thread costs more than it saves.
ELEMENTS_PER_THREAD = 1 << 19
#: Columns below which blocks of several rows of a larger array are worth a copy in which they are rows.
NARROW, WORTH_A_COPY = 8, 1 << 14

#: Marks of groups that are still to be done: those that may hold what is not finite, and those of finite numbers alone.
MIXED, FINITE = 1, 2

#: What one call of a loop does: rows or bands `first` to `last`, and of each the blocks or columns `begin` to `end`.
Bounds = tuple[int, int, int, int]


@dataclass(frozen=True)
class Walk:
    """A contiguous array as (planes, rows, columns) with blocks (1, k, run)."""

    planes: int
    rows: int
    columns: int
    k: int
    run: int
    #: Of a code, where loops read or write codes packed: each row and each block begins at a byte then.
    bits: int = 8
    #: Columns of a panel, for loops that take bands whatever the blocks; 0 where rows have loops of their own.
    fixed_panel: int = 0

    @cached_property
    def along_rows(self) -> bool:
        """Whether the loops of `rows` take it; those of `columns` take the others."""
        return self.k == 1 and self.run >= SHORT_RUN and not self.fixed_panel

    @cached_property
    def in_bands(self) -> Walk:
        """The same for loops that take bands of rows whatever the blocks."""
        return replace(self, fixed_panel=self.panel)

    @cached_property
    def redone(self) -> Walk:
        """The same for loops that redo what is marked: a group of blocks is a panel to them."""
        return replace(self, fixed_panel=self.group * self.run) if self.along_rows else self

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
        if self.fixed_panel:
            return self.fixed_panel
        fits = min(ROW_PANEL if self.along_rows else WIDEST_PANEL, max(PANEL // self.k, 64), self.columns)
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
    def groups(self) -> int:
        """How many groups, or panels, there are: each has a mark."""
        full, panel = self.columns // self.run * self.run, self.group * self.run if self.along_rows else self.panel
        return self.planes * -(-self.rows // self.k) * (-(-full // panel) + (full < self.columns))

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
        return self.elements < 2 * ELEMENTS_PER_THREAD

    def shares(self, threads: int | None) -> list[Bounds]:
        """The bounds of the calls that make up the whole, one for each thread that is worth it."""
        count = worth(self.elements, ELEMENTS_PER_THREAD, threads)
        if count == 1:
            return [self.whole]
        outer, inner, step = self.extent
        if outer >= count:
            return [(a, b, 0, inner) for a, b in pairwise(bounds(outer, count))]
        return [(0, outer, a, b) for a, b in pairwise(bounds(inner, count, step)) if a < b]


@dialect
def rows_of(band, shape):
    """First and last row of a band."""
    rows, _, k, _, _ = shape
    bands = (rows + k - 1) // k
    begin = band % bands * k
    return band // bands * rows + begin, band // bands * rows + min(begin + k, rows)


@dialect
def panel_of(band, column, shape):
    """Number of the panel that begins there, and its width; a short block is a panel by itself."""
    _, columns, _, run, panel = shape
    full = columns // run * run
    per_band = (full + panel - 1) // panel + (1 if full < columns else 0)
    if column >= full:
        return band * per_band + per_band - 1, columns - full
    return band * per_band + column // panel, min(panel, full - column)


@lru_cache(maxsize=4096)
def walk_of(shape: tuple[int, ...], blocks: Blocks) -> Walk | None:
    """The walk through a contiguous array; None where its blocks have to be made rows first.

    Those are blocks over axes that no loop has, and columns so few that a loop along them would be too short.
    """
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
    walk = Walk(planes, rows, columns, sizes[1], sizes[2])
    is_narrow = walk.run == 1 < walk.k and columns < NARROW and walk.elements >= WORTH_A_COPY
    return None if is_narrow else walk


def in_threads(loop: Callable[..., Any], walk: Walk) -> Callable[..., int]:
    """(threads, arrays, *rest) -> the sum of what a loop returns that goes through all of a walk.

    The loop takes arrays, shape, bounds, and the rest.
    """
    shape, whole, is_for_one = walk.shape, walk.whole, walk.is_for_one

    def run(threads: int | None, arrays: tuple[Array, ...], *rest: Any) -> int:
        if is_for_one or threads == 1:
            return loop(*arrays, shape, whole, *rest) or 0

        def work(share: Bounds) -> int:
            return loop(*arrays, shape, share, *rest) or 0

        return sum(run_in_threads(work, walk.shares(threads)))

    return run


def shares_of(items: Sequence[Any], elements: int, threads: int | None) -> list[Sequence[Any]]:
    """What there is to do for so many elements, shared among the threads that are worth it."""
    count = min(len(items), worth(elements, ELEMENTS_PER_THREAD, threads))
    return [items[start:stop] for start, stop in pairwise(bounds(len(items), count))]
