"""Codes of fewer than eight bits as a little-endian bit stream: element i of a row at bit w * i, rows end on a byte."""

from __future__ import annotations

from functools import cache
from typing import Any

from mxnum.engine.jit import compile_loop


def packed_length(length: int, bits: int) -> int:
    """Bytes of a packed row of `length` codes."""
    return (length * bits + 7) // 8


@cache
def pack_rows(bits: int) -> Any:
    """(codes, packed): two-dimensional uint8 arrays, one row each."""

    def pack(codes, packed):
        for r in range(codes.shape[0]):
            pending, held, position = 0, 0, 0
            for i in range(codes.shape[1]):
                pending |= int(codes[r, i]) << held
                held += bits
                while held >= 8:
                    packed[r, position] = pending & 0xFF
                    pending >>= 8
                    held -= 8
                    position += 1
            if held > 0:
                packed[r, position] = pending & 0xFF

    return compile_loop(pack)


@cache
def unpack_rows(bits: int) -> Any:
    """(packed, codes): the inverse of `pack_rows`; padding bits at the end of a row are not looked at."""
    MASK = (1 << bits) - 1

    def unpack(packed, codes):
        for r in range(codes.shape[0]):
            pending, held, position = 0, 0, 0
            for i in range(codes.shape[1]):
                while held < bits:
                    pending |= int(packed[r, position]) << held
                    held += 8
                    position += 1
                codes[r, i] = pending & MASK
                pending >>= bits
                held -= bits

    return compile_loop(unpack)
