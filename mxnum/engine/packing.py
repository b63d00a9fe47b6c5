"""Codes of fewer than eight bits as a little-endian bit stream: element i of a row at bit w * i, rows end on a byte."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from mxnum.dtypes import Array
from mxnum.engine.jit import compile_loop
from mxnum.engine.lanes import load, store
from mxnum.scalar.word import dialect

#: Codes that fill whole bytes, for the widths that have a loop of their own.
_TOGETHER = {4: 2, 6: 4}


def packed_length(length: int, bits: int) -> int:
    """Bytes of a packed row of `length` codes."""
    return (length * bits + 7) // 8


def pack(codes: Array, bits: int, out: Array | None = None) -> Array:
    """Each row along the last axis as a little-endian bit stream."""
    shape = (*codes.shape[:-1], packed_length(codes.shape[-1], bits))
    packed = out if out is not None and out.flags.c_contiguous else np.empty(shape, np.uint8)
    if codes.size:
        _loop(_pack_rows, _pack_together, bits)(*_as_rows(np.ascontiguousarray(codes), packed, bits))
    if out is not None and out is not packed:
        out[...] = packed
        return out
    return packed


def unpack(packed: Array, bits: int, length: int) -> Array:
    """The inverse of `pack` for rows of `length` codes; padding bits at the end of a row are not looked at."""
    codes = np.empty((*packed.shape[:-1], length), np.uint8)
    if codes.size:
        _loop(_unpack_rows, _unpack_together, bits)(*_as_rows(codes, np.ascontiguousarray(packed), bits))
    return codes


def _as_rows(codes: Array, packed: Array, bits: int) -> tuple[Array, Array, int]:
    """Both flat, and how many rows there are; rows that fill their bytes are one."""
    length = codes.shape[-1]
    count = 1 if length * bits % 8 == 0 else codes.size // length
    return codes.reshape(-1), packed.reshape(-1), count


def _loop(any_width: Any, together: Any, bits: int) -> Any:
    return together(bits) if bits in _TOGETHER else any_width(bits)


@cache
def _pack_together(bits: int) -> Any:
    """(codes, packed, rows) for 4 and 6 bits, without carrying bits from one step to the next."""
    rest = _pack_rest(bits)
    is_nibble = bits == 4

    def loop(codes, packed, rows):
        length, bytes_ = codes.size // rows, packed.size // rows
        for row in range(rows):
            first, into = row * length, row * bytes_
            if is_nibble:
                for i in range(length // 2):
                    at = first + 2 * i
                    store(packed, into + i, load(codes, at) | (load(codes, at + 1) << 4))
                rest(codes, first + length // 2 * 2, first + length, packed, into + length // 2)
            else:
                for i in range(length // 4):
                    at, to = first + 4 * i, into + 3 * i
                    a, b, c, d = load(codes, at), load(codes, at + 1), load(codes, at + 2), load(codes, at + 3)
                    store(packed, to, a | (b << 6))
                    store(packed, to + 1, (b >> 2) | (c << 4))
                    store(packed, to + 2, (c >> 4) | (d << 2))
                rest(codes, first + length // 4 * 4, first + length, packed, into + length // 4 * 3)

    return compile_loop(loop)


@cache
def _unpack_together(bits: int) -> Any:
    """(codes, packed, rows): the inverse of `_pack_together`."""
    rest = _unpack_rest(bits)
    is_nibble = bits == 4

    def loop(codes, packed, rows):
        length, bytes_ = codes.size // rows, packed.size // rows
        for row in range(rows):
            into, first = row * length, row * bytes_
            if is_nibble:
                for i in range(length // 2):
                    both = load(packed, first + i)
                    store(codes, into + 2 * i, both & 15)
                    store(codes, into + 2 * i + 1, both >> 4)
                rest(codes, into + length // 2 * 2, into + length, packed, first + length // 2)
            else:
                for i in range(length // 4):
                    at, to = first + 3 * i, into + 4 * i
                    three = load(packed, at) | (load(packed, at + 1) << 8) | (load(packed, at + 2) << 16)
                    store(codes, to, three & 63)
                    store(codes, to + 1, (three >> 6) & 63)
                    store(codes, to + 2, (three >> 12) & 63)
                    store(codes, to + 3, three >> 18)
                rest(codes, into + length // 4 * 4, into + length, packed, first + length // 4 * 3)

    return compile_loop(loop)


@cache
def _pack_rows(bits: int) -> Any:
    """(codes, packed, rows) for any width."""
    rest = _pack_rest(bits)

    def loop(codes, packed, rows):
        length, bytes_ = codes.size // rows, packed.size // rows
        for row in range(rows):
            rest(codes, row * length, (row + 1) * length, packed, row * bytes_)

    return compile_loop(loop)


@cache
def _unpack_rows(bits: int) -> Any:
    """(codes, packed, rows): the inverse of `_pack_rows`."""
    rest = _unpack_rest(bits)

    def loop(codes, packed, rows):
        length, bytes_ = codes.size // rows, packed.size // rows
        for row in range(rows):
            rest(codes, row * length, (row + 1) * length, packed, row * bytes_)

    return compile_loop(loop)


@cache
def _pack_rest(bits: int) -> Any:
    """(codes, start, stop, packed, place): codes one by one, from a byte on."""

    @dialect
    def pack_rest(codes, start, stop, packed, place):
        pending, held = 0, 0
        for i in range(start, stop):
            pending |= int(codes[i]) << held
            held += bits
            while held >= 8:
                packed[place] = pending & 0xFF
                pending >>= 8
                held -= 8
                place += 1
        if held > 0:
            packed[place] = pending & 0xFF

    return pack_rest


@cache
def _unpack_rest(bits: int) -> Any:
    """(codes, start, stop, packed, place): the inverse of `_pack_rest`."""
    MASK = (1 << bits) - 1

    @dialect
    def unpack_rest(codes, start, stop, packed, place):
        pending, held = 0, 0
        for i in range(start, stop):
            while held < bits:
                pending |= int(packed[place]) << held
                held += 8
                place += 1
            codes[i] = pending & MASK
            pending >>= bits
            held -= bits

    return unpack_rest
