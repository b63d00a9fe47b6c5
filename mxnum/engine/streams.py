"""Codes of fewer than eight bits as a little-endian bit stream: what loops do with codes that follow each other."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic
from numba.np.arrayobj import make_array

from mxnum.engine.jit import compile_directly
from mxnum.engine.lanes import load, store
from mxnum.scalar.word import dialect

#: Eight codes of any width fill whole bytes, no more than a word of 64 bits has.
_EIGHT = 8
#: The lower half of every 16, 32 and 64 bits, and the lowest bit of each such part.
_BYTES, _SHORTS, _WORDS = 0x00FF00FF00FF00FF, 0x0000FFFF0000FFFF, 0x00000000FFFFFFFF
_EACH_SHORT, _EACH_WORD = 0x0001000100010001, 0x0000000100000001


def load_eight(array: Any, index: Any) -> Any:
    """Eight bytes of a contiguous array as an int64, the first of them lowest."""
    return int.from_bytes(array[index : index + _EIGHT].tobytes(), "little", signed=True)


def store_eight(array: Any, index: Any, value: Any) -> None:
    """The inverse."""
    array[index : index + _EIGHT] = np.frombuffer(int(value).to_bytes(_EIGHT, "little", signed=True), np.uint8)


@dialect
def join_eight(codes, bits):
    """The codes in the bytes of a word, of 7 bits or fewer, one after the other: pairs, pairs of pairs, both halves."""
    pairs = (codes & _BYTES) | (((codes >> 8) & _BYTES) << bits)
    fours = (pairs & _SHORTS) | (((pairs >> 16) & _SHORTS) << (2 * bits))
    return (fours & _WORDS) | ((fours >> 32) << (4 * bits))


@dialect
def part_eight(joined, bits):
    """The inverse; what lies above the eighth code is not looked at."""
    one, two, four = (1 << bits) - 1, (1 << (2 * bits)) - 1, (1 << (4 * bits)) - 1
    fours = (joined & four) | (((joined >> (4 * bits)) & four) << 32)
    pairs = (fours & (two * _EACH_WORD)) | (((fours >> (2 * bits)) & (two * _EACH_WORD)) << 16)
    return (pairs & (one * _EACH_SHORT)) | (((pairs >> bits) & (one * _EACH_SHORT)) << 8)


@cache
def make_pack_run(bits: int) -> Any:
    """(codes, first, count, packed, into): codes that follow each other, from a byte on."""
    rest, whole_words = _pack_rest(bits), _make_whole_words(bits)
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
        else:
            groups = whole_words(count)
            for i in range(groups):  # what a word is too long is written again
                store_eight(packed, into + bits * i, join_eight(load_eight(codes, first + _EIGHT * i), bits))
            done = groups * _EIGHT
        rest(codes, first + done, first + count, packed, into + done * bits // 8)

    return pack_run


@cache
def make_unpack_run(bits: int) -> Any:
    """(packed, first, codes, into, count): the inverse of `make_pack_run`."""
    rest, whole_words = _unpack_rest(bits), _make_whole_words(bits)
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
        else:
            groups = whole_words(count)
            for i in range(groups):
                store_eight(codes, into + _EIGHT * i, part_eight(load_eight(packed, first + bits * i), bits))
            done = groups * _EIGHT
        rest(codes, into + done, into + count, packed, first + done * bits // 8)

    return unpack_run


@cache
def _make_whole_words(bits: int) -> Any:
    """(count) -> how many groups of eight codes there are, of so many, that a whole word can be written at."""

    @dialect
    def whole_words(count):
        bytes_ = count // _EIGHT * bits
        return (bytes_ - _EIGHT) // bits + 1 if bytes_ >= _EIGHT else 0

    return whole_words


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


@intrinsic
def _load_eight(context, array, index):
    def generate(target, builder, signature, arguments):
        return builder.load(_word_at(target, builder, array, *arguments), align=1)

    return types.int64(array, index), generate


@intrinsic
def _store_eight(context, array, index, value):
    def generate(target, builder, signature, arguments):
        builder.store(arguments[2], _word_at(target, builder, array, *arguments[:2]), align=1)
        return target.get_dummy_value()

    return types.none(array, index, types.int64), generate


def _word_at(target: Any, builder: Any, array_type: Any, array: Any, index: Any) -> Any:
    start = builder.gep(make_array(array_type)(target, builder, array).data, [index])
    return builder.bitcast(start, ir.IntType(64).as_pointer())


compile_directly(load_eight, _load_eight)
compile_directly(store_eight, _store_eight)
