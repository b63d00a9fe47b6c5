"""Functions that pack consecutive codes of fewer than eight bits, and unpack them."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import Any

from mxnum.definition.word import dialect
from mxnum.engine.machine.lanes import lane, load, store, wide


def codes_in_whole_bytes(bits: int) -> int:
    """Return the least number of codes of `bits` bits that fill whole bytes."""
    return 8 // math.gcd(8, bits)


@cache
def make_pack_run(bits: int) -> Callable[..., Any]:
    """Return `pack_run(codes, first, count, packed, into)`, which packs consecutive codes.

    The function reads `count` codes from index `first` on, and writes bytes from index `into` on.
    """
    rest, CODES, BYTES, in_word = _pack_rest(bits), *_together(bits)

    @dialect
    def pack_run(codes, first, count, packed, into):
        for i in range(count // CODES):  # Each step fills whole bytes, so steps do not depend on each other.
            word = in_word(load(codes, first + CODES * i))
            for j in range(1, CODES):
                word = word | (in_word(load(codes, first + CODES * i + j)) << (bits * j))
            for j in range(BYTES):
                store(packed, into + BYTES * i + j, word >> (8 * j))
        done = count // CODES * CODES
        rest(codes, first + done, first + count, packed, into + done * bits // 8)

    return pack_run


@cache
def make_unpack_run(bits: int) -> Callable[..., Any]:
    """Return `unpack_run(packed, first, count, codes, into)`, which unpacks consecutive codes.

    The function reads bytes from index `first` on, and writes `count` codes from index `into` on.
    """
    rest, CODES, BYTES, in_word = _unpack_rest(bits), *_together(bits)
    MASK = (1 << bits) - 1

    @dialect
    def unpack_run(packed, first, count, codes, into):
        for i in range(count // CODES):
            word = in_word(load(packed, first + BYTES * i))
            for j in range(1, BYTES):
                word = word | (in_word(load(packed, first + BYTES * i + j)) << (8 * j))
            for j in range(CODES):
                store(codes, into + CODES * i + j, (word >> (bits * j)) & MASK)
        done = count // CODES * CODES
        rest(codes, into + done, into + count, packed, first + done * bits // 8)

    return unpack_run


def _together(bits: int) -> tuple[int, int, Any]:
    """Return the least number of codes that fill whole bytes, the number of bytes, and `in_word`.

    `in_word` converts a code to a 32-bit integer if all these codes together fit in 32 bits, else
    to a 64-bit integer.
    """
    codes = codes_in_whole_bytes(bits)
    return codes, codes * bits // 8, lane if codes * bits <= 32 else wide


@cache
def _pack_rest(bits: int) -> Any:
    """Return `pack_rest(codes, start, stop, packed, place)`, which packs ``codes[start:stop]``.

    The function packs one code at a time, and writes bytes from index `place` on.
    """

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
    """Return `unpack_rest(codes, start, stop, packed, place)`, which unpacks ``codes[start:stop]``.

    The function unpacks one code at a time, and reads bytes from index `place` on.
    """
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
