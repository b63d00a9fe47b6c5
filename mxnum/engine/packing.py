"""Codes of fewer than eight bits as a little-endian bit stream: element i of a row at bit w * i, rows end on a byte."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

import numba
import numpy as np

from mxnum.dtypes import Array
from mxnum.engine.jit import compile_loop
from mxnum.engine.lanes import integer, load, store
from mxnum.engine.parts import memory_order
from mxnum.engine.streams import make_pack_run, make_unpack_run
from mxnum.engine.turning import contiguous, copy, in_line, make_turn_plane, row_step
from mxnum.engine.walk import chunks
from mxnum.layout import packed_length
from mxnum.scalar.word import dialect

#: Codes that fill whole bytes, whatever their width.
_PER_BYTES = 8
#: Codes of an array that is not contiguous which are copied at a time.
_CODES = 1 << 20
#: Fewer codes than this are not worth another way.
_FEW = 4096
#: Bytes that lines which turn are longer than they need to be: lines a power of two apart share places in the cache.
_APART = 64
#: Bytes of a row that are made and turned at once, where that is faster than to turn codes: whole groups of these, and
#: whole tiles. And of how many rows.
_LINES, _WIDE = {4: 64, 6: 192}, 256


def pack(codes: Array, bits: int, out: Array | None = None) -> Array:
    """Each row along the last axis as a little-endian bit stream."""
    shape = (*codes.shape[:-1], packed_length(codes.shape[-1], bits))
    packed = np.empty(shape, np.uint8) if out is None else out
    if codes.size == 0:
        return packed
    if codes.flags.c_contiguous and packed.flags.c_contiguous:
        _pack_all(codes, packed, bits)
        return packed
    if packed.flags.c_contiguous and codes.size >= _FEW and codes.strides[-1] == 1:
        step, length = row_step(codes), codes.shape[-1]
        if step is not None:
            _pack_rows(bits)(in_line(codes), packed.reshape(-1), codes.size // length, length, step)
            return packed
    order = (_across(codes) if bits in _LINES else None) or tuple(range(codes.ndim))
    codes, turned = codes.transpose(order), packed.transpose(order)
    along = order.index(codes.ndim - 1)
    for where, bytes_where in _row_parts(codes.shape, bits, along):
        some, into = contiguous(codes[where]), turned[bytes_where]
        if along == codes.ndim - 1:
            room = into if into.flags.c_contiguous else np.empty(into.shape, np.uint8)
            _pack_all(some, room, bits)
            if room is not into:
                copy(room, into)
        else:
            rows = into.swapaxes(-1, -2)
            room = rows if rows.strides[-1] == 1 else np.empty(rows.shape, np.uint8)
            for index in np.ndindex(some.shape[:-3]):
                _pack_turned(bits)(_planes(some[index]), _planes(room[index]))
            if room is not rows:
                rows[...] = room
    return packed


def _across(codes: Array) -> tuple[int, ...] | None:
    """The axes in the order of memory, where rows do not lie along it: the last axis last but one."""
    order = memory_order(codes)
    if codes.ndim < 2 or order[-1] == codes.ndim - 1 or codes.size < _FEW or numba.config.DISABLE_JIT:
        return None
    return (*(axis for axis in order[:-1] if axis != codes.ndim - 1), codes.ndim - 1, order[-1])


def unpack(packed: Array, bits: int, length: int) -> Array:
    """The inverse of `pack` for rows of `length` codes; padding bits at the end of a row are not looked at."""
    codes = np.empty((*packed.shape[:-1], length), np.uint8)
    if codes.size == 0:
        return codes
    if packed.flags.c_contiguous:
        _unpack_all(packed, codes, bits)
        return codes
    for where, bytes_where in _row_parts(codes.shape, bits, codes.ndim - 1):
        _unpack_all(contiguous(packed[bytes_where]), codes[where], bits)
    return codes


def _planes(array: Array) -> Array:
    return array[np.newaxis] if array.ndim == 2 else array


def _pack_all(codes: Array, packed: Array, bits: int) -> None:
    codes, packed, rows = _as_rows(codes, packed, bits)
    _pack_rows(bits)(codes, packed, rows, codes.size // rows, codes.size // rows)


def _unpack_all(packed: Array, codes: Array, bits: int) -> None:
    _unpack_rows(bits)(*_as_rows(codes, packed, bits))


def _row_parts(shape: tuple[int, ...], bits: int, along: int) -> Iterator[tuple[Any, Any]]:
    """Where parts of rows of codes are, and their whole bytes; rows go along one of the axes."""
    sizes = [1] * len(shape)
    sizes[along] = _PER_BYTES
    made = chunks(shape, tuple(sizes), _CODES)
    assert made is not None
    for chunk in made:
        start, stop, _ = chunk.where[along].indices(shape[along])
        bytes_ = slice(packed_length(start, bits), packed_length(stop, bits))
        yield chunk.where, (*chunk.where[:along], bytes_, *chunk.where[along + 1 :])


def _as_rows(codes: Array, packed: Array, bits: int) -> tuple[Array, Array, int]:
    """Both flat, and how many rows there are; rows that fill their bytes are one."""
    length = codes.shape[-1]
    count = 1 if length * bits % 8 == 0 else codes.size // length
    return codes.reshape(-1), packed.reshape(-1), count


@cache
def _pack_turned(bits: int) -> Any:
    """(codes, packed): planes of codes of rows side by side, and of rows whose bytes lie one after the other.

    Bytes are made in lines across rows, as the codes lie, and turned while these are in the first cache.
    """
    pack_lines, turn_plane = _make_pack_lines(bits), make_turn_plane(1)
    TALL, WIDE = _LINES[bits], _WIDE

    def loop(codes, packed):
        planes, length, rows = codes.shape
        bytes_, pitch = packed.shape[2], min(rows, WIDE) + _APART
        room = np.empty(TALL * pitch, np.uint8)
        lines = room.reshape(1, TALL, pitch).transpose(0, 2, 1)
        codes = codes.reshape(-1)
        for plane in range(planes):
            for line in range(0, bytes_, TALL):
                stop = min(line + TALL, bytes_)
                for row in range(0, rows, WIDE):
                    width = min(WIDE, rows - row)
                    pack_lines(codes, plane * length * rows + row, rows, length, width, line, stop, room, pitch)
                    target = packed[plane : plane + 1, row : row + width, line:stop]
                    turn_plane(lines[:, :width, : stop - line], target, 0)

    return compile_loop(loop)


@cache
def _make_pack_lines(bits: int) -> Any:
    """(codes, first, step, length, width, line, stop, out, pitch): bytes `line` to `stop` of that many rows.

    Rows have `length` codes, `step` apart, and begin side by side from `first` on. Each byte of them is a line of
    `out`, `pitch` apart.
    """
    is_nibble, is_six = bits == 4, bits == 6

    @dialect
    def pack_lines(codes, first, step, length, width, line, stop, out, pitch):
        to = 0
        if is_nibble:
            while line < min(stop, length // 2):
                at = first + 2 * line * step
                for r in range(width):
                    store(out, to + r, load(codes, at + r) | (load(codes, at + step + r) << 4))
                line, to = line + 1, to + pitch
        elif is_six:  # a loop for each line vectorizes, one for all three does not
            while line < min(stop, length // 4 * 3):
                at = first + line // 3 * 4 * step
                for r in range(width):
                    store(out, to + r, load(codes, at + r) | (load(codes, at + step + r) << 6))
                at, to = at + step, to + pitch
                for r in range(width):
                    store(out, to + r, (load(codes, at + r) >> 2) | (load(codes, at + step + r) << 4))
                at, to = at + step, to + pitch
                for r in range(width):
                    store(out, to + r, (load(codes, at + r) >> 4) | (load(codes, at + step + r) << 2))
                line, to = line + 3, to + pitch
        while line < stop:
            code = 8 * line // bits
            for r in range(width):
                store(out, to + r, 0)
            while code < length and code * bits < 8 * line + 8:
                up, at = code * bits - 8 * line, first + code * step
                for r in range(width):
                    value = integer(load(codes, at + r))
                    value = value << up if up >= 0 else value >> -up
                    store(out, to + r, integer(load(out, to + r)) | value)
                code += 1
            line, to = line + 1, to + pitch

    return pack_lines


@cache
def _pack_rows(bits: int) -> Any:
    """(codes, packed, rows, length, step): rows of that length, from each to the next so many codes."""
    pack_run = make_pack_run(bits)

    def loop(codes, packed, rows, length, step):
        bytes_ = packed.size // rows
        for row in range(rows):
            pack_run(codes, row * step, length, packed, row * bytes_)

    return compile_loop(loop)


@cache
def _unpack_rows(bits: int) -> Any:
    """(codes, packed, rows): the inverse of `_pack_rows` for rows that follow each other."""
    unpack_run = make_unpack_run(bits)

    def loop(codes, packed, rows):
        length, bytes_ = codes.size // rows, packed.size // rows
        for row in range(rows):
            unpack_run(packed, row * bytes_, codes, row * length, length)

    return compile_loop(loop)
