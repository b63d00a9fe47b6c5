"""Fast products: operands packed for `tiles`, where float hardware computes what the definition says.

`in_sequence` needs fused multiply-adds alone. `by_blocks` needs block sums that floats hold exactly. As multiples of
one unit elements are integers; sums of their products up to 2**24 units are exact in float32 in any order, up to 2**53
in float64. Where the elements of a format could sum up to more, it is the elements of each block that decide: most
blocks hold a few binades only. In the blocks that do not, one operand is split in two. A sum is then scaled by a power
of two and rounded once: float64 never underflows there, and in float32 the scaled sum is exact, or float64 is taken.

All of it holds in the default floating-point environment only.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np

from mxnum.dtypes import Array
from mxnum.engine import pairs, tiles
from mxnum.engine.jit import compile_loop
from mxnum.engine.operands import ZERO, Operand, meanings
from mxnum.engine.packs import Decoder, Matrix, Side, powers, split
from mxnum.engine.pieces import bounds, in_pieces, worth
from mxnum.formats import E8M0, ElementFormat
from mxnum.scalar.word import dialect

_EXACT = {"float32": 24, "float64": 53}
#: Bits of an element, in units, that are split off where float64 cannot hold a sum.
SPLIT = 16
#: Below this many multiplications a thread costs more than it saves.
MULTIPLICATIONS_PER_THREAD = 1 << 22
#: Bytes of columns that are packed at a time, about: they stay in the second or third cache.
_CHUNK = 1 << 20
#: Up to so many rows are taken one by one, for lack of others to fill a tile with.
_FEW_ROWS = 3


@dataclass(frozen=True)
class Sums:
    """How the sums of one product are held."""

    word: str
    #: Whether they are of blocks, whose scales are apart.
    blocks: bool
    #: A mark for each block in which the left operand is split at `step`; None where none is.
    wide: Array | None = None
    step: float = 0.0


# In sequence


class Sequential:
    """An operand of acc = fma(a, b, acc): the parts of it that matrices are cut from, and how one is packed."""

    def __init__(self, x: Operand, threads: int | None) -> None:
        self.element = x.format
        # A value is one rounding away from its element if the element itself is a normal float32.
        if x.scales is not None and x.offsets is None and _is_normal_float32(x.format):
            self.run, self.parts = x.blocks[-1], [x.array, x.row_scales()]
        else:
            self.run, self.parts = 0, [x.float32(threads)]

    def side(self, parts: list[Array]) -> Side:
        """One matrix."""
        rows, length = parts[0].shape
        if not self.run:
            return Side(Matrix.of(parts[0]), rows, length)
        decoder = Decoder.of(self.element, "float32")
        return Side(Matrix.of(parts[0]), rows, length, parts[1], self.run, decoder, powers("float32"))


def _is_normal_float32(element: ElementFormat) -> bool:
    return element.emin - element.mantissa_bits >= -126 and element.emax <= 127


def in_sequence(left: Side, right: Side, out: Array, threads: int | None) -> None:
    """acc = fma(a, b, acc) in index order for one pair of matrices."""
    _multiply(left, right, Sums("float32", False), out, threads)


# By blocks


@dataclass(frozen=True)
class Plan:
    """How the block sums of two element formats can be held."""

    word: str
    #: Whether `word` holds the sums of any elements: if not, the elements of a block decide.
    always: bool
    #: Whether it holds them where the first operand is split.
    if_split: bool
    unit_a: int
    unit_b: int


@cache
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
    unit = sum(units)
    if total <= 1 << _EXACT["float32"] and _is_normal_float32(a) and _is_normal_float32(b) and -149 <= unit <= 103:
        return Plan("float32", True, True, *units)
    parts = max(largest[0] >> SPLIT, 1 << SPLIT)
    if_split = parts * largest[1] * run <= 1 << _EXACT["float64"]
    return Plan("float64", total <= 1 << _EXACT["float64"], if_split, *units)


def by_blocks(
    how: Plan,
    a: Operand,
    b: Operand,
    parts_a: list[Array],
    parts_b: list[Array],
    run: int,
    out: Array,
    threads: int | None,
) -> bool | None:
    """acc = acc + (the sum of a block, scaled and rounded once), in block order, for one pair of matrices.

    The parts are codes and the scale codes of rows. The answer is None where float hardware cannot do it, and else
    whether something was split: then columns with an infinite element come out wrong.
    """  # fmt: skip
    (codes_a, scales_a), (codes_b, scales_b) = parts_a, parts_b
    left, right = Matrix.of(codes_a), Matrix.of(codes_b)
    sums = Sums(how.word, True)
    if out.size == 1:
        sums = Sums("float64", True)
    if sums.word == "float32":
        if not _exact_in_float32(how, scales_a, scales_b):
            scales_a, scales_b = (
                _without_zero_blocks(codes, scales, run, x.format)
                for codes, scales, x in ((codes_a, scales_a, a), (codes_b, scales_b, b))
            )
            if not _exact_in_float32(how, scales_a, scales_b):
                sums = Sums("float64", True)
    elif not how.always:
        wide = wide_blocks(left, a.format, right, b.format, run)
        if wide is not None:
            if not how.if_split:
                return None
            sums = Sums("float64", True, wide, 2.0 ** (SPLIT + how.unit_a))
    first, second = (
        Side(matrix, len(codes), codes.shape[1], scales, run, Decoder.of(x.format, sums.word), powers(sums.word))
        for matrix, codes, scales, x in ((left, codes_a, scales_a, a), (right, codes_b, scales_b, b))
    )
    _multiply(first, second, sums, out, threads)
    return sums.wide is not None


def _exact_in_float32(how: Plan, scales_a: Array, scales_b: Array) -> bool:
    """Whether every sum of up to 24 bits times its two powers of two, and their product, are float32 numbers."""
    (low_a, high_a), (low_b, high_b) = (_extent()(np.ascontiguousarray(x)) for x in (scales_a, scales_b))
    low, high, unit = low_a + low_b - 2 * E8M0.bias, high_a + high_b - 2 * E8M0.bias, how.unit_a + how.unit_b
    held: bool = low >= max(-149, -149 - unit) and high <= min(127, 127 - _EXACT["float32"] - unit)
    return held


@cache
def _extent() -> Any:
    """(scales) -> the least and the greatest, NaN left out."""
    NAN, ONE = E8M0.nan_code, E8M0.bias

    def extent(scales):
        least, greatest = 255, 0
        for i in range(scales.shape[0]):
            for j in range(scales.shape[1]):
                scale = scales[i, j]
                if scale != NAN:
                    least, greatest = min(least, scale), max(greatest, scale)
        return (least, greatest) if least <= greatest else (ONE, ONE)

    return compile_loop(extent)


def _without_zero_blocks(codes: Array, scales: Array, run: int, element: ElementFormat) -> Array:
    """The scales, those of blocks of zeros, which do not matter, replaced by the greatest of the others."""
    zero = (meanings(element).classes // 2 == ZERO // 2)[codes]
    replaced = np.logical_and.reduceat(zero, np.arange(0, codes.shape[1], run), 1) & (scales != E8M0.nan_code)
    others = scales[~replaced & (scales != E8M0.nan_code)]
    result: Array = np.where(replaced, others.max() if others.size else np.uint8(E8M0.bias), scales)
    return result


# Which blocks are wide


def wide_blocks(a: Matrix, element_a: ElementFormat, b: Matrix, element_b: ElementFormat, run: int) -> Array | None:
    """Marks of the blocks where float64 might not hold the sum of some row with some row; None if there are none.

    Elements of a block are multiples of its least binade's steps, and below the end of its greatest binade: so are
    products, and their sum has at most the bits of both and of the count.
    """
    spare = bits_to_spare(run)
    sides = (element_a, a), (element_b, b)
    (element, x), (other, y) = sides if a.array.size <= b.array.size else sides[::-1]
    length = x.array.shape[0 if x.turned else 1]
    needed = np.ones(-(-length // run), np.bool_)
    widths = _widths(x, element, run, needed)
    needed = widths > spare - all_bits(other)
    if needed.any():
        needed &= widths + _widths(y, other, run, needed) > spare
    return needed.astype(np.uint8) if needed.any() else None


def bits_to_spare(run: int) -> int:
    """How wide the two blocks of a sum may be together."""
    return _EXACT["float64"] - (run - 1).bit_length()


def all_bits(element: ElementFormat) -> int:
    """How wide any block is at most."""
    return element.bits if element.integer else element.emax - element.emin + 1 + element.mantissa_bits


def _widths(x: Matrix, element: ElementFormat, run: int, needed: Array) -> Array:
    """For each block along the summed axis that is needed: the bits between the ends of binades, of any row at most."""
    widths = np.full(len(needed), all_bits(element), np.int64)
    if not element.integer:
        loop = _widest_columns() if x.turned else _widest_rows()
        loop(x.array, run, needed, element.mantissa_bits, np.uint8((1 << (element.bits - 1)) - 1), widths)
    return widths


@cache
def _widest_rows() -> Any:
    """(codes, run, needed, mantissa bits, mask of the magnitude, widths): sums run along the rows of the matrix."""

    def widest(codes, run, needed, mantissa, mask, widths):
        one = np.uint8(1)
        for block in range(needed.size):
            if not needed[block]:
                continue
            width = 0
            for i in range(codes.shape[0]):
                line = codes[i, block * run : (block + 1) * run]
                least, greatest = np.uint8(255), np.uint8(0)
                for k in range(line.size):
                    magnitude = np.uint8(line[k] & mask)
                    greatest, least = max(greatest, magnitude), min(least, np.uint8(magnitude - one))
                width = max(width, bits_between(int(least), int(greatest), mantissa))
            widths[block] = width

    return compile_loop(widest)


@cache
def _widest_columns() -> Any:
    """The same where sums run along its columns."""

    def widest(codes, run, needed, mantissa, mask, widths):
        one = np.uint8(1)
        least, greatest = np.empty(codes.shape[1], np.uint8), np.empty(codes.shape[1], np.uint8)
        for block in range(needed.size):
            if not needed[block]:
                continue
            least[:], greatest[:] = np.uint8(255), np.uint8(0)
            for k in range(block * run, min((block + 1) * run, codes.shape[0])):
                line = codes[k]
                for i in range(line.size):
                    magnitude = np.uint8(line[i] & mask)
                    greatest[i] = max(greatest[i], magnitude)
                    least[i] = min(least[i], np.uint8(magnitude - one))
            width = 0
            for i in range(least.size):
                width = max(width, bits_between(int(least[i]), int(greatest[i]), mantissa))
            widths[block] = width

    return compile_loop(widest)


@dialect
def bits_between(least, greatest, mantissa):
    """Bits from the last of the smaller to the first of the larger magnitude code; the smaller one less 1, modulo 256.

    Zeros are thus no smaller ones; without any other there are no bits.
    """
    low, high = max((least + 1) >> mantissa, 1), max(greatest >> mantissa, 1)
    return high - low + mantissa + 1 if greatest > 0 else 0


# Both


def _multiply(left: Side, right: Side, sums: Sums, out: Array, threads: int | None) -> None:
    """One product of matrices."""
    height, width = out.shape
    if height == 1 == width:
        out[0, 0] = (
            pairs.by_blocks(left, right, sums.wide, sums.step) if sums.blocks else pairs.in_sequence(left, right)
        )
        return
    shape = tiles.SHAPES[sums.word]
    if width < height and width <= shape.columns // 2 and sums.wide is None:  # so that vectors are filled
        turned = out.reshape(1, -1) if width == 1 else np.empty((width, height), np.float32)
        _multiply(right, left, sums, turned, threads)
        if width > 1:
            out[...] = turned.T
        return
    workers = worth(height * width * left.length, MULTIPLICATIONS_PER_THREAD, threads)
    rows = 1 if height <= _FEW_ROWS else shape.rows
    with left.room(height, rows, sums.word, sums.blocks) as room:
        low = None if sums.wide is None else np.empty_like(room.panels)

        def pack(part: tuple[int, int]) -> None:
            first, last = part
            left.pack(first * rows, min(last * rows, height), room.between(first, last))

        panels = len(room.panels)
        if workers == 1 or panels == 1:
            left.pack(0, height, room)
        else:
            in_pieces(pack, list(pairwise(bounds(panels, min(workers, panels)))))
        if low is not None:
            split()(room.panels, low, sums.wide, left.run, sums.step)
        packed = [None if x is None else x[..., 0] if rows == 1 else x for x in (room.panels, low, room.factors)]

        def multiply(part: tuple[int, int, int, int]) -> None:
            top, bottom, first, last = part
            some = [None if x is None else x[top:bottom] for x in packed]
            _columns(some, right, sums, out[top * rows : bottom * rows], first, last)

        if workers == 1:
            _columns(packed, right, sums, out, 0, width)
        else:
            in_pieces(multiply, _parts(panels, width, shape.columns, workers))


def _columns(left: list[Any], right: Side, sums: Sums, out: Array, first: int, last: int) -> None:
    """The columns `first` to `last`, packed some at a time, of the product with rows that are packed."""
    panels, low, factors = left
    columns = tiles.SHAPES[sums.word].columns
    some = max(1, _CHUNK // (panels.itemsize * columns * max(1, right.length))) * columns
    run = right.run if sums.blocks else 1
    with right.room(min(some, last - first), columns, sums.word, sums.blocks) as room:
        for start in range(first, last, some):
            its_panels, its_factors = right.pack(start, min(start + some, last), room)
            tiles.multiply(panels, low, its_panels, factors, its_factors, sums.wide, run, out, start)


def _parts(panels: int, width: int, columns: int, workers: int) -> list[tuple[int, int, int, int]]:
    """(first and last panel of rows, first and last column) for each worker."""
    if width >= workers * columns or width >= panels * columns:
        return [(0, panels, a, b) for a, b in pairwise(bounds(width, workers, columns)) if a < b]
    return [(a, b, 0, width) for a, b in pairwise(bounds(panels, workers)) if a < b]
