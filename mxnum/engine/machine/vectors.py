"""Sixteen lanes at a time: a numba type on which functions of the dialect run as they do on one lane.

Compilers unroll loops of 16 steps before they look for vectors, and leave scalars. Here a vector is loaded by
``load(array, many(index))``, and every operator makes one instruction for all of its lanes. A lane or an integer beside
a vector stands for sixteen of them.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numba
from llvmlite import ir
from numba import types
from numba.extending import intrinsic, models, register_model

from mxnum.engine.machine import lanes
from mxnum.engine.machine.jit import compile_directly
from mxnum.engine.machine.lanes import Lane
from mxnum.scalar import random, word

LENGTH = 16
_I32, _INDEX = ir.IntType(32), ir.IntType(64)
_VECTOR = ir.VectorType(_I32, LENGTH)


def many(index: Any) -> Any:
    """An index that stands for itself and the fifteen after it; compiled code alone knows it."""
    raise NotImplementedError("Vectors of lanes are compiled.")


def available() -> bool:
    """Whether loops are compiled."""
    return not numba.config.DISABLE_JIT


class Vector(types.Type):  # type: ignore[misc]
    """Sixteen lanes."""

    def __init__(self) -> None:
        super().__init__(name="Vector")


class Mask(types.Type):  # type: ignore[misc]
    """Sixteen conditions."""

    def __init__(self) -> None:
        super().__init__(name="Mask")


class Many(types.Type):  # type: ignore[misc]
    """Sixteen indices."""

    def __init__(self) -> None:
        super().__init__(name="Many")


VECTOR, MASK, MANY = Vector(), Mask(), Many()


def _model(kind: Any, of: Any) -> None:
    class Model(models.PrimitiveModel):  # type: ignore[misc]
        def __init__(self, manager: Any, numba_type: Any) -> None:
            super().__init__(manager, numba_type, of)

    register_model(kind)(Model)


_model(Vector, _VECTOR)
_model(Mask, ir.VectorType(ir.IntType(1), LENGTH))
_model(Many, _INDEX)


def _has(kind: Any, others: tuple[Any, ...]) -> Callable[..., bool]:
    def applies(*arguments: Any) -> bool:
        return any(isinstance(a, kind) for a in arguments) and all(isinstance(a, (kind, *others)) for a in arguments)

    return applies


_has_vector, _has_many = _has(Vector, (Lane, types.Integer)), _has(Many, (types.Integer,))


def _as_vector(builder: Any, value: Any) -> Any:
    """A vector as it is, a lane or an integer sixteen times."""
    if isinstance(value.type, ir.VectorType):
        return value
    value = lanes._in_lane(builder, value)
    if isinstance(value, ir.Constant):
        return ir.Constant(_VECTOR, [value.constant] * LENGTH)
    first = builder.insert_element(ir.Constant(_VECTOR, ir.Undefined), value, _I32(0))
    return builder.shuffle_vector(first, ir.Constant(_VECTOR, ir.Undefined), ir.Constant(_VECTOR, [0] * LENGTH))


def _operation(emit: Callable[[Any, Any, Any], Any], result: Any) -> Any:
    @intrinsic
    def operation(context, a, b):
        def generate(target, builder, signature, arguments):
            return emit(builder, *(_as_vector(builder, argument) for argument in arguments))

        return result(a, b), generate

    return operation


def _arithmetic(instruction: str) -> Callable[[Any, Any, Any], Any]:
    return lambda builder, a, b: getattr(builder, instruction)(a, b)


def _comparison(sign: str) -> Callable[[Any, Any, Any], Any]:
    return lambda builder, a, b: builder.icmp_signed(sign, a, b)


for _operator, _instruction in {
    operator.add: "add",
    operator.sub: "sub",
    operator.and_: "and_",
    operator.or_: "or_",
    operator.xor: "xor",
    operator.lshift: "shl",
    operator.rshift: "ashr",
}.items():
    compile_directly(_operator, _operation(_arithmetic(_instruction), VECTOR), _has_vector)
for _operator, _sign in {
    operator.lt: "<", operator.le: "<=", operator.gt: ">", operator.ge: ">=", operator.eq: "==", operator.ne: "!=",
}.items():  # fmt: skip
    compile_directly(_operator, _operation(_comparison(_sign), MASK), _has_vector)


_NUMBERS = ir.VectorType(ir.FloatType(), LENGTH)


def _float_arithmetic(instruction: str) -> Callable[[Any, Any, Any], Any]:
    def emit(builder: Any, a: Any, b: Any) -> Any:
        numbers = [builder.bitcast(value, _NUMBERS) for value in (a, b)]
        return builder.bitcast(getattr(builder, instruction)(*numbers), _VECTOR)

    return emit


for _function, _instruction in {
    lanes.add_float32: "fadd",
    lanes.subtract_float32: "fsub",
    lanes.multiply_float32: "fmul",
    lanes.divide_float32: "fdiv",
}.items():
    compile_directly(_function, _operation(_float_arithmetic(_instruction), VECTOR), _has_vector)


@intrinsic
def _select(context, condition, a, b):
    def generate(target, builder, signature, arguments):
        chosen, *both = arguments
        return builder.select(chosen, *(_as_vector(builder, value) for value in both))

    return VECTOR(condition, a, b), generate


compile_directly(word.select, _select, lambda condition, a, b: isinstance(condition, Mask))


@intrinsic
def _multiply_words(context, a, b):
    def generate(target, builder, signature, arguments):
        words = ir.VectorType(ir.IntType(64), LENGTH)
        product = builder.mul(*(builder.zext(_as_vector(builder, value), words) for value in arguments))
        high = builder.lshr(product, ir.Constant(words, [32] * LENGTH))
        halves = [builder.trunc(half, _VECTOR) for half in (high, product)]
        return target.make_tuple(builder, signature.return_type, halves)

    return types.UniTuple(VECTOR, 2)(a, b), generate


compile_directly(random.multiply_32x32, _multiply_words, _has_vector)


@intrinsic
def _many(context, index):
    def generate(target, builder, signature, arguments):
        value = arguments[0]
        return value if value.type == _INDEX else builder.sext(value, _INDEX)

    return MANY(index), generate


@intrinsic
def _add_to_index(context, a, b):
    def generate(target, builder, signature, arguments):
        both = (value if value.type == _INDEX else builder.sext(value, _INDEX) for value in arguments)
        return builder.add(*both)

    return MANY(a, b), generate


compile_directly(many, _many)
compile_directly(operator.add, _add_to_index, _has_many)


@intrinsic
def _load(context, array, index):
    width, signed = array.dtype.bitwidth, array.dtype.signed

    def generate(target, builder, signature, arguments):
        items = ir.VectorType(ir.IntType(width), LENGTH)
        pointer = lanes._element_pointer(target, builder, array, *arguments)
        value = builder.load(builder.bitcast(pointer, items.as_pointer()), align=width // 8)
        return value if width == 32 else (builder.sext if signed else builder.zext)(value, _VECTOR)

    return VECTOR(array, index), generate


@intrinsic
def _store(context, array, index, value):
    width = array.dtype.bitwidth

    def generate(target, builder, signature, arguments):
        items = ir.VectorType(ir.IntType(width), LENGTH)
        pointer = lanes._element_pointer(target, builder, array, *arguments[:2])
        vector = arguments[2] if width == 32 else builder.trunc(arguments[2], items)
        builder.store(vector, builder.bitcast(pointer, items.as_pointer()), align=width // 8)
        return target.get_dummy_value()

    return types.none(array, index, value), generate


compile_directly(lanes.load, _load, lambda array, index: isinstance(index, Many))
compile_directly(lanes.store, _store, lambda array, index, value: isinstance(index, Many))


def load_nibbles(array: Any, index: Any) -> Any:
    """Sixteen codes of four bits, packed from that byte on; compiled code alone knows it."""
    raise NotImplementedError("Vectors of lanes are compiled.")


def store_nibbles(array: Any, index: Any, vector: Any) -> None:
    """The inverse."""
    raise NotImplementedError("Vectors of lanes are compiled.")


def total_float32(vector: Any) -> Any:
    """The sum of sixteen float32 bit patterns, added in some order; compiled code alone knows it."""
    raise NotImplementedError("Vectors of lanes are compiled.")


@intrinsic
def _total(context, vector):
    def generate(target, builder, signature, arguments):
        rest, length = builder.bitcast(arguments[0], _NUMBERS), LENGTH
        while length > 1:
            length //= 2
            halves = (_chosen(list(range(start, start + length))) for start in (0, length))
            rest = builder.fadd(*(builder.shuffle_vector(rest, rest, half) for half in halves))
        return builder.bitcast(builder.extract_element(rest, _I32(0)), _I32)

    return lanes.LANE(vector), generate


compile_directly(total_float32, _total)

_BYTES, _HALF = ir.VectorType(ir.IntType(8), LENGTH // 2), ir.VectorType(_I32, LENGTH // 2)


def _chosen(places: list[int]) -> Any:
    return ir.Constant(ir.VectorType(_I32, len(places)), places)


@intrinsic
def _load_nibbles(context, array, index):
    def generate(target, builder, signature, arguments):
        pointer = lanes._element_pointer(target, builder, array, *arguments)
        both = builder.zext(builder.load(builder.bitcast(pointer, _BYTES.as_pointer()), align=1), _HALF)
        low = builder.and_(both, ir.Constant(_HALF, [15] * (LENGTH // 2)))
        high = builder.lshr(both, ir.Constant(_HALF, [4] * (LENGTH // 2)))
        return builder.shuffle_vector(low, high, _chosen([i // 2 + i % 2 * (LENGTH // 2) for i in range(LENGTH)]))

    return VECTOR(array, index), generate


@intrinsic
def _store_nibbles(context, array, index, vector):
    def generate(target, builder, signature, arguments):
        pointer, codes = lanes._element_pointer(target, builder, array, *arguments[:2]), arguments[2]
        nothing = ir.Constant(_VECTOR, ir.Undefined)
        low = builder.shuffle_vector(codes, nothing, _chosen(list(range(0, LENGTH, 2))))
        high = builder.shuffle_vector(codes, nothing, _chosen(list(range(1, LENGTH, 2))))
        both = builder.or_(low, builder.shl(high, ir.Constant(_HALF, [4] * (LENGTH // 2))))
        builder.store(builder.trunc(both, _BYTES), builder.bitcast(pointer, _BYTES.as_pointer()), align=1)
        return target.get_dummy_value()

    return types.none(array, index, vector), generate


compile_directly(load_nibbles, _load_nibbles)
compile_directly(store_nibbles, _store_nibbles)
