"""Pack rows of numbers into the panels that `register_tile` reads.

A panel holds a few rows side by side: all their numbers at the first index, then all at the second
index, and so on. Zeros pad a panel. Vector instructions copy tiles of eight by eight numbers,
convert codes to numbers, and transpose rows that are contiguous in memory.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from mxnum.engine.machine.jit import compile_loop
from mxnum.engine.products.terms import INFINITY, NOT_A_NUMBER, ZERO, meanings
from mxnum.formats import FLOATS, ElementFormat
from mxnum.memory.dtypes import Array

#: A tile has this many rows and this many columns.
_SIDE = 8

_I16, _I32, _I64 = (ir.IntType(bits) for bits in (16, 32, 64))


def new_panels(rows: int, length: int, width: int, word: str) -> Array:
    """Return uninitialized panels of `width` rows each, for `rows` rows of `length` numbers."""
    return np.empty((-(-rows // width), length, width), word)


def pack(
    rows: Array, panels: Array, decoder: Decoder | None = None, scales: Array | None = None, run: int = _SIDE
) -> None:
    """Store the rows of a matrix in panels, padded with zeros.

    The matrix holds float32 numbers, or codes if `decoder` is given.

    `scales` are panels with one scale for every `run` numbers of a row. If `scales` are given, each
    number is multiplied by its scale and rounded once.
    """
    is_turned = rows.strides[0] < rows.strides[1]
    memory = np.ascontiguousarray(rows.T if is_turned else rows)
    table, fields = (None, None) if decoder is None else (decoder.table, decoder.fields)
    _pack(memory, is_turned, table, fields, scales, run, panels)


@dataclass(frozen=True, eq=False)
class Decoder:
    """The tables that convert codes of an element format to float32 numbers."""

    #: The values of the elements, by code.
    table: Array
    #: The parameters of `_decoded`. If all parameters are zero, `_decoded` cannot convert the
    #: codes, and `table` converts them. `_decoded` can convert integers, and floats whose fields
    #: fit into those of float16.
    fields: Array


@cache
def decoder(element: ElementFormat) -> Decoder:
    """Return the decoder of an element format whose elements are normal float32 numbers."""
    term = meanings(element)
    table = np.ldexp(term.significands.astype(np.float64), term.exponents)
    for kind, value in ((ZERO, 0.0), (INFINITY, np.inf)):
        table[term.classes == kind], table[term.classes == kind + 1] = value, -value
    table[term.classes >= NOT_A_NUMBER] = np.nan
    bits, half = element.bits, FLOATS["float16"]
    exponent_bits, shift = bits - 1 - element.mantissa_bits, half.mantissa_bits - element.mantissa_bits
    first_nan = element.max_code + 1 if element.specials == "nan" else 1 << 14
    fields = np.zeros(6, np.int16)
    if element.integer:
        fields[:] = 0, 0, 0, 16 - bits, 0, element.mantissa_bits
    elif exponent_bits == 5 if element.specials == "ieee" else exponent_bits < 5:
        fields[:] = shift, (1 << (bits - 1)) - 1, 1 << (bits - 1), 16 - bits, first_nan, element.bias - half.bias
    return Decoder(table.astype(np.float32), fields)


@compile_loop
def _pack(memory, is_turned, table, fields, scales, run, panels):
    """Store the rows of `memory`, or its columns if `is_turned`, in panels.

    `memory` is C-contiguous.
    """
    width = panels.shape[2]
    rows, length = (memory.shape[1], memory.shape[0]) if is_turned else memory.shape
    pitch = memory.shape[1]
    for p in range(panels.shape[0]):
        first, panel = p * width, panels[p]
        count = min(width, rows - first)
        in_tiles = length // _SIDE * _SIDE if count == width and width % _SIDE == 0 and run % _SIDE == 0 else 0
        if table is not None and not fields.any():
            in_tiles = 0
        for k in range(0, in_tiles, _SIDE):
            line = (p * ((length + run - 1) // run) + k // run) * width
            for r in range(0, width, _SIDE):
                if is_turned:
                    at = k * pitch + first + r
                    _copy_tile(memory, fields, scales, panel, (at, pitch, line + r, k * width + r, width))
                else:
                    at = (first + r) * pitch + k
                    _turn_tile(memory, fields, scales, panel, (at, pitch, line + r, k * width + r, width))
        for r in range(count):
            for k in range(in_tiles, length):
                code = memory[k, first + r] if is_turned else memory[first + r, k]
                number = code if table is None else table[code]
                panel[k, r] = number if scales is None else number * scales[p, k // run, r]
        panel[length:] = 0
        panel[:, count:] = 0


def _moving(turning: bool) -> Any:
    """Return `move(memory, fields, scales, panel, where)`, which copies a tile of 8 x 8 numbers.

    `where` is the tuple (start, pitch, factor, place, width). `move` reads eight lines of `memory`,
    which begin at the indices start, start + pitch, start + 2 * pitch, .... `move` writes eight
    lines to `panel`, at place, place + width, .... If `turning`, `move` transposes the tile. If
    `scales` is not None, it holds one scale for each of the eight numbers in a line, from index
    `factor` on. `move` multiplies the numbers by these scales.
    """

    @intrinsic
    def move(typing_context, memory, fields, scales, panel, where):
        def generate(context, builder, signature, arguments):
            start, pitch, factor, place, width = (builder.extract_value(arguments[4], i) for i in range(5))
            source = context.make_array(memory)(context, builder, arguments[0]).data
            target = context.make_array(panel)(context, builder, arguments[3]).data

            def line(data, first, step, i):
                return builder.gep(data, [builder.add(first, builder.mul(step, _I64(i)))])

            def load(pointer):
                vector = ir.VectorType(pointer.type.pointee, _SIDE)
                value = builder.load(builder.bitcast(pointer, vector.as_pointer()))
                value.align = 1
                return value

            lines = [load(line(source, start, pitch, i)) for i in range(_SIDE)]
            if turning:
                low, high = (
                    ir.Constant(ir.VectorType(_I32, _SIDE), [half + i // 2 + _SIDE * (i % 2) for i in range(_SIDE)])
                    for half in (0, _SIDE // 2)
                )
                # Three rounds transpose the tile. Each round interleaves the first half of the
                # lines with the second half.
                for _ in range(3):
                    pairs = [(lines[i], lines[i + _SIDE // 2]) for i in range(_SIDE // 2)]
                    lines = [builder.shuffle_vector(a, b, half) for a, b in pairs for half in (low, high)]
            if memory.dtype == types.uint8:
                given = context.make_array(fields)(context, builder, arguments[1]).data
                lines = [_decoded(builder, given, value) for value in lines]
            if scales != types.none:
                factors = load(builder.gep(context.make_array(scales)(context, builder, arguments[2]).data, [factor]))
                lines = [builder.fmul(value, factors) for value in lines]
            for i, value in enumerate(lines):
                if panel.dtype == types.float64:
                    value = builder.fpext(value, ir.VectorType(ir.DoubleType(), _SIDE))
                pointer = line(target, place, width, i)
                builder.store(value, builder.bitcast(pointer, value.type.as_pointer())).align = 4
            return context.get_dummy_value()

        return types.void(memory, fields, scales, panel, types.UniTuple(types.int64, 5)), generate

    return move


_copy_tile, _turn_tile = _moving(False), _moving(True)


def _decoded(builder: Any, fields: Any, codes: Any) -> Any:
    """Return LLVM IR that converts a vector of codes to float32 numbers.

    The fields of a float code are shifted to their positions in float16. The processor widens
    float16 numbers exactly, subnormals included. Codes of integer elements are converted as
    integers. A multiplication by a power of two then corrects the exponent.
    """

    def all_of(scalar: Any) -> Any:
        kind, zeros = ir.VectorType(scalar.type, _SIDE), ir.Constant(ir.VectorType(_I32, _SIDE), [0] * _SIDE)
        first = builder.insert_element(ir.Constant(kind, ir.Undefined), scalar, _I32(0))
        return builder.shuffle_vector(first, first, zeros)

    words, floats = ir.VectorType(_I16, _SIDE), ir.VectorType(ir.FloatType(), _SIDE)
    given = [builder.load(builder.gep(fields, [_I64(i)])) for i in range(6)]
    shift, magnitude_mask, sign_mask, sign_shift, first_nan = (all_of(number) for number in given[:5])
    word = builder.zext(codes, words)
    magnitude, sign = builder.and_(word, magnitude_mask), builder.and_(word, sign_mask)
    moved = builder.shl(magnitude, shift)
    moved = builder.select(builder.icmp_signed(">=", magnitude, first_nan), ir.Constant(words, [0x7E00] * _SIDE), moved)
    moved = builder.or_(moved, builder.shl(sign, sign_shift))
    number = builder.fpext(builder.bitcast(moved, ir.VectorType(ir.HalfType(), _SIDE)), floats)
    integer = builder.sitofp(builder.ashr(builder.shl(word, sign_shift), sign_shift), floats)
    value = builder.select(builder.icmp_signed("==", given[1], _I16(0)), integer, number)
    exponent = builder.sub(_I32(127), builder.sext(given[5], _I32))
    factor = builder.bitcast(builder.shl(exponent, _I32(23)), ir.FloatType())
    return builder.fmul(value, all_of(factor))
