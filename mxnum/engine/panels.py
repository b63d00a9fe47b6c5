"""Fast products: operands packed into panels for `tiles`, where float hardware computes what the definition says.

`in_sequence` needs fused multiply-adds alone. `by_blocks` needs block sums that floats hold exactly. As multiples of
one unit elements are integers; sums of their products up to 2**24 are exact in float32 in any order, up to 2**53 in
float64, and beyond that one operand is split in two. A sum is then scaled by a power of two and rounded once: float64
never underflows there, and in float32 the scaled sum is exact, or float64 is taken.

All of it holds in the default floating-point environment only.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from mxnum.dtypes import Array
from mxnum.engine import tiles
from mxnum.engine.jit import compile_loop
from mxnum.engine.operands import INFINITY, NOT_A_NUMBER, ZERO, Operand, meanings
from mxnum.formats import E8M0, ElementFormat

_EXACT = {"float32": 24, "float64": 53}
#: In place of a scale code: a block of zeros, whose scale does not matter.
_NO_SCALE = 256
#: Elements of a row that are packed before the next row's.
_PIECE = 64


# Packing


@cache
def _pack_rows() -> Any:
    """(source, scales, run, table, powers, panels): table[source] * powers[scale], rows of the source into panels.

    Without scales table[source] alone, and without a table the source. A scale belongs to `run` elements of its row.
    """

    def pack(source, scales, run, table, powers, panels):
        width, length = panels.shape[2], source.shape[1]
        for p in range(panels.shape[0]):
            rows, panel = source[p * width : (p + 1) * width], panels[p]
            for start in range(0, length, run):
                stop = min(start + run, length)
                for r in range(rows.shape[0]):
                    row, target = rows[r, start:stop], panel[start:stop, r]
                    if table is None:
                        for k in range(row.size):
                            target[k] = row[k]
                    elif scales is None:
                        for k in range(row.size):
                            target[k] = table[row[k]]
                    else:
                        scale = powers[scales[p * width + r, start // run]]
                        for k in range(row.size):
                            target[k] = table[row[k]] * scale

    return compile_loop(pack)


@cache
def _pack_columns() -> Any:
    """The same where the source and its scales are given with their axes exchanged."""

    def pack(source, scales, run, table, powers, panels):
        width, length = panels.shape[2], source.shape[0]
        own = np.ones(width, panels.dtype)
        for p in range(panels.shape[0]):
            first, last = p * width, min((p + 1) * width, source.shape[1])
            for k in range(length):
                column, target = source[k, first:last], panels[p, k]
                if table is None:
                    for r in range(column.size):
                        target[r] = column[r]
                elif scales is None:
                    for r in range(column.size):
                        target[r] = table[column[r]]
                else:
                    if k % run == 0:
                        scale = scales[k // run, first:last]
                        for r in range(scale.size):
                            own[r] = powers[scale[r]]
                    for r in range(column.size):
                        target[r] = table[column[r]] * own[r]

    return compile_loop(pack)


def _pack(source: Array, scales: Array | None, run: int, table: Any, powers: Any, panels: Array) -> None:
    if source.T.flags.c_contiguous and not source.flags.c_contiguous:
        scales = None if scales is None else np.ascontiguousarray(scales.T)
        _pack_columns()(source.T, scales, run, table, powers, panels)
    else:
        _pack_rows()(np.ascontiguousarray(source), scales, run, table, powers, panels)


def _panels(length: int, rows: int, width: int, word: str) -> Array:
    return np.zeros((-(-rows // width), length, width), word)


def _packed(x: Array, width: int) -> Array:
    """Floats in panels."""
    panels = _panels(x.shape[1], x.shape[0], width, x.dtype.name)
    _pack(x, None, _PIECE, None, None, panels)
    return panels


@cache
def _table(element: ElementFormat, unit: int, word: str) -> Array:
    """The elements by code in units of 2**unit, infinities and NaN included."""
    term = meanings(element)
    table = np.ldexp(term.significands.astype(np.float64), term.exponents - unit)
    table[term.classes >= INFINITY] = np.inf
    table[term.classes >= NOT_A_NUMBER] = np.nan
    table[term.classes == INFINITY + 1] = -np.inf
    result: Array = table.astype(word)
    return result


@cache
def _powers(unit: int, word: str) -> Array:
    """2**(code - 127 + unit) by scale code; anything for a block of zeros."""
    powers = np.ldexp(1.0, np.arange(_NO_SCALE + 1) - E8M0.bias + unit)
    powers[E8M0.nan_code] = np.nan
    powers[_NO_SCALE] = 1
    with np.errstate(over="ignore"):  # of those that `_exact_in_float32` excludes
        result: Array = powers.astype(word)
    return result


# In sequence


class Sequential:
    """An operand of acc = fma(a, b, acc): the parts of it that matrices are cut from, and how one is packed."""

    def __init__(self, x: Operand) -> None:
        self.element = x.format
        # A value is one rounding away from its element if the element itself is a normal float32.
        direct = x.scales is not None and x.offsets is None and x.format.emin - x.format.mantissa_bits >= -126
        if direct and x.format.emax <= 127:
            self.run, self.parts = x.blocks[-1], [x.array, x.row_scales()]
        else:
            self.run, self.parts = 0, [x.float32()]

    def packed(self, parts: list[Array], width: int) -> Array:
        """The panels of one matrix."""
        if not self.run:
            return _packed(parts[0], width)
        codes, scales = parts
        panels = _panels(codes.shape[1], codes.shape[0], width, "float32")
        _pack(codes, scales, self.run, _table(self.element, 0, "float32"), _powers(0, "float32"), panels)
        return panels


def in_sequence(a: Sequential, b: Sequential, parts_a: list[Array], parts_b: list[Array], out: Array) -> None:
    """acc = fma(a, b, acc) in index order for one pair of matrices."""
    shape = tiles.SHAPES["float32"]
    tiles.multiply(a.packed(parts_a, shape.rows), None, b.packed(parts_b, shape.columns), None, None, 1, out)


# By blocks


@dataclass(frozen=True)
class Plan:
    """How the block sums of two element formats are held."""

    word: str
    split: bool
    unit_a: int
    unit_b: int


def plan(a: ElementFormat, b: ElementFormat, run: int) -> Plan | None:
    """The cheapest way to hold sums of `run` products exactly, or None."""
    units, largest = [], []
    for element in (a, b):
        term = meanings(element)
        present = term.significands != 0
        unit = element.emin - element.mantissa_bits
        units.append(unit)
        magnitudes = zip(term.significands[present].tolist(), term.exponents[present].tolist(), strict=True)
        largest.append(max(int(math.ldexp(abs(m), e - unit)) for m, e in magnitudes))
    if abs(units[0]) + abs(units[1]) > 500:  # scaled sums stay far inside float64
        return None
    total = largest[0] * largest[1] * run
    for word, bits in _EXACT.items():
        if total <= 1 << bits:
            return Plan(word, False, *units)
    parts = max(largest[0] >> tiles.SPLIT, 1 << tiles.SPLIT)
    return Plan("float64", True, *units) if parts * largest[1] * run <= 1 << _EXACT["float64"] else None


def by_blocks(
    how: Plan, a: Operand, b: Operand, parts_a: list[Array], parts_b: list[Array], run: int, out: Array
) -> None:
    """acc = acc + (the sum of a block, scaled and rounded once), in block order, for one pair of matrices.

    The parts are codes and the scale codes of rows. Where `how` splits, rows and columns with an infinity or NaN
    element come out wrong.
    """
    (codes_a, scales_a), (codes_b, scales_b) = parts_a, parts_b
    marks_a, marks_b = scales_a.astype(np.int64), scales_b.astype(np.int64)
    word = how.word
    if word == "float32" and not _exact_in_float32(how, marks_a, marks_b):
        for codes, marks, element in ((codes_a, marks_a, a.format), (codes_b, marks_b, b.format)):
            marks[_zero_blocks(codes, run, element) & (marks != E8M0.nan_code)] = _NO_SCALE
        if not _exact_in_float32(how, marks_a, marks_b):
            word = "float64"
    shape = tiles.SHAPES[word]
    low = None
    table_a = _table(a.format, how.unit_a, word)
    if how.split:
        finite = np.where(np.isfinite(table_a), table_a, 0)
        table_a = np.trunc(finite / 2.0**tiles.SPLIT)
        low = _packed_elements(codes_a, finite - table_a * 2.0**tiles.SPLIT, run, shape.rows)
    tiles.multiply(
        _packed_elements(codes_a, table_a, run, shape.rows),
        low,
        _packed_elements(codes_b, _table(b.format, how.unit_b, word), run, shape.columns),
        _packed(_powers(how.unit_a, word)[marks_a], shape.rows),
        _packed(_powers(how.unit_b, word)[marks_b], shape.columns),
        run,
        out,
    )


def _packed_elements(codes: Array, table: Array, run: int, width: int) -> Array:
    """Elements in panels, the last block filled up with zeros."""
    length = codes.shape[1]
    panels = _panels(-(-length // run) * run, codes.shape[0], width, table.dtype.name)
    _pack(codes, None, _PIECE, table, None, panels)
    return panels


def _exact_in_float32(how: Plan, marks_a: Array, marks_b: Array) -> bool:
    """Whether every sum of up to 24 bits times its two powers of two, and these powers, are float32 numbers."""
    ends = []
    for marks, unit in ((marks_a, how.unit_a), (marks_b, how.unit_b)):
        codes = marks[marks < E8M0.nan_code]
        low, high = (int(codes.min()), int(codes.max())) if codes.size else (E8M0.bias, E8M0.bias)
        ends.append((low - E8M0.bias + unit, high - E8M0.bias + unit))
    within = all(low >= -126 and high <= 127 for low, high in ends)
    return within and ends[0][0] + ends[1][0] >= -149 and ends[0][1] + ends[1][1] + _EXACT["float32"] <= 127


def _zero_blocks(codes: Array, run: int, element: ElementFormat) -> Array:
    """Which blocks hold zeros alone."""
    zero = (meanings(element).classes // 2 == ZERO // 2)[codes]
    result: Array = np.logical_and.reduceat(zero, np.arange(0, codes.shape[1], run), 1)
    return result
