"""Arrays of packed codes.

Element i of a row of w-bit codes begins at bit w * i of a little-endian stream. Unused bits in the
last byte of a row are 0.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from mxnum.engine.machine.jit import compile_loop
from mxnum.engine.packing.bit_stream import make_pack_run, make_unpack_run
from mxnum.engine.traversal.parts import Where, contiguous
from mxnum.layout import packed_length
from mxnum.memory.dtypes import Array


class Packed(NamedTuple):
    """Packed codes of an array, which are read and written in parts.

    `shape` is the shape of the unpacked array. Each part of a row must begin and end at a byte
    boundary of the packed row.
    """

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


def pack(codes: Array, bits: int, out: Array | None = None) -> Array:
    """Return the packed codes: a little-endian bit stream for each row along the last axis.

    If given, `out` receives the packed bytes and is returned.
    """
    shape = (*codes.shape[:-1], packed_length(codes.shape[-1], bits))
    packed = np.empty(shape, np.uint8) if out is None else out
    room = packed if packed.flags.c_contiguous else np.empty(shape, np.uint8)
    if codes.size:
        flat, stream, rows = _as_rows(contiguous(codes), room, bits)
        _rows_of(make_pack_run(bits))(flat, stream, flat.size, rows)
    if room is not packed:
        packed[...] = room
    return packed


def unpack(packed: Array, bits: int, length: int, out: Array | None = None) -> Array:
    """Return the unpacked codes, `length` codes in each row.

    If given, `out` receives the codes and is returned. Padding bits at the end of a row are
    ignored.
    """
    codes = np.empty((*packed.shape[:-1], length), np.uint8) if out is None else out
    room = codes if codes.flags.c_contiguous else np.empty(codes.shape, np.uint8)
    if codes.size:
        flat, stream, rows = _as_rows(room, contiguous(packed), bits)
        _rows_of(make_unpack_run(bits))(stream, flat, flat.size, rows)
    if room is not codes:
        codes[...] = room
    return codes


def _as_rows(codes: Array, packed: Array, bits: int) -> tuple[Array, Array, int]:
    """Return the codes and the packed bytes as flat arrays, and the number of rows.

    Rows that fill whole bytes are joined into a single row.
    """
    length = codes.shape[-1] if codes.ndim else 1
    count = 1 if length * bits % 8 == 0 else codes.size // length
    return codes.reshape(-1), packed.reshape(-1), count


@cache
def _rows_of(run: Callable[..., Any]) -> Any:
    """Return `loop(read, written, codes, rows)`, which calls `run` for each row.

    `codes` is the number of codes in all rows. `read` and `written` are contiguous arrays.
    """

    def loop(read, written, codes, rows):
        length, step, step_written = codes // rows, read.size // rows, written.size // rows
        for row in range(rows):
            run(read, row * step, length, written, row * step_written)

    return compile_loop(loop)
