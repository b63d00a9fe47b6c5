"""Codes of fewer than eight bits as a little-endian bit stream: what loops do with codes that follow each other."""

from __future__ import annotations

from functools import cache
from typing import Any

from mxnum.engine.machine.lanes import load, store
from mxnum.scalar.word import dialect


@cache
def make_pack_run(bits: int) -> Any:
    """(codes, first, count, packed, into): codes that follow each other, from a byte on."""
    rest = _pack_rest(bits)
    is_nibble, is_six, is_byte = bits == 4, bits == 6, bits == 8

    @dialect
    def pack_run(codes, first, count, packed, into):
        done = 0
        if is_nibble:  # without carrying bits from one step to the next
            for i in range(count // 2):
                at = first + 2 * i
                store(packed, into + i, load(codes, at) | (load(codes, at + 1) << 4))
            done = count // 2 * 2
        elif is_six:
            for i in range(count // 4):
                at, to = first + 4 * i, into + 3 * i
                a, b, c, d = load(codes, at), load(codes, at + 1), load(codes, at + 2), load(codes, at + 3)
                store(packed, to, a | (b << 6))
                store(packed, to + 1, (b >> 2) | (c << 4))
                store(packed, to + 2, (c >> 4) | (d << 2))
            done = count // 4 * 4
        elif is_byte:
            for i in range(count):
                store(packed, into + i, load(codes, first + i))
            done = count
        rest(codes, first + done, first + count, packed, into + done * bits // 8)

    return pack_run


@cache
def make_unpack_run(bits: int) -> Any:
    """(packed, first, codes, into, count): the inverse of `make_pack_run`."""
    rest = _unpack_rest(bits)
    is_nibble, is_six, is_byte = bits == 4, bits == 6, bits == 8

    @dialect
    def unpack_run(packed, first, codes, into, count):
        done = 0
        if is_nibble:
            for i in range(count // 2):
                both = load(packed, first + i)
                store(codes, into + 2 * i, both & 15)
                store(codes, into + 2 * i + 1, both >> 4)
            done = count // 2 * 2
        elif is_six:
            for i in range(count // 4):
                at, to = first + 3 * i, into + 4 * i
                three = load(packed, at) | (load(packed, at + 1) << 8) | (load(packed, at + 2) << 16)
                store(codes, to, three & 63)
                store(codes, to + 1, (three >> 6) & 63)
                store(codes, to + 2, (three >> 12) & 63)
                store(codes, to + 3, three >> 18)
            done = count // 4 * 4
        elif is_byte:
            for i in range(count):
                store(codes, into + i, load(packed, first + i))
            done = count
        rest(codes, into + done, into + count, packed, first + done * bits // 8)

    return unpack_run


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
