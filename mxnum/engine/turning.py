"""Copies that numpy makes element by element: between arrays whose memory runs along different axes, by tiles that turn
in registers; of rows backwards; of every other element.

An element by element copy between axes touches a line of the cache for each element; a tile uses all of the lines that
it touches.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numba
import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic
from numpy.lib.stride_tricks import as_strided

from mxnum.dtypes import Array
from mxnum.engine.jit import compile_loop
from mxnum.engine.lanes import load, store
from mxnum.scalar.word import dialect

#: Bytes of a line of the cache.
_LINE = 64
#: Elements on the side of a tile, and how many tiles turn in one register, by the bytes of an element.
_SIDES = {1: (16, 4), 2: (16, 1), 4: (16, 1), 8: (8, 1)}
#: How many of every other element are taken at once, by their bytes: a register of them. Numpy is as fast for others.
_TAKEN = {1: 64, 2: 32, 4: 16}
#: What is left at the edges goes by tiles of this side.
_SMALL = 8
#: Fewer elements than this are not worth a look at the strides.
_FEW = 4096

_I32, _I64 = ir.IntType(32), ir.IntType(64)


def copy(source: Array, target: Array) -> None:
    """Fill `target` with the elements of `source`, of the same shape and dtype, which it does not overlap."""
    axes = None
    if source.size >= _FEW and source.strides[-1] != target.strides[-1] and not numba.config.DISABLE_JIT:
        if _is_backwards(source, target):
            _reverse()(_words(source[..., ::-1]), _words(target), source.shape[-1])
            return
        if _is_every_other(source, target):
            rows = source.view(f"i{source.itemsize}").reshape(-1, source.shape[-1])
            _every_other(source.itemsize)(rows, _words(target))
            return
        axes = _crossing(source, target)
    if axes is None:
        target[...] = source
        return
    source, target = _planes(source, axes), _planes(target, axes)
    loop = _turn(source.itemsize)
    for index in np.ndindex(source.shape[:-3]):
        loop(source[index], target[index])


def row_step(array: Array) -> int | None:
    """Elements from a row to the next, where that is the same for all and not backwards; None where it is not."""
    pitch, step = None, 0
    for length, stride in zip(reversed(array.shape[:-1]), reversed(array.strides[:-1]), strict=True):
        if length == 1:
            continue
        if pitch is None:
            step = stride
        elif stride != pitch:
            return None
        pitch = stride * length
    return None if step < 0 or step % array.itemsize else step // array.itemsize


def in_line(array: Array) -> Array:
    """The elements of rows one after the other, and with them what lies between."""
    if array.flags.c_contiguous:
        return array.ravel()
    places = zip(array.shape, array.strides, strict=True)
    span = 1 + sum((length - 1) * stride for length, stride in places) // array.itemsize
    return as_strided(array, (span,), (array.itemsize,))


def contiguous(array: Array) -> Array:
    """The array itself if it is C-contiguous, a copy if not."""
    if array.flags.c_contiguous:
        return array
    room = np.empty(array.shape, array.dtype)
    copy(array, room)
    return room


def _is_backwards(source: Array, target: Array) -> bool:
    """Whether both are contiguous but for the direction of the rows of one of them: numpy is slow there."""
    return bool(
        source.itemsize in _SIDES
        and source.flags.aligned
        and target.flags.aligned
        and source.strides[-1] == -target.strides[-1]
        and source[..., ::-1].flags.c_contiguous
        and target.flags.c_contiguous
    )


def _is_every_other(source: Array, target: Array) -> bool:
    """Whether every other element of rows, which are equally far from each other, goes to contiguous ones."""
    return bool(
        source.itemsize in _TAKEN
        and source.strides[-1] == 2 * source.itemsize
        and source.flags.aligned
        and target.flags.aligned
        and target.flags.c_contiguous
        and row_step(source) is not None
    )


@cache
def _every_other(size: int) -> Any:
    """(source, target): the rows of the one, of which every other element is an element, one after the other."""
    AT_ONCE = _TAKEN[size]

    def loop(source, target):
        rows, length = source.shape
        together = max(length - 1, 0) // AT_ONCE * AT_ONCE  # what lies behind the last element is not read
        for row in range(rows):
            for column in range(0, together, AT_ONCE):
                _take_every_other(source, row, column, target, row * length + column)
            for column in range(together, length):
                target[row * length + column] = source[row, column]

    take = compile_loop(loop)
    if not numba.config.DISABLE_JIT:
        word = getattr(types, f"int{8 * size}")
        take.compile((types.Array(word, 2, "A", readonly=True), types.Array(word, 1, "C")))
        take.disable_compile()
    return take


@intrinsic
def _take_every_other(context, source, row, column, target, place):
    """As many as fill a register: compilers fetch them one by one."""
    size = source.dtype.bitwidth // 8
    lanes = _TAKEN[size]
    whole, half = (ir.VectorType(ir.IntType(8 * size), count).as_pointer() for count in (2 * lanes, lanes))

    def generate(context, builder, signature, arguments):
        rows, (_, row, column, _, place) = context.make_array(source)(context, builder, arguments[0]), arguments
        offset = builder.add(
            builder.mul(row, builder.extract_value(rows.strides, 0)), builder.mul(column, _I64(2 * size))
        )
        start = builder.gep(builder.bitcast(rows.data, ir.IntType(8).as_pointer()), [offset])
        pairs = builder.load(builder.bitcast(start, whole), align=size)
        which = ir.Constant(ir.VectorType(_I32, lanes), list(range(0, 2 * lanes, 2)))
        taken = builder.shuffle_vector(pairs, pairs, which)
        end = builder.gep(context.make_array(target)(context, builder, arguments[3]).data, [place])
        builder.store(taken, builder.bitcast(end, half), align=size)
        return context.get_dummy_value()

    return types.void(source, types.int64, types.int64, target, types.int64), generate


def _words(array: Array) -> Array:
    return array.view(f"i{array.itemsize}").reshape(-1)


@cache
def _reverse() -> Any:
    """(source, target, length): rows of that length, each from its end to its beginning."""

    def loop(source, target, length):
        for row in range(0, source.size, length):
            last = row + length - 1
            for i in range(length):
                store(target, row + i, load(source, last - i))

    return compile_loop(loop)


def _crossing(source: Array, target: Array) -> tuple[int, ...] | None:
    """The axes ordered so that `source` is contiguous along the last but one and `target` along the last.

    None where no two axes are like that, or numpy copies as well: where one axis is long and contiguous in both.
    """
    if not (source.flags.aligned and target.flags.aligned) or source.itemsize not in _SIDES:
        return None
    size, axes = source.itemsize, [axis for axis, length in enumerate(source.shape) if length > 1]
    rows = [axis for axis in axes if source.strides[axis] == size]
    columns = [axis for axis in axes if target.strides[axis] == size]
    if len(rows) != 1 or len(columns) != 1 or rows == columns:
        return None
    if min(source.shape[rows[0]], source.shape[columns[0]]) < _SMALL:
        return None
    others = [axis for axis in range(source.ndim) if axis not in (rows[0], columns[0])]
    others.sort(key=lambda axis: source.shape[axis])  # the longest is left to the loop
    return (*others, rows[0], columns[0])


def _planes(array: Array, axes: tuple[int, ...]) -> Array:
    turned = array.view(f"i{array.itemsize}").transpose(axes)
    return turned[np.newaxis] if turned.ndim == 2 else turned


@cache
def _turn(size: int) -> Any:
    """(source, target): planes, rows and columns; the one contiguous along rows, the other along columns."""
    turn_plane = make_turn_plane(size)

    def loop(source, target):
        for plane in range(source.shape[0]):
            turn_plane(source, target, plane)

    turn = compile_loop(loop)
    if not numba.config.DISABLE_JIT:  # one loop for all strides
        word = getattr(types, f"int{8 * size}")
        turn.compile((types.Array(word, 3, "A", readonly=True), types.Array(word, 3, "A")))
        turn.disable_compile()
    return turn


@cache
def make_turn_plane(size: int) -> Any:
    """(source, target, plane): one of them, as in `_turn`."""
    SIDE, TOGETHER = _SIDES[size]
    SMALL, BAND, TALL = _SMALL, _LINE // size, SIDE * TOGETHER
    tiles, small = _tiles(SIDE, TOGETHER), _tiles(SMALL, 1)

    @dialect
    def turn_plane(source, target, plane):
        _, rows, columns = source.shape
        tall, wide = rows // TALL * TALL, columns // SIDE * SIDE
        tall_small, wide_small = rows // SMALL * SMALL, columns // SMALL * SMALL
        for band in range(0, tall, BAND):
            for column in range(0, wide, SIDE):
                for row in range(band, min(band + BAND, tall), TALL):
                    tiles(source, target, plane, row, column)
        for row in range(0, tall_small, SMALL):
            for column in range(wide if row < tall else 0, wide_small, SMALL):
                small(source, target, plane, row, column)
        for row in range(rows):
            for column in range(wide_small if row < tall_small else 0, columns):
                target[plane, row, column] = source[plane, row, column]

    return turn_plane


@cache
def _tiles(side: int, together: int) -> Any:
    """So many squares of that side, one below the other, whose first element is given by its place."""

    @intrinsic
    def turn_tiles(typing_context, source, target, plane, row, column):
        def generate(context, builder, signature, arguments):
            corners, steps = [], []
            for kind, value, along in ((source, arguments[0], 2), (target, arguments[1], 1)):
                array = context.make_array(kind)(context, builder, value)
                place, strides = _I64(0), [builder.extract_value(array.strides, axis) for axis in range(3)]
                for index, stride in zip(arguments[2:], strides, strict=True):
                    place = builder.add(place, builder.mul(index, stride))
                corners.append(builder.gep(builder.bitcast(array.data, ir.IntType(8).as_pointer()), [place]))
                steps.append(strides[along])
            width, tall = source.dtype.bitwidth, side * together
            whole, part = (ir.VectorType(ir.IntType(width), lanes).as_pointer() for lanes in (tall, side))

            def lanes(places: list[int]) -> Any:
                return ir.Constant(ir.VectorType(_I32, len(places)), places)

            low, high = (
                lanes([i // side * side + half + i % side // 2 + tall * (i % 2) for i in range(tall)])
                for half in (0, side // 2)
            )
            lines = []
            for i in range(side):
                at = builder.gep(corners[0], [builder.mul(_I64(i), steps[0])])
                lines.append(builder.load(builder.bitcast(at, whole), align=width // 8))
            # Each round interleaves the two halves of the lines; in the end they are the other way.
            for _ in range(side.bit_length() - 1):
                pairs = [(lines[i], lines[i + side // 2]) for i in range(side // 2)]
                lines = [builder.shuffle_vector(a, b, which) for a, b in pairs for which in (low, high)]
            for first in range(0, tall, side):
                for i, line in enumerate(lines):
                    turned = line
                    if together > 1:
                        turned = builder.shuffle_vector(line, line, lanes(list(range(first, first + side))))
                    at = builder.gep(corners[1], [builder.mul(_I64(first + i), steps[1])])
                    builder.store(turned, builder.bitcast(at, part), align=width // 8)
            return context.get_dummy_value()

        return types.void(source, target, types.int64, types.int64, types.int64), generate

    return turn_tiles


#: The side of a square of elements of 4 bytes that is turned at once, a line of the cache.
SQUARE = _SIDES[4][0]
#: (source, target, plane, row, column): such a square from the one array to the same place in the other, as in `_turn`.
turn_square = _tiles(SQUARE, 1)
