"""Arrays of packed codes: element i of a row at bit w * i of a little-endian stream, rows end on a byte."""

from __future__ import annotations

import math
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from mxnum.dtypes import Array
from mxnum.engine.machine.jit import compile_loop
from mxnum.engine.packing.bit_stream import make_pack_run, make_unpack_run
from mxnum.engine.traversal.blocked_copy import contiguous
from mxnum.engine.traversal.parts import Where, chunks
from mxnum.layout import packed_length

#: Codes of an array that is not contiguous which are copied at a time.
_CODES = 1 << 20


class Packed(NamedTuple):
    """Packed codes of an array of that shape, read and written part by part: its rows are cut between bytes."""

    array: Array
    bits: int
    shape: tuple[int, ...]

    def read(self, where: Where) -> Array:
        room = self.room(where)
        return unpack(self._bytes(where), self.bits, room.shape[-1] if self.shape else 1, room)

    def room(self, where: Where) -> Array:
        return np.empty(tuple(part.stop - part.start for part in where) if self.shape else (), np.uint8)

    def put(self, where: Where, part: Array) -> None:
        pack(part if self.shape else part.reshape(1), self.bits, self._bytes(where))

    def _bytes(self, where: Where) -> Array:
        if not self.shape:
            return self.array
        row = where[-1]
        return self.array[(*where[:-1], slice(*(packed_length(end, self.bits) for end in (row.start, row.stop))))]


def codes_in_whole_bytes(bits: int) -> int:
    """The least number of codes that fill whole bytes."""
    return 8 // math.gcd(8, bits)


def pack(codes: Array, bits: int, out: Array | None = None) -> Array:
    """Each row along the last axis as a little-endian bit stream."""
    shape = (*codes.shape[:-1], packed_length(codes.shape[-1], bits))
    packed = np.empty(shape, np.uint8) if out is None else out
    if codes.flags.c_contiguous and packed.flags.c_contiguous and codes.size:
        _pack_rows(bits)(*_as_rows(codes, packed, bits))
        return packed
    for codes_of, bytes_of in _contiguous_parts(codes, packed, bits):
        some = contiguous(codes_of)
        room = bytes_of if bytes_of.flags.c_contiguous else np.empty(bytes_of.shape, np.uint8)
        _pack_rows(bits)(*_as_rows(some, room, bits))
        if room is not bytes_of:
            bytes_of[...] = room
    return packed


def unpack(packed: Array, bits: int, length: int, out: Array | None = None) -> Array:
    """The inverse of `pack` for rows of `length` codes; padding bits at the end of a row are not looked at."""
    codes = np.empty((*packed.shape[:-1], length), np.uint8) if out is None else out
    if codes.flags.c_contiguous and packed.flags.c_contiguous and codes.size:
        _unpack_rows(bits)(*_as_rows(codes, packed, bits))
        return codes
    for codes_of, bytes_of in _contiguous_parts(codes, packed, bits):
        room = codes_of if codes_of.flags.c_contiguous else np.empty(codes_of.shape, np.uint8)
        _unpack_rows(bits)(*_as_rows(room, contiguous(bytes_of), bits))
        if room is not codes_of:
            codes_of[...] = room
    return codes


def _contiguous_parts(codes: Array, packed: Array, bits: int) -> list[tuple[Array, Array]]:
    """Codes and their bytes in chunks worth copying."""
    if codes.size == 0:
        return []
    if codes.ndim == 0:
        return [(codes, packed)]
    cuts = (*(1,) * (codes.ndim - 1), codes_in_whole_bytes(bits))
    whole = Packed(packed, bits, codes.shape)
    return [(codes[chunk.where], whole._bytes(chunk.where)) for chunk in chunks(codes.shape, cuts, cuts, _CODES)]


def _as_rows(codes: Array, packed: Array, bits: int) -> tuple[Array, Array, int]:
    """Both flat, and how many rows there are; rows that fill their bytes are one."""
    length = codes.shape[-1] if codes.ndim else 1
    count = 1 if length * bits % 8 == 0 else codes.size // length
    return codes.reshape(-1), packed.reshape(-1), count


@cache
def _pack_rows(bits: int) -> Any:
    """(codes, packed, rows): rows that follow each other."""
    pack_run = make_pack_run(bits)

    def loop(codes, packed, rows):
        length, bytes_ = codes.size // rows, packed.size // rows
        for row in range(rows):
            pack_run(codes, row * length, length, packed, row * bytes_)

    return compile_loop(loop)


@cache
def _unpack_rows(bits: int) -> Any:
    """(codes, packed, rows): the inverse."""
    unpack_run = make_unpack_run(bits)

    def loop(codes, packed, rows):
        length, bytes_ = codes.size // rows, packed.size // rows
        for row in range(rows):
            unpack_run(packed, row * bytes_, codes, row * length, length)

    return compile_loop(loop)
