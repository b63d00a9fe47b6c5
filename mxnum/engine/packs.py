"""Operands of fast products, packed: rows of codes or floats into the panels that `tiles` takes, zeros where none are.

Codes go through a tile of a few indices by the rows of one panel: bytes are moved into place first, because eight or
sixteen rows of them turn in registers, and then become floats all at once.
"""

from __future__ import annotations

import math
from copy import copy
from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numba.extending import register_jitable

from mxnum.dtypes import Array
from mxnum.engine.jit import compile_loop
from mxnum.engine.moves import (
    LANES,
    copy_8,
    copy_16,
    copy_32,
    of_halves,
    of_integers,
    spread_8,
    spread_16,
    spread_32,
    turn_8,
    turn_16,
    turn_32,
)
from mxnum.engine.operands import INFINITY, NOT_A_NUMBER, ZERO, meanings
from mxnum.formats import E8M0, FLOATS, ElementFormat

#: Indices of a tile, at least: lines of memory are read whole. And its bytes, about.
_STEP, _TILE = 64, 2048


class Matrix(NamedTuple):
    """A matrix as its memory has it: C-contiguous, its rows first, or last if `turned`."""

    array: Array
    turned: bool

    @classmethod
    def of(cls, x: Array) -> Matrix:
        """A copy only where neither the matrix nor its transpose is contiguous."""
        if x.flags.c_contiguous:
            return cls(x, False)
        if x.T.flags.c_contiguous:
            return cls(x.T, True)
        return cls(np.ascontiguousarray(x), False)


@dataclass(frozen=True, eq=False)
class Decoder:
    """How codes become numbers: by a table, or, where the element is much like a float16 or an integer, without it."""

    #: The elements by code.
    table: Array
    #: None, or what `moves.of_halves` or `moves.of_integers` takes: shift, masks of magnitude and sign, shift of the
    #: sign, first NaN.
    numbers: Array | None
    factor: float
    integer: bool

    @classmethod
    def of(cls, element: ElementFormat, word: str) -> Decoder:
        return _decoder(element, word)


@cache
def _decoder(element: ElementFormat, word: str) -> Decoder:
    table = _table(element, word)
    bits, mantissa = element.bits, element.mantissa_bits
    if element.integer:
        return Decoder(table, np.array([16 - bits, 0, 0, 0, 0], np.int16), 2.0**-mantissa, True)
    exponent_bits, half = bits - 1 - mantissa, FLOATS["float16"]
    fits = exponent_bits <= 5 and mantissa <= half.mantissa_bits and abs(half.bias - element.bias) < 100
    if not fits or (element.specials == "ieee" and exponent_bits < 5):
        return Decoder(table, None, 1.0, False)
    shift = half.mantissa_bits - mantissa
    first_nan = element.max_code + 1 if element.specials == "nan" else 1 << 14
    numbers = np.array([shift, (1 << (bits - 1)) - 1, 1 << (bits - 1), 16 - bits, first_nan], np.int16)
    return Decoder(table, numbers, 2.0 ** (half.bias - element.bias), False)


class Room:
    """Memory for panels, perhaps used before: fresh memory costs as much as packing. `with` gives it back for reuse."""

    _kept: ClassVar[list[Array]] = []
    #: Bytes of what is kept, and how many of these.
    _SIZE, _MOST = 3 << 19, 4

    def __init__(self, shapes: list[tuple[int, ...]], word: str) -> None:
        size = sum(math.prod(shape) for shape in shapes)
        itemsize = 4 if word == "float32" else 8
        self._memory = None
        if size * itemsize > self._SIZE:
            flat = np.empty(size, word)
        else:
            try:
                self._memory = self._kept.pop()
            except IndexError:
                self._memory = np.empty(self._SIZE // 8)
            flat = self._memory.view(word)
        first = math.prod(shapes[0])
        self.panels = flat[:first].reshape(shapes[0])
        self.factors = flat[first:size].reshape(shapes[1]) if len(shapes) > 1 else None

    def between(self, first: int, last: int) -> Room:
        """Some of the panels."""
        part = copy(self)
        part.panels = self.panels[first:last]
        part.factors = None if self.factors is None else self.factors[first:last]
        return part

    def __enter__(self) -> Room:
        return self

    def __exit__(self, *_: object) -> None:
        if self._memory is not None and len(self._kept) < self._MOST:
            self._kept.append(self._memory)


@dataclass(frozen=True, eq=False)
class Side:
    """One operand of a product of two matrices: float32 values, or codes and what they mean."""

    source: Matrix
    rows: int
    length: int
    #: The rest is of codes alone. Scale codes: a row of them for each row, each for `run` elements.
    scales: Array | None = None
    run: int = 1
    decoder: Decoder | None = None
    powers: Array | None = None

    def room(self, rows: int, width: int, word: str, apart: bool, length: int | None = None) -> Room:
        """Memory for that many rows in panels of `width`, and for their scales where they are kept `apart`.

        The length is then filled up to whole blocks.
        """
        length = self.length if length is None else length
        length = -(-length // self.run) * self.run if apart else length
        count = -(-rows // width)
        sizes: list[tuple[int, ...]] = [(count, length, width), (count, length // self.run, width)]
        return Room(sizes if apart else sizes[:1], word)

    def pack(self, first: int, last: int, room: Room, begin: int = 0, end: int | None = None) -> tuple[Array, Any]:
        """The rows `first` to `last`, or what indices `begin` to `end` are of them: panels, and those of scales.

        Where scales are apart, `begin` is where a block does.
        """
        array, turned = self.source
        end = self.length if end is None else end
        count = -(-(last - first) // room.panels.shape[2])
        panels, factors = room.panels[:count], None if room.factors is None else room.factors[:count]
        if self.decoder is None:
            pack_floats()(array, turned, first, last, begin, end, panels)
            return panels, None
        d = self.decoder
        how = (d.table, 1.0) if d.numbers is None else (d.numbers, d.factor)
        pack_codes(d.numbers is None, d.integer)(
            array, turned, self.scales, first, last, begin, end, self.run, *how, self.powers, panels, factors
        )
        return panels, factors


@cache
def _table(element: ElementFormat, word: str) -> Array:
    """The elements by code, infinities, NaN and zeros of both signs included."""
    term = meanings(element)
    classes = term.classes
    table = np.ldexp(term.significands.astype(np.float64), term.exponents)
    table[classes >= INFINITY] = np.inf
    table[classes == INFINITY + 1] = -np.inf
    table[classes >= NOT_A_NUMBER] = np.nan
    table[classes == ZERO + 1] = -0.0
    result: Array = table.astype(word)
    return result


@cache
def powers(word: str) -> Array:
    """2**(code - 127) by scale code."""
    values = np.ldexp(1.0, np.arange(256) - E8M0.bias)
    values[E8M0.nan_code] = np.nan
    result: Array = values.astype(word)
    return result


@register_jitable(inline="always")
def _fetch(source, turned, row, count, start, steps, tile, width):
    """The codes of some rows at a few indices into a tile: index by index, `width` rows at each."""
    whole = count == width
    if width == 1:
        line = source[start : start + steps, row] if turned else source[row, start : start + steps]
        for k in range(steps):
            tile[k] = line[k]
    elif turned:
        if whole and width == 8:
            for k in range(steps):
                copy_8(source, start + k, row, tile, k * 8)
        elif whole and width == 16:
            for k in range(steps):
                copy_16(source, start + k, row, tile, k * 16)
        elif whole and width == 32:
            for k in range(steps):
                copy_32(source, start + k, row, tile, k * 32)
        else:
            for k in range(steps):
                for r in range(count):
                    tile[k * width + r] = source[start + k, row + r]
    elif whole and steps % LANES == 0 and width == 8:
        for k in range(0, steps, LANES):
            turn_8(source, row, start + k, tile, k * 8)
    elif whole and steps % LANES == 0 and width == 16:
        for k in range(0, steps, LANES):
            turn_16(source, row, start + k, tile, k * 16)
    elif whole and steps % LANES == 0 and width == 32:
        for k in range(0, steps, LANES):
            turn_32(source, row, start + k, tile, k * 32)
    else:
        for r in range(count):
            for k in range(steps):
                tile[k * width + r] = source[row + r, start + k]


@register_jitable(inline="always")
def _spread(line, tile, first, last, width):
    """The same for any width."""
    if width == 8:
        spread_8(line, tile, first, last)
    elif width == 16:
        spread_16(line, tile, first, last)
    elif width == 32:
        spread_32(line, tile, first, last)
    elif width == 1:
        tile[first:last] = line[0]
    else:
        for k in range(first, last):
            for r in range(width):
                tile[k * width + r] = line[r]


@cache
def pack_codes(by_table: bool, integers: bool) -> Any:
    """(source, turned, scales, first, last, begin, end, run, decoder, factor, powers, panels, factors): `Side.pack`.

    Without factors each number is multiplied by its scale, which rounds once. (The loop finds intrinsics among its
    globals: in its closure they would keep it out of the cache on disk.)
    """

    def pack(source, turned, scales, first, last, begin, end, run, decoder, factor, powers, panels, factors):
        width, length = panels.shape[2], end - begin
        most = max(_STEP, _TILE // width // LANES * LANES)
        size = most * width
        tile, line = np.zeros(size, np.uint8), np.ones(width, panels.dtype)
        values, own = np.zeros(size, panels.dtype), np.ones(size, panels.dtype)
        for p in range(panels.shape[0]):
            row = first + p * width
            count = min(width, last - row)
            panel = panels[p]
            for start in range(0, length, most):
                steps = min(most, length - start)
                _fetch(source, turned, row, count, begin + start, steps, tile, width)
                target = panel[start : start + steps].reshape(-1)
                into = target if factors is not None and target.size == size else values
                if by_table:
                    for i in range(size):
                        into[i] = decoder[tile[i]]
                elif integers:
                    of_integers(tile, decoder, factor, into)
                else:
                    of_halves(tile, decoder, factor, into)
                if factors is None:
                    k = 0
                    while k < steps:
                        block = (begin + start + k) // run
                        stop = min(steps, (block + 1) * run - begin - start)
                        for r in range(count):
                            line[r] = powers[scales[row + r, block]]
                        _spread(line, own, k, stop, width)
                        k = stop
                    for i in range(target.size):
                        target[i] = values[i] * own[i]
                elif target.size < size:
                    for i in range(target.size):
                        target[i] = values[i]
            if count < width:
                panel[:, count:] = 0
            panel[length:] = 0
            if factors is not None:
                for block in range((length + run - 1) // run):
                    own_line = factors[p, block]
                    for r in range(count):
                        own_line[r] = powers[scales[row + r, begin // run + block]]
                    own_line[count:] = 1

    return compile_loop(pack)


@cache
def pack_floats() -> Any:
    """(source, turned, first, last, begin, end, panels): floats of `Side.pack`."""

    def pack(source, turned, first, last, begin, end, panels):
        width, length = panels.shape[2], end - begin
        for p in range(panels.shape[0]):
            row = first + p * width
            count = min(width, last - row)
            panel = panels[p]
            if turned:
                for k in range(length):
                    line, target = source[begin + k, row : row + count], panel[k]
                    for r in range(count):
                        target[r] = line[r]
            else:
                for start in range(0, length, LANES):
                    stop = min(start + LANES, length)
                    for r in range(count):
                        line, target = source[row + r, begin + start : begin + stop], panel[start:stop, r]
                        for k in range(line.size):
                            target[k] = line[k]
            if count < width:
                panel[:, count:] = 0

    return compile_loop(pack)


@cache
def split() -> Any:
    """(panels, low, wide, run, step): numbers of wide blocks less what is no multiple of step, which goes to low."""

    def split(panels, low, wide, run, step):
        for p in range(panels.shape[0]):
            for block in range(wide.size):
                if wide[block]:
                    for k in range(block * run, (block + 1) * run):
                        whole, rest = panels[p, k], low[p, k]
                        for r in range(whole.size):
                            x = whole[r]
                            high = np.trunc(x / step) * step if np.isfinite(x) else x
                            whole[r], rest[r] = high, x - high if np.isfinite(x) else 0.0

    return compile_loop(split)
