"""How loops traverse contiguous arrays: the loop's argument `shape`, and each thread's share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import pairwise
from typing import Any

from mxnum.engine.machine.workers import bounds, run_in_threads, worth
from mxnum.layout import Blocks, collapse
from mxnum.memory.dtypes import Array

#: The loops along rows are also compiled with each of these block lengths as a constant.
USUAL_RUN, SHORT_RUN = 32, 16
#: The loops over tiles are also compiled with each of these values of `Walk.run` as a constant.
CONSTANT_RUNS = (1, 2, 4, 8, 16)
#: The greatest number of elements in a group of blocks. Random bits are drawn for at most `PIECE`
#: elements at once.
PIECE = 4096
#: The greatest number of blocks in a group. A group stays in the first-level cache between the
#: phases of a loop.
GROUP = 32
#: A panel of columns has about `PANEL` elements, and at most `WIDEST_PANEL` columns. While a loop
#: processes one panel, it prefetches the next panel into the caches.
PANEL, WIDEST_PANEL = 1 << 14, 3072
#: If blocks lie along rows, loops over bands process panels of about `ROW_PANEL` elements. The
#: loops prefetch `ROW_PANEL` float32 numbers, so that one panel is fetched while the panel before
#: it is processed.
ROW_PANEL = 2048
#: A thread with fewer than `ELEMENTS_PER_THREAD` elements costs more time than it saves.
ELEMENTS_PER_THREAD = 1 << 19
#: Blocks that lie along columns are first copied to rows if the array has fewer than `NARROW`
#: columns and at least `WORTH_A_COPY` elements. A loop over so few columns is slower than the copy.
NARROW, WORTH_A_COPY = 8, 1 << 14

#: Marks of groups of blocks. A group with the mark MIXED may hold NaN or infinities; a group with
#: the mark FINITE holds only finite numbers. A group with the mark 0 is not processed again.
MIXED, FINITE = 1, 2

#: The share of an array that one call of a loop processes: (first, last, begin, end). In loops
#: along rows, these are the blocks ``begin:end`` of the rows ``first:last``. In loops over bands,
#: these are the columns ``begin:end`` of the bands ``first:last``.
Bounds = tuple[int, int, int, int]


@dataclass(frozen=True)
class Walk:
    """A contiguous array of shape (planes, rows, columns), with blocks of shape (1, k, run)."""

    planes: int
    rows: int
    columns: int
    k: int
    run: int
    #: The width in bits of a code, for loops that read or write packed codes. In packed arrays,
    #: each row and each block begins at a byte.
    bits: int = 8
    #: The number of columns of a panel, or 0 if `panel` computes this number. If it is not 0, loops
    #: over bands process the array, even if blocks lie along rows.
    fixed_panel: int = 0

    @cached_property
    def along_rows(self) -> bool:
        """True if the module `rows` has the loops for this array, False if `columns` has them."""
        return self.k == 1 and self.run >= SHORT_RUN and not self.fixed_panel

    @cached_property
    def in_bands(self) -> Walk:
        """A copy of this `Walk` with panels of fixed width, for loops over bands of rows."""
        return replace(self, fixed_panel=self.panel)

    @cached_property
    def redone(self) -> Walk:
        """The `Walk` for loops that process marked groups again; its panels are the groups."""
        return replace(self, fixed_panel=self.group * self.run) if self.along_rows else self

    @cached_property
    def constant_run(self) -> int:
        """The value of `run` if a loop is compiled for this block length, else 0.

        If blocks lie along rows, the value is also 0 if each row ends with a short block and has at
        most 7 whole blocks.
        """
        if not self.along_rows:
            return self.run if self.run in CONSTANT_RUNS else 0
        is_common = self.run in (USUAL_RUN, SHORT_RUN)
        return self.run if is_common and (self.columns % self.run == 0 or self.columns >= 8 * self.run) else 0

    @cached_property
    def panel(self) -> int:
        """The number of columns of a panel, a multiple of `run`."""
        if self.fixed_panel:
            return self.fixed_panel
        fits = min(ROW_PANEL if self.along_rows else WIDEST_PANEL, max(PANEL // self.k, 64), self.columns)
        return max(1, fits // self.run) * self.run

    @cached_property
    def group(self) -> int:
        """The number of blocks in a group."""
        return max(1, min(GROUP, PIECE // self.run))

    @cached_property
    def shape(self) -> tuple[int, ...]:
        """The shape that the loop receives as an argument."""
        if self.along_rows:
            return self.columns, self.run, self.group
        return self.rows, self.columns, self.k, self.run, self.panel

    @cached_property
    def groups(self) -> int:
        """The number of groups or panels in the array.

        Each group or panel has a mark, for example `MIXED`.
        """
        full, panel = self.columns // self.run * self.run, self.group * self.run if self.along_rows else self.panel
        return self.planes * -(-self.rows // self.k) * (-(-full // panel) + (full < self.columns))

    @cached_property
    def extent(self) -> tuple[int, int, int]:
        """The numbers of rows, of blocks in a row, and of blocks that a loop processes at once.

        For loops over bands: the numbers of bands, of columns in a band, and of columns in a panel.
        """
        if self.along_rows:
            return self.planes * self.rows, -(-self.columns // self.run), self.group
        return self.planes * -(-self.rows // self.k), self.columns, self.panel

    @cached_property
    def whole(self) -> Bounds:
        """The bounds of a single call that processes the whole array."""
        outer, inner, _ = self.extent
        return 0, outer, 0, inner

    @cached_property
    def elements(self) -> int:
        return self.planes * self.rows * self.columns

    @cached_property
    def is_for_one(self) -> bool:
        """True if a second thread costs more time than it saves."""
        return self.elements < 2 * ELEMENTS_PER_THREAD

    def shares(self, threads: int | None) -> list[Bounds]:
        """Return `Bounds` that cover the array, one tuple for each thread that saves time."""
        count = worth(self.elements, ELEMENTS_PER_THREAD, threads)
        if count == 1:
            return [self.whole]
        outer, inner, step = self.extent
        if outer >= count:
            return [(a, b, 0, inner) for a, b in pairwise(bounds(outer, count))]
        return [(0, outer, a, b) for a, b in pairwise(bounds(inner, count, step)) if a < b]


@lru_cache(maxsize=4096)
def walk_of(shape: tuple[int, ...], blocks: Blocks) -> Walk | None:
    """Return the `Walk` through a contiguous array, or None if each block must be copied to a row.

    The copy is needed if no loop supports the axes of the blocks, or if the array has so few
    columns that a loop over columns is slow.
    """
    clipped = tuple(min(block, max(1, length)) for block, length in zip(blocks, shape, strict=True))
    lengths, sizes = (list(axes) for axes in collapse(shape, clipped))
    # If blocks lie along rows and no block is short, all rows can be joined into one.
    if sizes[-2] == 1 and lengths[-1] % sizes[-1] == 0:
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
    """Return `run(threads, arrays, *rest)`, which runs `loop` over an array as `walk` describes.

    `run` calls `loop(arrays, (shape, bounds), *rest)` once per thread, and returns the sum of the
    results.
    """
    shape, whole, is_for_one = walk.shape, (walk.shape, walk.whole), walk.is_for_one

    def run(threads: int | None, arrays: tuple[Array, ...], *rest: Any) -> int:
        if is_for_one or threads == 1:
            return loop(arrays, whole, *rest) or 0

        def work(share: Bounds) -> int:
            return loop(arrays, (shape, share), *rest) or 0

        return sum(run_in_threads(work, walk.shares(threads)))

    return run
