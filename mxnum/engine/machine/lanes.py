"""32-bit lanes: a numba type on which fast loops run the functions of `mxnum.definition`.

numba computes int32 + int32 in 64 bits, so a vector register holds only half as many numbers. A
lane is a separate numba type for 32-bit integers, on which operators stay in 32 bits. A function
returns right results on lanes if its intermediate results fit in 32 bits. This is proved for every
function whose word has 32 bits (see `mxnum.definition.word`).

The functions of `rounding` also need float32 arithmetic. Functions such as `add_float32` do float32
arithmetic on lanes that hold bit patterns.
"""

from __future__ import annotations

import operator
import platform
from collections.abc import Callable
from functools import cache, partial
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic, models, overload, register_model

from mxnum.definition import random, word
from mxnum.engine.machine.jit import INLINED, compile_directly, compile_everywhere, element_pointer, has_feature

#: Functions for float arithmetic on words that are neither Python integers nor numpy arrays, for
#: example the terms of a solver. A key is the type of the words. A function's arguments are the
#: name of an operation and the bit patterns of the operands.
FLOAT_ARITHMETIC: dict[type, Callable[..., Any]] = {}
#: Functions that convert a 64-bit word to 32 bits, for words that are neither Python integers nor
#: numpy arrays. A key is the type of the word, which is the function's only argument.
LOW_WORD: dict[type, Callable[[Any], Any]] = {}

#: Lanes of a vector.
LENGTH = 16
_I32, _F32 = ir.IntType(32), ir.FloatType()
_CONVERSIONS = ("float64", "float32", "float16")


def lane(value: Any) -> Any:
    """Convert an integer to a lane, and return a lane unchanged.

    Code that is not compiled has no lanes, so this function then returns a Python int.
    """
    return int(value)


def integer(value: Any) -> Any:
    """Convert a lane to an int32, and return an integer unchanged."""
    return value


def wide(value: Any) -> Any:
    """Convert a lane or an integer to an int64."""
    return int(value)


def low_word(value: Any) -> Any:
    """Convert an int64 to a lane. The number must fit in 32 bits."""
    machine = LOW_WORD.get(type(value))
    return value if machine is None else machine(value)


def load(array: Any, index: Any) -> Any:
    """Return an element of a flat integer array: a lane, or an int64 if elements have 64 bits.

    The index is not checked and must not be negative, so that compilers can vectorize the loop.
    """
    return int(array[index])


def store(array: Any, index: Any, value: Any) -> None:
    """Write the low bits of a value to an element of a flat integer array."""
    width = 8 * array.dtype.itemsize
    bits = int(value) & ((1 << width) - 1)
    array[index] = bits - (1 << width) if array.dtype.kind == "i" and bits >> (width - 1) else bits


def greatest_of(array: Any, start: Any, count: int, mask: int) -> Any:
    """Return the greatest of `count` elements from index `start`, each masked with `mask`.

    `count` and `mask` are compile-time constants. The function compiles to one vector instruction
    for each register of elements. An ordinary loop would be slower, because LLVM unrolls a loop of
    constant length to scalar code.
    """
    return max(int(array[start + i]) & mask for i in range(count))


def add_float32(a: Any, b: Any) -> Any:
    """Return the bits of the float32 sum of two bit patterns."""
    return _float_arithmetic("add", a, b)


def subtract_float32(a: Any, b: Any) -> Any:
    """Return the bits of the float32 difference of two bit patterns."""
    return _float_arithmetic("subtract", a, b)


def truncate_float32(a: Any) -> Any:
    """Return the integer part of a float32 number below 2**31 in magnitude; `a` holds its bits."""
    return _float_arithmetic("truncate", a)


def multiply_float32(a: Any, b: Any) -> Any:
    """Return the bits of the float32 product of two bit patterns."""
    return _float_arithmetic("multiply", a, b)


def divide_float32(a: Any, b: Any) -> Any:
    """Return the bits of the float32 quotient of two bit patterns."""
    return _float_arithmetic("divide", a, b)


def float32_to_float64(a: Any) -> Any:
    """Return the float64 bits of a float32 bit pattern that is not subnormal."""
    return _float_arithmetic("float64", a)


def float64_to_float32(a: Any) -> Any:
    """Return the bits of the float32 number nearest to a float64 bit pattern, ties to even."""
    machine = FLOAT_ARITHMETIC.get(type(a))
    if machine is not None:
        return machine("narrowed", a)
    with np.errstate(all="ignore"):
        result = np.asarray(a, np.int64).view(np.float64).astype(np.float32).view(np.int32)
    return result if result.ndim else int(result)


def float16_to_float32(a: Any) -> Any:
    """Return the bits of the float32 number that equals a float16 bit pattern."""
    return _float_arithmetic("float32", a)


def float32_to_float16(a: Any) -> Any:
    """Return the bits of the float16 number nearest to a float32 bit pattern, ties to even."""
    return _float_arithmetic("float16", a)


def _float_arithmetic(operation: str, *operands: Any) -> Any:
    machine = FLOAT_ARITHMETIC.get(type(operands[0]))
    if machine is not None:
        return machine(operation, *operands)
    source = np.float16 if operation == "float32" else np.float32
    floats = [np.asarray(bits).astype(f"i{source().itemsize}").view(source) for bits in operands]
    if operation == "truncate":
        result = floats[0].astype(np.int32)
    elif operation in _CONVERSIONS:
        target = np.dtype(operation)
        with np.errstate(over="ignore", invalid="ignore"):
            result = floats[0].astype(target).view(f"i{target.itemsize}").astype(np.int64)
    else:
        with np.errstate(all="ignore"):
            result = getattr(np, operation)(*floats).view(np.int32)
    return result if result.ndim else int(result)


class Lane(types.Type):  # type: ignore[misc]
    """The numba type of a lane."""

    def __init__(self) -> None:
        super().__init__(name="Lane")


class Vector(types.Type):  # type: ignore[misc]
    """Sixteen lanes; see `vectors`."""

    def __init__(self) -> None:
        super().__init__(name="Vector")


class Mask(types.Type):  # type: ignore[misc]
    """Sixteen conditions."""

    def __init__(self) -> None:
        super().__init__(name="Mask")


LANE, VECTOR, MASK = Lane(), Vector(), Mask()


def model(kind: Any, of: Any) -> None:
    """Register the LLVM type `of` as the representation of the numba type `kind`."""

    class Model(models.PrimitiveModel):  # type: ignore[misc]
        def __init__(self, manager: Any, numba_type: Any) -> None:
            super().__init__(manager, numba_type, of)

    register_model(kind)(Model)


model(Lane, _I32)
model(Vector, ir.VectorType(_I32, LENGTH))
model(Mask, ir.VectorType(ir.IntType(1), LENGTH))


def _in_lane(builder: Any, value: Any, signed: bool = True) -> Any:
    """Return IR for an integer of any width, converted to 32 bits."""
    if value.type.width > 32:
        return builder.trunc(value, _I32)
    if value.type.width < 32:
        return (builder.sext if signed else builder.zext)(value, _I32)
    return value


def _in_vector(builder: Any, value: Any) -> Any:
    """Return IR for a vector: `value` itself, or a lane or an integer repeated sixteen times."""
    if isinstance(value.type, ir.VectorType):
        return value
    value = _in_lane(builder, value)
    if isinstance(value, ir.Constant):
        return _all(_I32, value.constant, VECTOR)
    nothing = ir.Constant(_like(_I32, VECTOR), ir.Undefined)
    return builder.shuffle_vector(builder.insert_element(nothing, value, _I32(0)), nothing, _all(_I32, 0, VECTOR))


def _like(word: Any, kind: Any) -> Any:
    """Return the LLVM type `word` if `kind` is `LANE`, else the type of a vector of such words."""
    return word if kind is LANE else ir.VectorType(word, LENGTH)


def _all(word: Any, number: int, kind: Any) -> Any:
    return ir.Constant(_like(word, kind), number if kind is LANE else [number] * LENGTH)


def _kind(*arguments: Any) -> Any:
    """Return the type of an operation's result: `VECTOR` if an operand is a vector, else `LANE`."""
    return VECTOR if any(isinstance(a, Vector | Mask) for a in arguments) else LANE


def _has_lane(*arguments: Any) -> bool:
    return any(isinstance(a, Lane | Vector) for a in arguments) and _are_lanes(*arguments)


def _are_lanes(*arguments: Any) -> bool:
    return all(isinstance(a, Lane | Vector | types.Integer) for a in arguments)


def _may_select(condition: Any, *both: Any) -> bool:
    is_lane = isinstance(condition, types.Boolean) and _has_lane(*both) and _kind(*both) is LANE
    return is_lane or isinstance(condition, Mask)


def _operation(emit: Callable[[Any, Any, Any], Any], compares: bool = False) -> Any:
    """Return an intrinsic of two operands: lanes, integers or vectors; `emit` makes its IR."""

    @intrinsic
    def operation(context, a, b):
        kind = _kind(a, b)
        result = kind if not compares else MASK if kind is VECTOR else types.boolean

        def generate(target, builder, signature, arguments):
            return emit(builder, *_operands(builder, kind, arguments))

        return result(a, b), generate

    return operation


def _operands(builder: Any, kind: Any, values: Any) -> list[Any]:
    return [(_in_lane if kind is LANE else _in_vector)(builder, value) for value in values]


def _emit(instruction: str, builder: Any, a: Any, b: Any) -> Any:
    return getattr(builder, instruction)(a, b)


def _emit_comparison(sign: str, builder: Any, a: Any, b: Any) -> Any:
    return builder.icmp_signed(sign, a, b)


def _emit_floats(instruction: str, builder: Any, a: Any, b: Any) -> Any:
    kind = VECTOR if isinstance(a.type, ir.VectorType) else LANE
    floats = [builder.bitcast(value, _like(_F32, kind)) for value in (a, b)]
    return builder.bitcast(getattr(builder, instruction)(*floats), a.type)


for _operator, _instruction in {
    operator.add: "add", operator.sub: "sub", operator.and_: "and_", operator.or_: "or_", operator.xor: "xor",
    operator.lshift: "shl", operator.rshift: "ashr",
}.items():  # fmt: skip
    compile_everywhere(_operator, _operation(partial(_emit, _instruction)), _has_lane)

for _operator, _sign in {
    operator.lt: "<", operator.le: "<=", operator.gt: ">", operator.ge: ">=", operator.eq: "==", operator.ne: "!=",
}.items():  # fmt: skip
    compile_everywhere(_operator, _operation(partial(_emit_comparison, _sign), compares=True), _has_lane)

for _function, _instruction in {
    add_float32: "fadd", subtract_float32: "fsub", multiply_float32: "fmul", divide_float32: "fdiv",
}.items():  # fmt: skip
    compile_everywhere(_function, _operation(partial(_emit_floats, _instruction)), _are_lanes)


@intrinsic
def _select(context, condition, if_true, if_false):
    kind = _kind(condition)

    def generate(target, builder, signature, arguments):
        return builder.select(arguments[0], *_operands(builder, kind, arguments[1:]))

    return kind(condition, if_true, if_false), generate


@intrinsic
def _multiply_words(context, a, b):
    """Return the high and the low 32 bits of a product, from one multiplication in 64 bits."""
    kind = _kind(a, b)
    narrow, wide = _like(_I32, kind), _like(ir.IntType(64), kind)

    def generate(target, builder, signature, arguments):
        product = builder.mul(*(builder.zext(value, wide) for value in _operands(builder, kind, arguments)))
        high = builder.lshr(product, _all(ir.IntType(64), 32, kind))
        halves = [builder.trunc(half, narrow) for half in (high, product)]
        return target.make_tuple(builder, signature.return_type, halves)

    return types.UniTuple(kind, 2)(a, b), generate


compile_everywhere(word.select, _select, _may_select)
compile_everywhere(random.multiply_32x32, _multiply_words, _has_lane)


@intrinsic
def _to_lane(context, value):
    signed = getattr(value, "signed", True)

    def generate(target, builder, signature, arguments):
        return _in_lane(builder, arguments[0], signed)

    return LANE(value), generate


@intrinsic
def _to_integer(context, value):
    return types.int32(value), lambda target, builder, signature, arguments: arguments[0]


@intrinsic
def _load(context, array, index):
    result = types.int64 if array.dtype.bitwidth == 64 else LANE

    def generate(target, builder, signature, arguments):
        value = builder.load(element_pointer(target, builder, array, *arguments))
        return value if result is types.int64 else _in_lane(builder, value, array.dtype.signed)

    return result(array, index), generate


@intrinsic
def _store(context, array, index, value):
    def generate(target, builder, signature, arguments):
        pointer, bits = element_pointer(target, builder, array, *arguments[:2]), arguments[2]
        width = array.dtype.bitwidth
        if bits.type.width > width:
            bits = builder.trunc(bits, ir.IntType(width))
        elif bits.type.width < width:
            bits = builder.sext(bits, ir.IntType(width))
        builder.store(bits, pointer)
        return target.get_dummy_value()

    return types.none(array, index, value), generate


@intrinsic(prefer_literal=True)
def _greatest_of(context, array, start, count, mask):
    width, length = array.dtype.bitwidth, count.literal_value
    result = types.int64 if width == 64 else types.int32

    def generate(target, builder, signature, arguments):
        item = ir.IntType(width)
        vector = ir.VectorType(item, length)
        pointer = element_pointer(target, builder, array, *arguments[:2])
        loaded = builder.load(builder.bitcast(pointer, vector.as_pointer()), align=width // 8)
        kept = builder.and_(loaded, ir.Constant(vector, [mask.literal_value] * length))
        name = f"llvm.vector.reduce.umax.v{length}i{width}"
        reduce = cgutils.get_or_insert_function(builder.module, ir.FunctionType(item, [vector]), name)
        greatest = builder.call(reduce, [kept])
        return greatest if width >= 32 else builder.zext(greatest, _I32)

    return result(array, start, count, mask), generate


def _has_integer_index(array: Any, index: Any, *value: Any) -> bool:
    return isinstance(index, types.Integer)


compile_everywhere(greatest_of, _greatest_of, prefer_literal=True)
compile_everywhere(load, _load, _has_integer_index)
compile_everywhere(store, _store, _has_integer_index)
compile_directly(integer, _to_integer, _has_lane)


@overload(wide, jit_options=INLINED)
def _compile_wide(value):
    if isinstance(value, Lane):
        return lambda value: np.int64(_to_integer(value))
    return lambda value: np.int64(value)


@overload(integer, jit_options=INLINED)
def _compile_integer(value):
    if isinstance(value, Lane):
        return lambda value: _to_integer(value)
    return lambda value: value


@intrinsic
def _truncate(context, value):
    def generate(target, builder, signature, arguments):
        return builder.fptosi(builder.bitcast(arguments[0], _F32), _I32)

    return LANE(value), generate


@intrinsic
def _to_float64(context, value):
    def generate(target, builder, signature, arguments):
        double = builder.fpext(builder.bitcast(arguments[0], _F32), ir.DoubleType())
        return builder.bitcast(double, ir.IntType(64))

    return types.int64(value), generate


@intrinsic
def _from_float64(context, value):
    def generate(target, builder, signature, arguments):
        double = builder.bitcast(arguments[0], ir.DoubleType())
        return builder.bitcast(builder.fptrunc(double, _F32), _I32)

    return LANE(value), generate


@cache
def _has_half() -> bool:
    """Return True if the target processor has instructions that convert float16.

    Without such instructions, LLVM would call a library function that does not exist here.
    """
    if platform.machine().lower() in ("aarch64", "arm64"):
        return True
    return has_feature("f16c")


def _as_float(builder: Any, bits: Any) -> Any:
    return builder.bitcast(bits, _F32)


def _widened_half(builder: Any, bits: Any) -> Any:
    """Return IR for the float32 bits of a float16 number.

    The exponent and the mantissa are shifted to their positions in float32. A multiplication by a
    power of two then corrects the exponent bias.
    """
    magnitude = builder.and_(bits, _I32(0x7FFF))
    moved = builder.shl(magnitude, _I32(13))
    product = builder.bitcast(builder.fmul(_as_float(builder, moved), _as_float(builder, _I32(239 << 23))), _I32)
    is_special = builder.icmp_signed(">=", magnitude, _I32(0x7C00))
    value = builder.select(is_special, builder.or_(moved, _I32(0x7F800000)), product)
    return builder.or_(value, builder.shl(builder.and_(bits, _I32(0x8000)), _I32(16)))


def _rounded_to_half(builder: Any, bits: Any) -> Any:
    """Return IR for the float16 bits nearest to a float32 number, ties to even.

    To round to a normal number, half a unit in the last place is added to the bits. To round to a
    subnormal number, a float addition is used.
    """
    magnitude, bottom = builder.and_(bits, _I32(0x7FFFFFFF)), _I32(126 << 23)
    total = builder.fadd(_as_float(builder, magnitude), _as_float(builder, bottom))
    small = builder.sub(builder.bitcast(total, _I32), bottom)
    is_odd = builder.and_(builder.lshr(magnitude, _I32(13)), _I32(1))
    rounded = builder.add(builder.add(magnitude, _I32(0xFFF - (112 << 23))), is_odd)
    result = builder.select(
        builder.icmp_signed("<", magnitude, _I32(113 << 23)), small, builder.lshr(rounded, _I32(13))
    )
    result = builder.select(builder.icmp_signed(">=", magnitude, _I32(143 << 23)), _I32(0x7C00), result)
    result = builder.select(builder.icmp_signed(">", magnitude, _I32(0x7F800000)), _I32(0x7E00), result)
    return builder.or_(result, builder.and_(builder.lshr(bits, _I32(16)), _I32(0x8000)))


@intrinsic
def _from_float16(context, value):
    def generate(target, builder, signature, arguments):
        if not _has_half():
            return _widened_half(builder, arguments[0])
        half = builder.bitcast(builder.trunc(arguments[0], ir.IntType(16)), ir.HalfType())
        return builder.bitcast(builder.fpext(half, _F32), _I32)

    return LANE(value), generate


@intrinsic
def _to_float16(context, value):
    def generate(target, builder, signature, arguments):
        if not _has_half():
            return _rounded_to_half(builder, arguments[0])
        half = builder.fptrunc(builder.bitcast(arguments[0], _F32), ir.HalfType())
        return builder.zext(builder.bitcast(half, ir.IntType(16)), _I32)

    return LANE(value), generate


for _conversion, _made in {
    truncate_float32: _truncate, float32_to_float64: _to_float64, float64_to_float32: _from_float64,
    float16_to_float32: _from_float16, float32_to_float16: _to_float16, lane: _to_lane, low_word: _to_lane,
}.items():  # fmt: skip
    compile_everywhere(_conversion, _made)
