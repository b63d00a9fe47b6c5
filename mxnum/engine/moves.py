"""What packing does in registers, in LLVM's words: bytes turn, fields widen, lines are copied and repeated.

Vectors are of `LANES` bytes or numbers, or as wide as the panel; every machine splits them as it needs.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

#: Bytes that turn together, and numbers that are made at once.
LANES = 16

_I8, _I16, _I32, _I64 = (ir.IntType(bits) for bits in (8, 16, 32, 64))


def _turning(height: int) -> Any:
    """Bytes of `height` rows by `LANES` columns of a C-contiguous matrix into a tile, as its columns, at a place."""
    side = min(height, 16)

    @intrinsic
    def turn(typing_context, source, row, column, tile, place):
        def generate(context, builder, signature, arguments):
            matrix = context.make_array(source)(context, builder, arguments[0])
            result = context.make_array(tile)(context, builder, arguments[3])
            length = builder.extract_value(matrix.shape, 1)
            corner = builder.gep(matrix.data, [builder.add(builder.mul(arguments[1], length), arguments[2])])
            pointer = ir.VectorType(_I8, LANES).as_pointer()
            low, high = (
                ir.Constant(ir.VectorType(_I32, LANES), [half + i // 2 + LANES * (i % 2) for i in range(LANES)])
                for half in (0, LANES // 2)
            )
            for first in range(0, height, side):
                lines = []
                for i in range(first, first + side):
                    line = builder.load(builder.bitcast(builder.gep(corner, [builder.mul(_I64(i), length)]), pointer))
                    line.align = 1
                    lines.append(line)
                # Each round interleaves the two halves of the rows; in the end every column is in one piece.
                for _ in range(side.bit_length() - 1):
                    pairs = [(lines[i], lines[i + side // 2]) for i in range(side // 2)]
                    lines = [builder.shuffle_vector(a, b, which) for a, b in pairs for which in (low, high)]
                for i, line in enumerate(lines):
                    at = builder.gep(result.data, [builder.add(arguments[4], _I64(i * LANES // side * height + first))])
                    builder.store(line, builder.bitcast(at, pointer)).align = 1
            return context.get_dummy_value()

        return types.void(source, types.int64, types.int64, tile, types.int64), generate

    return turn


turn_8, turn_16, turn_32 = _turning(8), _turning(16), _turning(32)


def _decoding(integers: bool) -> Any:
    """The codes of a tile into as many float32 or float64 numbers.

    The fields of a code move to where float16 has them, whose numbers the machine widens exactly, subnormals included,
    in any environment; an integer is widened as it is. A factor, a power of two, makes up for another bias.
    """

    @intrinsic
    def decode(typing_context, tile, numbers, factor, values):
        def generate(context, builder, signature, arguments):
            codes, given, results = (
                context.make_array(kind)(context, builder, value)
                for kind, value in ((tile, arguments[0]), (numbers, arguments[1]), (values, arguments[3]))
            )
            bytes_, words, floats = (ir.VectorType(kind, LANES) for kind in (_I8, _I16, ir.FloatType()))

            def many(scalar: Any) -> Any:
                kind = ir.VectorType(scalar.type, LANES)
                first = builder.insert_element(ir.Constant(kind, ir.Undefined), scalar, _I32(0))
                return builder.shuffle_vector(first, first, ir.Constant(ir.VectorType(_I32, LANES), [0] * LANES))

            number = [many(builder.load(builder.gep(given.data, [_I64(index)]))) for index in range(5)]
            times = many(builder.fptrunc(arguments[2], ir.FloatType()))
            size = builder.extract_value(codes.shape, 0)
            with cgutils.for_range_slice(builder, _I64(0), size, _I64(LANES), _I64) as (place, _):
                loaded = builder.load(builder.bitcast(builder.gep(codes.data, [place]), bytes_.as_pointer()))
                loaded.align = 1
                word = builder.zext(loaded, words)
                if integers:
                    moved = builder.ashr(builder.shl(word, number[0]), number[0])
                    value = builder.sitofp(moved, floats)
                else:
                    magnitude, sign = builder.and_(word, number[1]), builder.and_(word, number[2])
                    is_nan = builder.icmp_signed(">=", magnitude, number[4])
                    moved = builder.shl(magnitude, number[0])
                    moved = builder.select(is_nan, ir.Constant(words, [0x7E00] * LANES), moved)
                    moved = builder.or_(moved, builder.shl(sign, number[3]))
                    value = builder.fpext(builder.bitcast(moved, ir.VectorType(ir.HalfType(), LANES)), floats)
                value = builder.fmul(value, times)
                if values.dtype == types.float64:
                    value = builder.fpext(value, ir.VectorType(ir.DoubleType(), LANES))
                target = builder.bitcast(builder.gep(results.data, [place]), value.type.as_pointer())
                builder.store(value, target).align = 4
            return context.get_dummy_value()

        return types.void(tile, numbers, types.float64, values), generate

    return decode


of_halves, of_integers = _decoding(False), _decoding(True)


def _copying(width: int) -> Any:
    """So many bytes of a row of a C-contiguous matrix, from a column on, into a tile at a place."""

    @intrinsic
    def copy(typing_context, source, row, column, tile, place):
        def generate(context, builder, signature, arguments):
            matrix = context.make_array(source)(context, builder, arguments[0])
            result = context.make_array(tile)(context, builder, arguments[3])
            length = builder.extract_value(matrix.shape, 1)
            corner = builder.gep(matrix.data, [builder.add(builder.mul(arguments[1], length), arguments[2])])
            pointer = ir.VectorType(_I8, width).as_pointer()
            line = builder.load(builder.bitcast(corner, pointer))
            line.align = 1
            builder.store(line, builder.bitcast(builder.gep(result.data, [arguments[4]]), pointer)).align = 1
            return context.get_dummy_value()

        return types.void(source, types.int64, types.int64, tile, types.int64), generate

    return copy


copy_8, copy_16, copy_32 = _copying(8), _copying(16), _copying(32)


def _spreading(width: int) -> Any:
    """A line of so many numbers into lines `first` to `last` of a tile, at least one."""

    @intrinsic
    def spread(typing_context, line, tile, first, last):
        def generate(context, builder, signature, arguments):
            one, many = (
                context.make_array(kind)(context, builder, value).data
                for kind, value in ((line, arguments[0]), (tile, arguments[1]))
            )
            pointer = ir.VectorType(one.type.pointee, width).as_pointer()
            value = builder.load(builder.bitcast(one, pointer))
            value.align = 4
            with cgutils.for_range_slice(builder, arguments[2], arguments[3], _I64(1), _I64) as (k, _):
                place = builder.gep(many, [builder.mul(k, _I64(width))])
                builder.store(value, builder.bitcast(place, pointer)).align = 4
            return context.get_dummy_value()

        return types.void(line, tile, types.int64, types.int64), generate

    return spread


spread_8, spread_16, spread_32 = _spreading(8), _spreading(16), _spreading(32)
