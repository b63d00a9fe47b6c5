"""Fused sums by float hardware: the bits of `fused_by_definition`, in the default floating-point environment."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np

from mxnum.engine.machine.workers import bounds, run_in_threads, worth
from mxnum.engine.products import fused_tile
from mxnum.engine.products.fused_operands import Parts, table
from mxnum.engine.products.fused_tile import LANES, MOST_BITS, ROWS
from mxnum.engine.products.operands import Operand
from mxnum.engine.products.terms import INFINITY
from mxnum.formats import ScaleFormat
from mxnum.memory.dtypes import Array
from mxnum.units.unit import MatrixUnit

#: With fewer products, another thread costs more than it saves.
PRODUCTS_PER_THREAD = 1 << 20
#: The bits of an integer that float32 holds, and of a sum of 32-bit integers.
_FLOAT32, _INTEGER = 24, 31


def serves(a: Operand, b: Operand, unit: MatrixUnit) -> bool:
    """Return True if float hardware computes the sums of a unit exactly."""
    exact = a.format.mantissa_bits + b.format.mantissa_bits + 2 <= _FLOAT32
    powers = all(name == "e8m0" for name, _ in unit.scales)
    whole = unit.k[-1] % unit.terms == 0 and all(block % unit.terms == 0 for _, block in unit.scales)
    alone = unit.addend == "term" or unit.k[-1] == unit.terms
    narrow = (unit.accumulator, unit.rounding, unit.group) == ("float32", "rtz", 1) and unit.fraction_bits <= MOST_BITS
    return exact and powers and whole and alone and narrow and not (a.format.integer or b.format.integer)


def special_rows(x: Operand, scale: ScaleFormat | None) -> Array:
    """Return a boolean for each row: True if it holds an infinity or NaN, or a scale that is NaN."""
    classes = table(x.format).classes >= INFINITY
    special: Array = np.any(classes[x.array], 1) if classes.any() else np.zeros(len(x.array), np.bool_)
    if x.scales is not None and scale is not None and scale.power_of_two:
        special = special | np.any(x.scales == scale.nan_code, 1)
    return special


def multiply(
    a: Operand,
    b: Operand,
    scales: tuple[ScaleFormat | None, ScaleFormat | None],
    unit: MatrixUnit,
    k: int,
    out: Array,
    threads: int | None,
) -> None:
    """Compute d = a·b + c for each pair of rows, by instructions of K = `k`.

    Both matrices are `by_rows` and finite. `out` holds c and becomes d.
    """
    # An instruction shorter than a sum is padded with zeros, whose terms change nothing.
    sums = -(-(-(-a.array.shape[1] // k) * k) // unit.terms)
    length = sums * unit.terms
    if not sums:
        return
    kept, own = unit.fraction_bits, a.format.mantissa_bits + b.format.mantissa_bits
    at_once = min(unit.terms, 1 << (_INTEGER - 2 - kept))
    promotion = unit.promotion // unit.terms if unit.promotion else sums
    numbers = np.array(
        [
            sums, unit.terms, at_once, kept, kept - own, 52 - unit.result_bits, 126 + unit.result_bits,
            promotion, unit.addend == "after",
        ],
        np.int64,
    )  # fmt: skip
    left, right = (_packed(x, unit, length, width, threads) for x, width in ((a, ROWS), (b, LANES)))
    sides = [_scales(x, scale, unit, sums) for x, scale in zip((a, b), scales, strict=True)]
    exponents = [_panels(x[0], w) if x[0] is not None else None for x, w in zip(sides, (ROWS, LANES), strict=True)]
    factors = [_panels(x[1], w) if x[1] is not None else None for x, w in zip(sides, (ROWS, LANES), strict=True)]
    height, width = out.shape
    by_columns = width >= height

    def work(part: tuple[int, int]) -> None:
        every, some = slice(None), slice(*part)
        rows, columns = (every, some) if by_columns else (some, every)
        lines = out if by_columns else out[part[0] * ROWS : part[1] * ROWS]
        first = part[0] * LANES if by_columns else 0
        fused_tile.multiply(
            *(x[rows] for x in left), *(x[columns] for x in right),
            *_some(exponents, rows, columns), *_some(factors, rows, columns), numbers, lines, first,
        )  # fmt: skip

    count = len(right[0]) if by_columns else len(left[0])
    workers = worth(height * width * length, PRODUCTS_PER_THREAD, threads)
    run_in_threads(work, list(pairwise(bounds(count, min(count, workers)))))


def _some(panels: list[Any], rows: slice, columns: slice) -> list[Any]:
    a, b = panels
    return [None if a is None else a[rows], None if b is None else b[columns]]


def _packed(x: Operand, unit: MatrixUnit, length: int, width: int, threads: int | None) -> tuple[Array, Array]:
    """Return the significands and the exponents of a matrix in panels of `width` rows."""
    codes = x.array
    if unit.order:
        codes = np.pad(codes, ((0, 0), (0, length - codes.shape[1])))
        codes = codes[:, (np.arange(0, length, len(unit.order))[:, None] + np.array(unit.order)).ravel()]
    is_turned = codes.strides[0] < codes.strides[1]
    memory = np.ascontiguousarray(codes.T if is_turned else codes)
    count = -(-len(codes) // width)
    parts = table(x.format)
    significands = np.empty((count, length, width), np.float32)
    exponents = np.empty((count, length, width), np.int32)

    def work(part: tuple[int, int]) -> None:
        rows = slice(part[0] * width, part[1] * width)
        some = memory[:, rows] if is_turned else memory[rows]
        arrays = parts.significands, parts.exponents, significands[slice(*part)], exponents[slice(*part)]
        fused_tile.pack(np.ascontiguousarray(some), is_turned, *arrays)

    workers = worth(codes.size, PRODUCTS_PER_THREAD, threads)
    run_in_threads(work, list(pairwise(bounds(count, min(count, workers)))))
    return significands, exponents


def _scales(x: Operand, scale: ScaleFormat | None, unit: MatrixUnit, sums: int) -> tuple[Any, Any]:
    """Return the exponents of the scales of each sum, and the factors of each promotion.

    None stands for exponents that are all 0, or factors if the unit has no promotion.
    """
    if unit.promotion:
        count = -(-sums * unit.terms // unit.promotion)
        return None, np.ones((len(x.array), count), np.float32) if x.scales is None else x.scales
    if x.scales is None or scale is None:
        return None, None
    each = x.blocks[-1] // unit.terms
    parts = Parts.of_scales(x.scales, scale).padded(-(-sums // each))
    return np.repeat(parts.exponents, each, 1)[:, :sums], None


def _panels(rows: Array, width: int) -> Array:
    """Return the rows of a matrix in panels of `width` rows, padded with zeros."""
    padded = np.pad(rows, ((0, -len(rows) % width), (0, 0)))
    return np.ascontiguousarray(padded.reshape(-1, width, rows.shape[1]).swapaxes(1, 2))
