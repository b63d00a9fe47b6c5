"""Sums by float hardware, with the same bits as the sums of `by_definition`.

The functions need the default floating-point environment. Sums in sequence need only fused
multiply-adds. Sums by blocks need a number type that holds the exact sums; `exactness` chooses this
type.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from mxnum.engine.machine.workers import bounds, run_in_threads, worth
from mxnum.engine.products import integers, row_by_row
from mxnum.engine.products.exactness import Held, is_normal_float32, run_of
from mxnum.engine.products.integers import Integers
from mxnum.engine.products.operands import Operand, ToFloat32
from mxnum.engine.products.panels import decoder, new_panels, pack
from mxnum.engine.products.register_tile import HAS_FMA, SHAPES, multiply
from mxnum.formats import E8M0, ElementFormat
from mxnum.memory.dtypes import Array

__all__ = ["HAS_FMA", "add_to_rows", "by_blocks", "by_blocks_of_stack", "in_sequence", "scale"]

#: Threads save time only if each thread does at least this many multiplications.
MULTIPLICATIONS_PER_THREAD = 1 << 22
#: About how many bytes of panels are packed at a time, so that the panels stay in the second- or
#: third-level cache.
_CHUNK = 1 << 20

#: 2**(code - 127) for each E8M0 code. The table is made of bit patterns, since float arithmetic
#: would depend on the floating-point environment at import.
_POWERS = np.array([1 << 22, *(code << 23 for code in range(1, E8M0.nan_code)), 0x7FC00000], np.uint32).view(np.float32)


def in_sequence(a: Operand, b: Operand, out: Array, threads: int | None, to_float32: ToFloat32) -> None:
    """Compute acc = fma(a, b, acc) in index order, for every pair of rows of two matrices.

    Both matrices come from `Operand.by_rows`. `out` holds the starting values of the sums.
    """
    if out.size == 1:
        row_by_row.in_sequence(to_float32(a, threads).ravel(), to_float32(b, threads).ravel(), out)
        return
    _multiply(_in_sequence(a, to_float32), _in_sequence(b, to_float32), "float32", None, out, threads)


def _in_sequence(x: Operand, to_float32: ToFloat32) -> _Side:
    # If the format has only normal float32 numbers, decoding is exact, and only the multiplication
    # by scales rounds.
    if x.scales is not None and x.offsets is None and is_normal_float32(x.format):
        return _by_codes(x)
    return _Side(x.array.shape, lambda some: to_float32(x.rows(some), 1), x.format)


def by_blocks(a: Operand, b: Operand, held: Held, out: Array, threads: int | None) -> None:
    """Add the sum of each block, scaled and rounded once, to `out` in block order.

    Both matrices come from `Operand.by_rows`. `out` holds the starting values of the sums.
    """
    run = run_of(a)
    if out.size > 1 and held.step is None:
        _multiply(_by_codes(a, held.word), _by_codes(b, held.word), held.word, run, out, threads)
        return
    left, right, scales_a, scales_b = decoder(a.format).table, decoder(b.format).table, _scales(a, 0), _scales(b, 0)
    at_once = max(1, _CHUNK // (16 * run * max(out.shape))) * run
    for start in range(0, a.array.shape[1], at_once):
        some, blocks = slice(start, start + at_once), slice(start // run, (start + at_once) // run)
        row_by_row.by_blocks(
            left.take(a.array[:, some]), right.take(b.array[:, some]), scales_a[:, blocks], scales_b[:, blocks],
            run, held.step, out, threads,
        )  # fmt: skip


def _scales(x: Operand, unit: int) -> Array:
    """Return the scales of `x` as floats, multiplied by 2**unit."""
    codes: Any = x.scales
    if x.has_float_scales:
        return codes * np.float32(2.0**unit)  # type: ignore[no-any-return]
    scales: Array = _powers(unit).take(codes)
    return scales


@cache
def _powers(unit: int) -> Array:
    """Return 2**(code - 127 + unit) for each E8M0 code."""
    powers: Array = np.ldexp(_POWERS, unit)
    return powers


class _Panels(NamedTuple):
    """The packed rows of an operand: panels of numbers, and panels of scales if there are any."""

    numbers: Array
    #: Panels of scales, for sums by blocks; else None.
    scales: Array | None = None
    #: For a right operand of 8-bit integers: panels of the initial values of block sums; else None.
    starts: Array | None = None

    def part(self, which: slice) -> _Panels:
        """Return the panels that the slice `which` selects."""
        scales = None if self.scales is None else self.scales[which]
        return _Panels(self.numbers[which], scales, None if self.starts is None else self.starts[which])


class _Side(NamedTuple):
    """An operand whose rows are packed into panels: float32 values, or codes with scales."""

    shape: tuple[int, ...]
    rows: Callable[[slice], Array]
    format: ElementFormat
    integers: Integers | None = None
    scales: Array | None = None
    #: The number of elements that share a scale.
    block: int = 1

    def new_panels(self, rows: int, word: str, run: int | None, is_right: bool) -> _Panels:
        """Return uninitialized panels for `rows` rows.

        If `run` is given, there are also panels for scales, and rows have room for whole blocks of
        `run` elements.
        """
        width = SHAPES[word].columns if is_right else SHAPES[word].rows
        if run is None:
            return _Panels(new_panels(rows, self.shape[1], width, word))
        blocks = -(-self.shape[1] // run)
        if word not in integers.IN_WORD:
            scales = new_panels(rows, blocks, width, word)
            return _Panels(new_panels(rows, blocks * run, width, word), scales)
        starts = new_panels(rows, blocks, width, "int32") if is_right and word == "int8" else None
        numbers = integers.new_panels(rows, blocks * run, width, word)
        return _Panels(numbers, new_panels(rows, blocks, width, "float32"), starts)

    def pack(self, some: slice, panels: _Panels, bias: int = 0) -> None:
        """Pack the rows that the slice `some` selects into `panels`.

        If `panels` has panels for scales, the scales are packed into these panels. Otherwise, each
        element is multiplied by its scale.

        `bias` is added to all 8-bit integers of the left operand, so that none of them is negative.
        """
        if self.scales is None:
            pack(self.rows(some), panels.numbers)
            return
        scales = panels.scales
        if scales is None:
            count, _, width = panels.numbers.shape
            scales = np.empty((count, self.scales.shape[1], width), np.float32)
        pack(self.scales[some], scales)
        if self.integers is not None:
            integers.pack(self.rows(some), self.integers, panels.numbers, bias, panels.starts)
        elif panels.scales is not None:
            pack(self.rows(some), panels.numbers, decoder(self.format))
        else:
            pack(self.rows(some), panels.numbers, decoder(self.format), scales, self.block)


def scale(x: Array, factors: Array) -> None:
    """Multiply the matrix `x` by float32 factors in place, each product rounded once."""
    _in_place(np.multiply, x, factors)


def add_to_rows(x: Array, row: Array) -> None:
    """Add the vector `row` to each row of the matrix `x`, in place and in float32."""
    _in_place(np.add, x, row)


def _in_place(operation: np.ufunc, x: Array, other: Array) -> None:
    """Replace `x` by `operation(x, other)`, and every NaN by the canonical NaN.

    `x` is processed in parts that stay in the cache.
    """
    other = np.broadcast_to(other, x.shape)
    at_once = max(1, _CHUNK // (4 * max(1, x[:1].size)))
    with np.errstate(all="ignore"):
        for first in range(0, len(x), at_once):
            some = slice(first, first + at_once)
            part = operation(x[some], other[some], out=x[some])
            if np.isnan(part.max(initial=0)):
                part[np.isnan(part)] = np.nan


def _by_codes(x: Operand, word: str = "float32") -> _Side:
    elements = integers.integers_of(x.format) if word in integers.IN_WORD else None
    scales = _scales(x, 0 if elements is None else elements.unit)
    return _Side(x.array.shape, x.array.__getitem__, x.format, elements, scales, x.blocks[-1])


def _multiply(left: _Side, right: _Side, word: str, run: int | None, out: Array, threads: int | None) -> None:
    """Compute one matrix product by blocks of `run` elements, or in sequence if `run` is None."""
    height, width = out.shape
    rows, columns = SHAPES[word].rows, SHAPES[word].columns
    # If the result has few columns, swap the operands, so that the columns fill a vector.
    if width < height and width <= columns // 2:
        turned = out.T.copy()
        _multiply(right, left, word, run, turned, threads)
        out[...] = turned.T
        return
    workers = worth(height * width * left.shape[1], MULTIPLICATIONS_PER_THREAD, threads)
    panels = left.new_panels(height, word, run, is_right=False)
    count, step = len(panels.numbers), run // integers.IN_WORD.get(word, 1) if run else 1
    at_once = max(1, _CHUNK // max(1, panels.numbers[:1].nbytes))
    bias = 0 if left.integers is None else left.integers.bias

    def pack_rows(part: tuple[int, int]) -> None:
        for first in range(*part, at_once):
            some = slice(first, min(first + at_once, part[1]))
            left.pack(slice(some.start * rows, some.stop * rows), panels.part(some), bias)

    def multiply_with_columns(part: tuple[slice, int, int]) -> None:
        some, first, last = part
        a, lines = panels.part(some), out[some.start * rows : some.stop * rows]
        chunk = max(1, _CHUNK // max(1, panels.numbers[:1].nbytes // rows * columns)) * columns
        its_panels = right.new_panels(min(chunk, last - first), word, run, is_right=True)
        for start in range(first, last, chunk):
            stop = min(start + chunk, last)
            b = its_panels.part(slice(-(-(stop - start) // columns)))
            right.pack(slice(start, stop), b, bias)
            multiply((a.numbers, b.numbers, a.scales, b.scales, b.starts), step, lines, start, 1)

    run_in_threads(pack_rows, list(pairwise(bounds(count, min(workers, count)))))
    run_in_threads(multiply_with_columns, _parts(count, width, columns, workers))


def by_blocks_of_stack(a: Operand, b: Operand, held: Held, out: Array, threads: int | None) -> None:
    """Compute `by_blocks` for each matrix of a stack of small matrices.

    All arrays have three axes. `out` holds the starting values of the sums. One call of the
    compiled loop multiplies many matrices, because calling the loop takes longer than one small
    product.
    """
    count, height, width = out.shape
    shape, run = SHAPES[held.word], run_of(a)
    if width < height and width <= shape.columns // 2:
        turned = np.ascontiguousarray(out.swapaxes(1, 2))
        by_blocks_of_stack(b, a, held, turned, threads)
        out[...] = turned.swapaxes(1, 2)
        return
    left, right = _by_codes(a.joined(shape.rows), held.word), _by_codes(b.joined(shape.columns), held.word)
    rows, columns = left.shape[0] // count, right.shape[0] // count
    at_once = max(1, _CHUNK // ((rows + columns) * a.array.shape[-1] * 4))
    bias, step = 0 if left.integers is None else left.integers.bias, run // integers.IN_WORD.get(held.word, 1)

    def work(part: tuple[int, int]) -> None:
        for first in range(*part, at_once):
            stop = min(first + at_once, part[1])
            x = left.new_panels((stop - first) * rows, held.word, run, is_right=False)
            y = right.new_panels((stop - first) * columns, held.word, run, is_right=True)
            left.pack(slice(first * rows, stop * rows), x, bias)
            right.pack(slice(first * columns, stop * columns), y, bias)
            lines = out[first:stop].reshape(-1, width)
            multiply((x.numbers, y.numbers, x.scales, y.scales, y.starts), step, lines, 0, stop - first)

    workers = worth(out.size * a.array.shape[-1], MULTIPLICATIONS_PER_THREAD, threads)
    run_in_threads(work, list(pairwise(bounds(count, min(workers, count)))))


def _parts(panels: int, width: int, columns: int, workers: int) -> list[Any]:
    """Return the share of each worker: (slice of row panels, first column, end column)."""
    if width >= workers * columns or width >= panels * columns:
        return [(slice(0, panels), a, b) for a, b in pairwise(bounds(width, workers, columns)) if a < b]
    return [(slice(a, b), 0, width) for a, b in pairwise(bounds(panels, workers)) if a < b]
