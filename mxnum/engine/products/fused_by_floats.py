"""Fused sums by float hardware, with the same bits as the sums of `fused_by_definition`.

The floating-point environment must be the default.
"""

from __future__ import annotations

from itertools import pairwise
from types import ModuleType
from typing import Any

import numpy as np

from mxnum.engine.machine.workers import bounds, run_in_threads, worth
from mxnum.engine.products import exactness, fused_group_tile, fused_tile
from mxnum.engine.products.fused_operands import Parts, table
from mxnum.engine.products.fused_tile import LANES, MOST_BITS, ROWS
from mxnum.engine.products.operands import Operand
from mxnum.engine.products.panels import decoder
from mxnum.engine.products.terms import INFINITY
from mxnum.formats import ScaleFormat
from mxnum.memory.dtypes import Array
from mxnum.units.unit import ZERO_EXPONENT, MatrixUnit

#: Threads save time only if each thread computes at least this many products.
PRODUCTS_PER_THREAD = 1 << 20
Scales = tuple[ScaleFormat | None, ScaleFormat | None]
#: The limit for the exponents of E8M0 scales: with a larger abs(exponent), float hardware does not
#: compute group sums.
_FARTHEST_SCALE = 40
#: The number of bits of a float32 significand, and of the magnitude of a signed 32-bit integer.
_FLOAT32, _INTEGER = 24, 31


def serves(a: Operand, b: Operand, scales: Scales, unit: MatrixUnit) -> bool:
    """Return True if float hardware computes the fused sums of a matrix unit bit for bit."""
    if (unit.accumulator, unit.rounding) != ("float32", "rtz"):
        return False
    if unit.group > 1:
        return _serves_groups(a, b, scales, unit)
    exact = a.format.mantissa_bits + b.format.mantissa_bits + 2 <= _FLOAT32
    powers = all(scale is None or unit.promotion or scale.power_of_two for scale in scales)
    whole = unit.k[-1] % unit.terms == 0 and all(block % unit.terms == 0 for _, block in unit.scales)
    return exact and powers and whole and unit.fraction_bits <= MOST_BITS


def _serves_groups(a: Operand, b: Operand, scales: Scales, unit: MatrixUnit) -> bool:
    """Return True if float hardware computes group sums bit for bit.

    Each group sum times the significands of its scales must be exact in float32. The products of
    scales must also be float32 numbers. Their exponents must be far from float32's limits, so that
    no subnormal result has to be rounded.
    """
    how, bits = exactness.exactness_of(a.format, b.format, unit.group), 0
    if how is None or how.word != "float32" or unit.addend != "term" or not 23 <= unit.fraction_bits <= 35:
        return False
    if unit.result_bits < 23:  # the tile does not truncate subnormal results
        return False
    for x, scale in zip((a, b), scales, strict=True):
        if scale is None or x.scales is None:
            return False
        bits += 0 if scale.number is None else scale.number.mantissa_bits + 1
        if scale.number is None:
            codes = x.scales[x.scales != scale.nan_code].astype(np.int32)
            if codes.size and np.abs(codes - scale.bias).max() > _FARTHEST_SCALE:
                return False
    units = 2.0 ** -(how.unit_a + how.unit_b)
    return int(a.format.max * b.format.max * units) * unit.group << bits <= 1 << _FLOAT32


def special_rows(x: Operand, scale: ScaleFormat | None) -> Array:
    """Return a mask of the rows with an infinite or NaN element, or with a NaN scale."""
    classes = table(x.format).classes >= INFINITY
    special: Array = np.any(classes[x.array], 1) if classes.any() else np.zeros(len(x.array), np.bool_)
    if x.scales is not None and scale is not None and scale.bits == 8:
        special = special | np.any(x.scales == scale.nan_code, 1)
    return special


def multiply(a: Operand, b: Operand, scales: Scales, unit: MatrixUnit, k: int, out: Array, threads: int | None) -> None:
    """Compute d = a·b + c for each pair of rows, as matrix instructions with K = `k` do.

    Both matrices come from `Operand.by_rows`. `out` holds c on entry and d on return. Rows in which
    `special_rows` finds an infinity or NaN get wrong results.
    """
    # If K is less than the number of terms of a fused sum, the operands are padded with zeros. The
    # zeros change no sum.
    sums = -(-(-(-a.array.shape[1] // k) * k) // unit.terms)
    if not sums:
        return
    sides = [(a, scales[0], ROWS), (b, scales[1], LANES)]
    find = _group_panels if unit.group > 1 else _term_panels
    left, right = (find(*side, unit, sums, threads) for side in sides)
    kept, own = unit.fraction_bits, a.format.mantissa_bits + b.format.mantissa_bits
    tile: ModuleType
    if unit.group > 1:
        tile, numbers = fused_group_tile, [sums, unit.terms // unit.group, unit.group, kept, 52 - unit.result_bits]
    else:
        tile, at_once = fused_tile, min(unit.terms, 1 << (_INTEGER - 2 - kept))
        promotion = unit.promotion // unit.terms if unit.promotion else sums
        numbers = [sums, unit.terms, at_once, kept, kept - own, 52 - unit.result_bits, 126 + unit.result_bits]
        numbers += [promotion, -(-k // unit.terms) if unit.addend == "after" else 0]
    height, width = out.shape
    by_columns = width >= height

    def work(part: tuple[int, int]) -> None:
        every, some = slice(None), slice(*part)
        rows, columns = (every, some) if by_columns else (some, every)
        lines = out if by_columns else out[part[0] * ROWS : part[1] * ROWS]
        panels = tuple(
            None if x is None else x[which]
            for pair in zip(left, right, strict=True)
            for x, which in zip(pair, (rows, columns), strict=True)
        )
        tile.multiply(panels, np.array(numbers, np.int64), lines, part[0] * LANES if by_columns else 0)

    count = len(right[0]) if by_columns else len(left[0])
    workers = worth(height * width * sums * unit.terms, PRODUCTS_PER_THREAD, threads)
    run_in_threads(work, list(pairwise(bounds(count, min(count, workers)))))


def _term_panels(
    x: Operand, scale: ScaleFormat | None, width: int, unit: MatrixUnit, sums: int, threads: int | None
) -> list[Any]:
    """Return panels of significands, exponents, scale exponents and factors, in this order.

    There is one scale exponent for each fused sum, and one float32 factor for each promotion (see
    `MatrixUnit`). The scale exponents are None if all are 0. The factors are None if the unit does
    not promote partial sums.
    """
    parts = table(x.format)
    panels: list[Any] = [
        _packed(x, unit, sums, width, parts.significands.astype(np.float32), 0, threads),
        _packed(x, unit, sums, width, parts.exponents, ZERO_EXPONENT, threads),
    ]
    if unit.promotion:
        count = -(-sums * unit.terms // unit.promotion)
        factors = np.ones((len(x.array), count), np.float32) if x.scales is None else x.scales
        return [*panels, None, _panels(factors, width)]
    if x.scales is None or scale is None:
        return [*panels, None, None]
    return [*panels, _panels(_repeated(x, scale, unit.terms, sums).exponents, width), None]


def _group_panels(
    x: Operand, scale: ScaleFormat | None, width: int, unit: MatrixUnit, sums: int, threads: int | None
) -> list[Any]:
    """Return panels of elements, panels of group scales, and panels of the scales' exponents."""
    assert scale is not None
    scales = _repeated(x, scale, unit.group, sums * unit.terms // unit.group)
    point = 0 if scale.number is None else scale.number.mantissa_bits
    values = np.ldexp(scales.significands.astype(np.float32), scales.exponents - point)
    elements = _packed(x, unit, sums, width, decoder(x.format).table, 0, threads)
    return [elements, _panels(values.astype(np.float32), width), _panels(scales.exponents, width)]


def _repeated(x: Operand, scale: ScaleFormat, length: int, count: int) -> Parts:
    """Return, for each row, the scales of the first `count` groups of `length` elements."""
    each = x.blocks[-1] // length
    parts = Parts.of_scales(x.scales, scale).padded(-(-count // each))  # type: ignore[arg-type]
    arrays = parts.significands, parts.exponents, parts.classes
    return parts if each == 1 else Parts(*(np.repeat(array, each, 1)[:, :count] for array in arrays))


def _packed(
    x: Operand, unit: MatrixUnit, sums: int, width: int, numbers: Array, padding: int, threads: int | None
) -> Array:
    """Replace each code of a matrix by `numbers[code]`, and return panels of `width` rows."""
    codes, length = x.array, sums * unit.terms
    if unit.order:
        codes = np.pad(codes, ((0, 0), (0, length - codes.shape[1])))
        codes = codes[:, (np.arange(0, length, len(unit.order))[:, None] + np.array(unit.order)).ravel()]
    is_turned = codes.strides[0] < codes.strides[1]
    memory = np.ascontiguousarray(codes.T if is_turned else codes)
    count = -(-len(codes) // width)
    panels = np.empty((count, length, width), numbers.dtype)

    def work(part: tuple[int, int]) -> None:
        rows = slice(part[0] * width, part[1] * width)
        some = np.ascontiguousarray(memory[:, rows] if is_turned else memory[rows])
        fused_tile.pack(some, is_turned, numbers, padding, panels[slice(*part)])

    workers = worth(codes.size, PRODUCTS_PER_THREAD, threads)
    run_in_threads(work, list(pairwise(bounds(count, min(count, workers)))))
    return panels


def _panels(rows: Array, width: int) -> Array:
    """Return the rows of a matrix in panels of `width` rows, padded with zeros."""
    padded = np.pad(rows, ((0, -len(rows) % width), (0, 0)))
    return np.ascontiguousarray(padded.reshape(-1, width, rows.shape[1]).swapaxes(1, 2))
