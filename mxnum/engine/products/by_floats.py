"""Sums by float hardware: the bits of `by_definition`, in the default floating-point environment.

Sums in sequence need only fused multiply-adds. Sums by blocks need floats that hold them, which
`exactness` decides.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from mxnum.engine.machine.workers import bounds, run_in_threads, worth
from mxnum.engine.products import row_by_row
from mxnum.engine.products.exactness import Held, is_normal_float32
from mxnum.engine.products.operands import Operand, ToFloat32
from mxnum.engine.products.panels import Decoder, decoder, new_panels, pack
from mxnum.engine.products.register_tile import HAS_FMA, SHAPES, multiply
from mxnum.formats import E8M0
from mxnum.memory.dtypes import Array

__all__ = ["HAS_FMA", "by_blocks", "in_sequence"]

#: With fewer multiplications, another thread costs more than it saves.
MULTIPLICATIONS_PER_THREAD = 1 << 22
#: About how many bytes of panels are packed at a time. They stay in the second- or third-level
#: cache.
_CHUNK = 1 << 20

#: 2**(code - 127) by scale code. The table is made of bit patterns, since float arithmetic would
#: depend on the floating-point environment at import.
_POWERS = np.array([1 << 22, *(code << 23 for code in range(1, E8M0.nan_code)), 0x7FC00000], np.uint32).view(np.float32)


def in_sequence(a: Operand, b: Operand, out: Array, threads: int | None, to_float32: ToFloat32) -> None:
    """Compute acc = fma(a, b, acc) in index order, for two matrices that are `by_rows`.

    `out` holds the sums' starting values.
    """
    if out.size == 1:
        row_by_row.in_sequence(to_float32(a, threads).ravel(), to_float32(b, threads).ravel(), out)
        return
    _multiply(_in_sequence(a, to_float32), _in_sequence(b, to_float32), "float32", None, out, threads)


def _in_sequence(x: Operand, to_float32: ToFloat32) -> _Side:
    # A value is one rounding away from its element if the element itself is a normal float32.
    if x.scales is not None and x.offsets is None and is_normal_float32(x.format):
        return _by_codes(x)
    return _Side(x.array.shape, lambda some: to_float32(x.rows(some), 1))


def by_blocks(a: Operand, b: Operand, held: Held, out: Array, threads: int | None) -> None:
    """Compute acc = acc + (the sum of a block, scaled and rounded once) in block order.

    Both matrices are `by_rows`. `out` holds the sums' starting values.
    """
    run = min(a.blocks[-1], a.array.shape[-1])
    if out.size > 1 and held.step is None:
        _multiply(_by_codes(a), _by_codes(b), held.word, run, out, threads)
        return
    left, right, scales_a, scales_b = decoder(a.format).table, decoder(b.format).table, _scales(a), _scales(b)
    at_once = max(1, _CHUNK // (16 * run * max(out.shape))) * run
    for start in range(0, a.array.shape[1], at_once):
        some, blocks = slice(start, start + at_once), slice(start // run, (start + at_once) // run)
        row_by_row.by_blocks(
            left.take(a.array[:, some]), right.take(b.array[:, some]), scales_a[:, blocks], scales_b[:, blocks],
            run, held.step, out, threads,
        )  # fmt: skip


def _scales(x: Operand) -> Array:
    codes: Any = x.scales
    powers: Array = _POWERS.take(codes)
    return powers


@dataclass(frozen=True, eq=False)
class _Side:
    """An operand whose rows are packed into panels: float32 values, or codes with scales."""

    shape: tuple[int, ...]
    rows: Callable[[slice], Array]
    decoder: Decoder | None = None
    scales: Array | None = None
    #: The number of elements that share a scale.
    block: int = 1

    def room(self, rows: int, width: int, word: str, run: int | None) -> tuple[Array, Array | None]:
        """Return empty panels for `rows` rows, and panels for their scales or None.

        Sums by blocks of `run` elements need panels for scales, and have panels as long as whole
        blocks.
        """
        if run is None:
            return new_panels(rows, self.shape[1], width, word), None
        blocks = -(-self.shape[1] // run)
        return new_panels(rows, blocks * run, width, word), new_panels(rows, blocks, width, word)

    def pack(self, some: slice, panels: Array, scales: Array | None) -> None:
        """Write rows to `panels`: elements if there are panels for scales, else values."""
        if self.scales is None:
            pack(self.rows(some), panels)
        elif scales is not None:
            pack(self.rows(some), panels, self.decoder)
            pack(self.scales[some], scales)
        else:
            count, _, width = panels.shape
            scales = np.empty((count, self.scales.shape[1], width), np.float32)
            pack(self.scales[some], scales)
            pack(self.rows(some), panels, self.decoder, scales, self.block)


def _by_codes(x: Operand) -> _Side:
    return _Side(x.array.shape, x.array.__getitem__, decoder(x.format), _scales(x), x.blocks[-1])


def _multiply(left: _Side, right: _Side, word: str, run: int | None, out: Array, threads: int | None) -> None:
    """Compute one matrix product by blocks of `run` elements, or in sequence if `run` is None."""
    height, width = out.shape
    rows, columns = SHAPES[word].rows, SHAPES[word].columns
    # With few columns, exchange the operands so that vectors are filled.
    if width < height and width <= columns // 2:
        turned = out.T.copy()
        _multiply(right, left, word, run, turned, threads)
        out[...] = turned.T
        return
    workers = worth(height * width * left.shape[1], MULTIPLICATIONS_PER_THREAD, threads)
    panels, scales = left.room(height, rows, word, run)
    at_once = max(1, _CHUNK // max(1, panels[:1].nbytes))

    def pack_rows(part: tuple[int, int]) -> None:
        for first in range(*part, at_once):
            some = slice(first, min(first + at_once, part[1]))
            left.pack(slice(some.start * rows, some.stop * rows), panels[some], _some(scales, some))

    def multiply_with_columns(part: tuple[slice, int, int]) -> None:
        some, first, last = part
        lines = out[some.start * rows : some.stop * rows]
        chunk = max(1, _CHUNK // max(1, panels.itemsize * columns * panels.shape[1])) * columns
        its_panels, its_scales = right.room(min(chunk, last - first), columns, word, run)
        for start in range(first, last, chunk):
            stop = min(start + chunk, last)
            count = slice(-(-(stop - start) // columns))
            right.pack(slice(start, stop), its_panels[count], _some(its_scales, count))
            b, scales_b = its_panels[count], _some(its_scales, count)
            multiply(panels[some], b, _some(scales, some), scales_b, run or 1, lines, start)

    run_in_threads(pack_rows, list(pairwise(bounds(len(panels), min(workers, len(panels))))))
    run_in_threads(multiply_with_columns, _parts(len(panels), width, columns, workers))


def _some(scales: Array | None, which: slice) -> Array | None:
    return None if scales is None else scales[which]


def _parts(panels: int, width: int, columns: int, workers: int) -> list[Any]:
    """Return (panels of rows, first column, end of columns) for each worker."""
    if width >= workers * columns or width >= panels * columns:
        return [(slice(0, panels), a, b) for a, b in pairwise(bounds(width, workers, columns)) if a < b]
    return [(slice(a, b), 0, width) for a, b in pairwise(bounds(panels, workers)) if a < b]
