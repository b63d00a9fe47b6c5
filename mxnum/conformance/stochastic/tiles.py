"""Make tiles (rows of numbers that a kernel has to round), and count the kernel's answers."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cache, update_wrapper
from typing import Any

import numpy as np

from mxnum.conformance.bits import Generator, as_floats
from mxnum.conformance.calling import Implementation
from mxnum.conformance.cases import grid
from mxnum.conformance.judging.right import expected, right_scales, scale_numbers, tensor_scales, with_tensor
from mxnum.conformance.stochastic.chances import Chance
from mxnum.conformance.task import Columns, Task
from mxnum.memory.dtypes import Array, code_dtype

#: The largest number of elements that are passed to a function at a time.
ELEMENTS = 1 << 21
#: The number of columns in the tables that count returned codes. Each code has its own column. The
#: last column counts returned numbers that are not codes, because they are negative or too large.
#: Scale codes get columns in the order in which they appear. When all columns are taken, further
#: scale codes share the column `OTHERS`.
COLUMNS = 258
OTHERS, NO_CODE = COLUMNS - 2, COLUMNS - 1
#: The least number of times that each case occurs in a tile. A tile also has numbers with only one
#: right code.
REPEATS = 16
#: Exponents of the powers of two by which blocks are multiplied.
OFFSETS = (0, -3, 5, -40, 40)


@dataclass(frozen=True)
class Tile:
    """Rows of numbers: blocks for quantize, single numbers for encode."""

    task: Task
    chances: list[Chance]
    #: Bit patterns of numbers, and an id for each number. The id is the index of the number's case.
    #: The ids of numbers with only one right code begin at `len(chances)`.
    x: Array
    ids: Array
    #: True for rows in which no number is rounded stochastically.
    is_still: Array
    #: The right scale code of each row, and the right element code of each number that has only one
    #: right code.
    scales: Array
    codes: Array
    #: True if the standard permits several scales for the row, because it is all zeros or has a NaN
    #: or an infinity.
    is_special: Array

    @property
    def numbers(self) -> int:
        """The number of ids."""
        return int(self.ids.max()) + 1

    @property
    def shares(self) -> Array:
        """How often each case occurs in the tile."""
        return np.bincount(self.ids.ravel(), minlength=self.numbers)[: len(self.chances)]


def inputs_of(task: Task, x: Array) -> Columns:
    """Return the rows as inputs of a task.

    If the format has a tensor scale, each row counts as a part of a tensor. All these tensors have
    the same largest magnitude, which makes the tensor scale a power of two.
    """
    if not task.has_tensor:
        return {"x": x}
    return with_tensor(task, {"x": x, "largest": np.full((len(x), 1), _largest_of_tensor(task))})


@cache
def _largest_of_tensor(task: Task) -> int:
    """Return the bits of the largest element times the largest scale.

    The product is halved until it lies below the highest binade of the input's float type.
    """
    scale = task.format.scale.number
    assert scale is not None
    most = task.element.max * scale.max
    down = max(0, math.frexp(most)[1] - math.frexp(float(task.source.max))[1] + 1)
    return int(grid.narrowed(np.array([math.ldexp(most, -down)]), task.source)[0])


def factors(task: Task, x: Array) -> Array:
    """Return the divisor of the elements of each row: scale times tensor scale."""
    inputs = inputs_of(task, x)
    numbers = scale_numbers(task, right_scales(task, inputs)[:, 0])
    tensor = tensor_scales(inputs)
    return numbers if tensor is None else numbers * tensor[:, 0].astype(np.float64)


def largest_quotient(task: Task) -> float:
    """Return the largest anchor that has only one right code, in a block whose divisor is 1.

    The anchor is the number that sets the scale of its block. The divisor is the scale times the
    tensor scale. The anchor is a value of the element, or a number beyond the largest element if
    such numbers saturate.
    """
    if not task.has_scales:
        return np.inf
    if task.format.scale.number is None:
        top = 2.0**task.element.emax
        candidates = np.array([task.element.max, top, *([top * (2 - 2.0**-7)] * task.overflow.saturates)])
    else:  # `above` exceeds 1 by a quarter of a unit in the last place of a scale
        above = 1 + 2.0 ** -(task.format.scale.number.mantissa_bits + 2)
        candidates = task.element.max * np.array([1, *([above] * task.overflow.saturates)])
    rows = grid.narrowed(np.repeat(candidates, task.block), task.source).reshape(-1, task.block)
    held, found = as_floats(rows, task.source)[:, 0].astype(np.float64), factors(task, rows)
    is_power = np.frexp(found)[0] == 0.5
    return float((held / found)[is_power].max())


def still_numbers(task: Task, reach: float) -> Array:
    """Return numbers that have only one right code.

    These are zeros, values of the element, numbers that saturate, infinities and NaNs.
    """
    values = grid.magnitudes(task.element)
    values = values[np.unique(np.linspace(0, len(values) - 1, 32).round().astype(int))]
    top, after = float(values[-1]), float(grid.neighbours(values[-1:], task.element)[1][0])
    beyond = np.array([*np.linspace(top, min(reach, after), 7)[1:], after, 1.5 * after, 4 * after, 1e3 * after])
    values = np.concatenate([values, beyond[beyond >= (top if task.overflow.saturates else after)]])
    values = values[values <= min(reach, float(task.source.max))]
    bits = grid.with_neighbours(grid.narrowed(values, task.source), task.source, reach=0)
    if task.has_tensor:  # an infinity or a NaN would change the tensor scale, and thus the codes of all blocks
        return bits
    special = np.array([np.inf, -np.inf, *([np.nan, -np.nan] * task.takes_nan)])
    return np.concatenate([bits, grid.narrowed(special, task.source)])


def make_tile(task: Task, chances: list[Chance], rng: Generator, repeats: int = REPEATS) -> Tile:
    """Return a tile in which every case occurs at least `repeats` times."""
    values, reach = np.array([chance.value for chance in chances]), largest_quotient(task)
    still = still_numbers(task, reach)
    if not task.has_scales:
        x = np.concatenate([np.tile(grid.narrowed(values, task.source), repeats), still])[:, None]
        ids = np.concatenate([np.tile(np.arange(len(values)), repeats), len(values) + np.arange(len(still))])[:, None]
        return _tile(task, chances, x, ids, ids[:, 0] >= len(values))
    rows, length = -(-repeats * len(values) // (task.block - 1)), task.block - 1
    ids = np.resize(np.arange(len(values)), (rows, length))
    ids = np.concatenate(
        [np.full((rows, 1), len(values)), ids], axis=1
    )  # each block has cases and one anchor, which sets the scale
    order = np.argsort(rng.integers(0, 1 << 40, ids.shape), axis=1)
    ids = np.take_along_axis(ids, order, axis=1)
    drawn = np.ldexp(np.append(values, reach)[ids], np.resize(_offsets(task, [*values, reach]), rows)[:, None])
    quiet = _still_rows(task, still, reach)
    ids = np.concatenate([ids, len(values) + 1 + np.arange(quiet.size).reshape(quiet.shape)])
    return _tile(
        task, chances, np.concatenate([grid.narrowed(drawn, task.source), quiet]), ids, np.arange(len(ids)) >= rows
    )


def constant_tile(task: Task, chance: Chance, rng: Generator) -> Tile:
    """Return a tile in which all numbers are equal, except for the anchors that set scales."""
    tile = make_tile(task, [chance], rng, repeats=1 if not task.has_scales else task.block - 1)
    drawn = ~tile.is_still
    return _tile(task, [chance], tile.x[drawn], tile.ids[drawn], tile.is_still[drawn])


def _tile(task: Task, chances: list[Chance], x: Array, ids: Array, is_still: Array) -> Tile:
    want = expected(task, inputs_of(task, x))
    scales = want["scale"][:, 0] if "scale" in want else np.zeros(len(x), np.uint8)
    magnitudes = grid.as_magnitudes(x, task.source)
    is_special = ~np.isfinite(magnitudes).all(axis=1) | (magnitudes == 0).all(axis=1)
    return Tile(task, chances, x, ids, is_still, scales, want[task.outputs[-1].name], is_special)


def _offsets(task: Task, values: list[float]) -> list[int]:
    """Return those exponents of `OFFSETS` for which scaling a block by 2**exponent is exact.

    The scaled values must be exact, and the divisor of the scaled block must be 2**exponent.
    """
    exact = []
    for offset in OFFSETS:
        moved = np.ldexp(values, offset)
        if np.array_equal(as_floats(grid.narrowed(moved, task.source), task.source).astype(np.float64), moved):
            row = grid.narrowed(np.full((1, task.block), moved[-1]), task.source)
            exact += [offset] * bool(factors(task, row)[0] == 2.0**offset)
    return exact


def _still_rows(task: Task, still: Array, reach: float) -> Array:
    """Return blocks in which every number has only one right code."""
    k, sign = task.block, 1 << (task.source.bits - 1)
    magnitudes = grid.as_magnitudes(still, task.source)
    values, special = still[np.isfinite(magnitudes)], still[~np.isfinite(magnitudes)]
    one = grid.narrowed(np.array([reach]), task.source)
    rows = [np.resize(one ^ one, k), np.resize(np.array([0, sign], one.dtype), k)]
    for start in range(0, len(values), k - 1):
        rows.append(np.append(np.resize(values[start : start + k - 1], k - 1), one))
    for number in special:
        rows.append(np.append(np.resize(values, k - 1), number))
        rows.append(np.where(np.arange(k) == k // 2, number, one))
    return np.stack(rows)


class Tally:
    """Counts of the codes that a function returns for many copies of a tile.

    The rows of the copies are in random order.
    """

    def __init__(self, implementation: Implementation, tile: Tile, copies: int, rng: Generator) -> None:
        self._implementation, self.tile = implementation, tile
        rows = np.tile(np.arange(len(tile.x)), copies)
        self.rows = rows[np.argsort(rng.integers(0, 1 << 40, len(rows)))]
        self.ids = tile.ids[self.rows]
        #: How often each number was rounded to each code. Only blocks with a right scale count.
        self.codes = np.zeros((tile.numbers, COLUMNS), np.int64)
        self.scales = np.zeros((len(tile.x), COLUMNS), np.int64)
        self._scale_codes: list[int] = []

    def draw(self, seed: int | None) -> Columns:
        """Call the function once, count its answers and return them."""
        tile, rows = self.tile, self.rows
        arguments = () if seed is None else (seed,)
        inputs = inputs_of(tile.task, tile.x[rows])

        def function(x: Array, **known: Any) -> Any:
            return self._implementation.function(x, *arguments, **known)

        if tile.task.has_tensor:  # the wrapper must show the function's parameter names, such as `largest`
            update_wrapper(function, self._implementation.function, updated=())
        answers = replace(self._implementation, function=function).answers(tile.task, inputs)
        codes, ids = counted(answers[tile.task.outputs[-1].name], tile.task.element.bits), self.ids
        if "scale" in answers:
            scales = answers["scale"][:, 0]
            cells = rows * COLUMNS + self._columns(scales)
            self.scales += np.bincount(cells, minlength=self.scales.size).reshape(-1, COLUMNS)
            right = (scales == tile.scales[rows]) | tile.is_special[rows]
            if not right.all():
                codes, ids = codes[right], ids[right]
        cells = (ids * COLUMNS + codes).ravel()
        self.codes += np.bincount(cells, minlength=self.codes.size).reshape(-1, COLUMNS)
        return answers

    def _columns(self, scales: Array) -> Array:
        """Return the column in which each scale code is counted.

        A scale code that appears for the first time gets a column.
        """
        bits = self.tile.task.scale_bits
        codes, back = np.unique(scales, return_inverse=True)
        columns = np.full(len(codes), NO_CODE)
        for i in np.flatnonzero((codes >= 0) & (codes < 1 << bits)).tolist():
            if int(codes[i]) not in self._scale_codes and len(self._scale_codes) < OTHERS:
                self._scale_codes.append(int(codes[i]))
            columns[i] = self.column(int(codes[i]))
        return columns[back]

    def column(self, code: int) -> int:
        """Return the column in which a scale code is counted."""
        return self._scale_codes.index(code) if code in self._scale_codes else OTHERS

    def times(self, rows: Array, codes: Array) -> Array:
        """Return, for each i, how often row `rows[i]` got the scale code `codes[i]`."""
        found: Array = self.scales[rows, [self.column(code) for code in codes.tolist()]]
        return found

    def scale_codes(self, columns: Array) -> Array:
        """Return, for each index in `columns`, the scale code that this column counts."""
        return np.array(self._scale_codes, np.int64)[columns].astype(code_dtype(self.tile.task.scale_bits))


def counted(codes: Array, bits: int) -> Array:
    """Return the column in which each code is counted."""
    column: Array = np.where((codes >= 0) & (codes < 1 << bits), codes.astype(np.int64), NO_CODE)
    return column
