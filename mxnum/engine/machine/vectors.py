"""Vectors of 16 lanes: a numba type on which the functions of `mxnum.definition` run unchanged.

Compilers unroll a loop of 16 steps before they look for vector operations, and then emit scalar
code. Loops therefore load a whole vector by ``load(array, many(index))``, and every operator (see
`lanes`) becomes one instruction for all sixteen lanes. If one operand is a vector and the other is
a lane or an integer, the lane or integer is repeated sixteen times.
"""

from __future__ import annotations

import operator
from typing import Any

import numba
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from mxnum.engine.machine import lanes
from mxnum.engine.machine.jit import compile_directly, element_pointer
from mxnum.engine.machine.lanes import LENGTH as LENGTH
from mxnum.engine.machine.lanes import VECTOR

_I32, _INDEX = ir.IntType(32), ir.IntType(64)
_VECTOR, _NUMBERS = ir.VectorType(_I32, LENGTH), ir.VectorType(ir.FloatType(), LENGTH)


def many(index: Any) -> Any:
    """Return an index that represents `index` and the fifteen indices after it.

    Only compiled code can call this function.
    """
    raise NotImplementedError("Only compiled code can use vectors of lanes.")


def available() -> bool:
    """Return True unless NUMBA_DISABLE_JIT is set, because only compiled loops can use vectors."""
    return not numba.config.DISABLE_JIT


class Many(types.Type):  # type: ignore[misc]
    """Sixteen indices."""

    def __init__(self) -> None:
        super().__init__(name="Many")


MANY = Many()
lanes.model(Many, _INDEX)


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
compile_directly(
    operator.add,
    _add_to_index,
    lambda a, b: Many in map(type, (a, b)) and all(isinstance(x, Many | types.Integer) for x in (a, b)),
)


@intrinsic
def _load(context, array, index):
    width, signed = array.dtype.bitwidth, array.dtype.signed

    def generate(target, builder, signature, arguments):
        items = ir.VectorType(ir.IntType(width), LENGTH)
        pointer = element_pointer(target, builder, array, *arguments)
        value = builder.load(builder.bitcast(pointer, items.as_pointer()), align=width // 8)
        return value if width == 32 else (builder.sext if signed else builder.zext)(value, _VECTOR)

    return VECTOR(array, index), generate


@intrinsic
def _store(context, array, index, value):
    width = array.dtype.bitwidth

    def generate(target, builder, signature, arguments):
        items = ir.VectorType(ir.IntType(width), LENGTH)
        pointer = element_pointer(target, builder, array, *arguments[:2])
        vector = arguments[2] if width == 32 else builder.trunc(arguments[2], items)
        builder.store(vector, builder.bitcast(pointer, items.as_pointer()), align=width // 8)
        return target.get_dummy_value()

    return types.none(array, index, value), generate


compile_directly(lanes.load, _load, lambda array, index: isinstance(index, Many))
compile_directly(lanes.store, _store, lambda array, index, value: isinstance(index, Many))


def load_nibbles(array: Any, index: Any) -> Any:
    """Return a vector of sixteen 4-bit codes, packed two to a byte from `array[index]` on.

    Only compiled code can call this function.
    """
    raise NotImplementedError("Only compiled code can use vectors of lanes.")


def store_nibbles(array: Any, index: Any, vector: Any) -> None:
    """Write sixteen 4-bit codes to an array, two to a byte, from `array[index]` on.

    Only compiled code can call this function.
    """
    raise NotImplementedError("Only compiled code can use vectors of lanes.")


def total_float32(vector: Any) -> Any:
    """Return the bits of the sum of sixteen float32 numbers.

    The sum repeatedly adds the upper half of the numbers to the lower half, until one number is
    left.

    Only compiled code can call this function.
    """
    raise NotImplementedError("Only compiled code can use vectors of lanes.")


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

_BYTES, _HALF, _PAIRS = (ir.VectorType(ir.IntType(bits), LENGTH // 2) for bits in (8, 32, 64))


def _chosen(places: list[int]) -> Any:
    return ir.Constant(ir.VectorType(_I32, len(places)), places)


@intrinsic
def _load_nibbles(context, array, index):
    def generate(target, builder, signature, arguments):
        pointer = element_pointer(target, builder, array, *arguments)
        both = builder.zext(builder.load(builder.bitcast(pointer, _BYTES.as_pointer()), align=1), _HALF)
        low = builder.and_(both, ir.Constant(_HALF, [15] * (LENGTH // 2)))
        high = builder.lshr(both, ir.Constant(_HALF, [4] * (LENGTH // 2)))
        return builder.shuffle_vector(low, high, _chosen([i // 2 + i % 2 * (LENGTH // 2) for i in range(LENGTH)]))

    return VECTOR(array, index), generate


@intrinsic
def _store_nibbles(context, array, index, vector):
    def generate(target, builder, signature, arguments):
        pointer, codes = element_pointer(target, builder, array, *arguments[:2]), arguments[2]
        pairs = builder.bitcast(codes, _PAIRS)  # In each pair, the second code is in the upper 32 bits.
        both = builder.or_(pairs, builder.lshr(pairs, ir.Constant(_PAIRS, [28] * (LENGTH // 2))))
        builder.store(builder.trunc(both, _BYTES), builder.bitcast(pointer, _BYTES.as_pointer()), align=1)
        return target.get_dummy_value()

    return types.none(array, index, vector), generate


compile_directly(load_nibbles, _load_nibbles)
compile_directly(store_nibbles, _store_nibbles)
