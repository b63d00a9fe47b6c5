"""Convert to and from NVFP4 in compiled loops, with the float32 arithmetic of a software stack.

`definition.stack_arithmetic` defines the operations of each stack as functions of float32 numbers.
Loops call these functions unchanged. This module converts bit patterns to numbers and back, and
rounds to E4M3 and E2M1 by float additions at scale 1.

Loops do not convert a block if it holds NaN or infinity, if its factor is 0 or not finite, or if
the value of its largest element code is not finite. If an array has such a block,
`engine.quantizing.by_stack` converts the whole array with numpy.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, Protocol

import numpy as np

from mxnum.definition.word import dialect, select
from mxnum.engine.machine.float32_numbers import bits_of, number_of
from mxnum.engine.machine.lanes import (
    divide_float32,
    float16_to_float32,
    float32_to_float16,
    load,
    low_word,
    multiply_float32,
    store,
    wide,
)
from mxnum.engine.rounding import as_float32, by_factors, float_additions
from mxnum.engine.rounding.by_factors import UNIT, Formulation
from mxnum.engine.rounding.float_additions import value_of_code
from mxnum.formats import ELEMENTS, FLOATS, SCALES, ElementFormat
from mxnum.modes import Rounding

E4M3, E2M1, FLOAT32 = ELEMENTS["e4m3"], ELEMENTS["e2m1"], FLOATS["float32"]
_INFINITY, _NAN_SCALE = 0x7F800000, 0x7F
#: The bit pattern of 2**100, which is larger than every E4M3 and E2M1 number.
_GREATEST = (UNIT + 100) << 23
_OF_SCALE, _OF_ELEMENT = float_additions.constants(E4M3), float_additions.constants(E2M1)
_to_code = float_additions.make_code(Rounding.RNE, False)
_decoding: Any = by_factors.decoding(E2M1, SCALES["e4m3"], FLOAT32)
_value_of: Callable[..., Any] = _decoding.element


class Arithmetic(Protocol):
    """The float32 operations of a software stack.

    `mxnum.definition.stack_arithmetic.Stack` implements this protocol.
    """

    @property
    def block_scale(self) -> Callable[..., Any]: ...
    @property
    def block_scale_in(self) -> Callable[..., Any] | None: ...
    @property
    def factor(self) -> Callable[..., Any]: ...
    @property
    def decoded(self) -> Callable[..., Any]: ...
    @property
    def for_zero(self) -> int: ...
    @property
    def keeps_negative_zero(self) -> bool: ...
    @property
    def divides(self) -> bool: ...
    def __hash__(self) -> int: ...


def tensor_word(global_scale: Any, largest: Any) -> Any:
    """Return a 64-bit word that holds the global scale and the largest magnitude of a tensor.

    The low half is the global scale, and the high half is the largest magnitude.
    """
    return np.array([global_scale, largest], np.float32).view(np.int64).reshape(())


@dialect
def _global_scale(tensor):
    return number_of(low_word(tensor))


@dialect
def _encoded(bits, constants):
    """Round the float32 number with the pattern `bits` to a code; the number must not be NaN."""
    magnitude = bits & 0x7FFFFFFF
    magnitude = select(magnitude > _GREATEST, _GREATEST, magnitude)
    return _to_code(magnitude | (bits & -0x80000000), UNIT, low_word(0), constants)


@dialect
def _number_of_scale(code):
    return number_of(value_of_code(low_word(code), UNIT, _OF_SCALE))


@cache
def make_scale(source: ElementFormat, arithmetic: Arithmetic) -> Callable[..., Any]:
    """Return `stack_scale(amax, tensor)`, which returns the scale code of a block.

    `amax` is the largest finite magnitude of the block, as a bit pattern of `source`. `tensor` is a
    result of `tensor_word`.
    """
    widen, narrowed, FOR_ZERO = as_float32.make_widen(source), make_narrowed(source), arithmetic.for_zero
    in_type = arithmetic.block_scale_in
    block_scale = arithmetic.block_scale if in_type is None else in_type(narrowed)

    @dialect
    def stack_scale(amax, tensor):
        found = bits_of(block_scale(number_of(widen(low_word(amax))), _global_scale(tensor))) & 0x7FFFFFFF
        code = select(found > _INFINITY, _NAN_SCALE, _encoded(found, _OF_SCALE))
        return wide(select(code == 0, FOR_ZERO, code))

    return stack_scale


@cache
def make_narrowed(source: ElementFormat) -> Callable[..., Any]:
    """Return a function that rounds a nonnegative float32 number to `source`.

    `source` is float32, bfloat16 or float16.
    """

    @dialect
    def to_float32(x):
        return x

    @dialect
    def to_bfloat16(x):
        bits = bits_of(x)
        return number_of((bits + 0x7FFF + ((bits >> 16) & 1)) & -0x10000)

    @dialect
    def to_float16(x):
        return number_of(float16_to_float32(float32_to_float16(bits_of(x))))

    return {"float32": to_float32, "bfloat16": to_bfloat16, "float16": to_float16}[source.name]


@cache
def quantizing(source: ElementFormat, arithmetic: Arithmetic, makes_values: bool) -> Formulation:
    """Return the `Formulation` that converts floats to codes as a software stack does.

    If `makes_values`, the formulation returns the float32 values of the codes instead.
    """
    factor_of, widen, read = arithmetic.factor, as_float32.make_widen(source), decoding(arithmetic)
    prepare_values: Any = read.prepare
    DIVIDES, KEEPS, VALUES = arithmetic.divides, arithmetic.keeps_negative_zero, makes_values

    @dialect
    def prepare(code, tensor, tables, b, room):
        factor = bits_of(factor_of(_number_of_scale(code), _global_scale(tensor)))
        store(tables, 7 * room + b, factor)
        is_right = (factor > 0) & (factor < _INFINITY)
        if VALUES:
            is_right = is_right & prepare_values(code, tensor, tables, b, room)
        return is_right

    @dialect
    def code_of(x, factor):
        x = widen(x)
        scaled = divide_float32(x, factor) if DIVIDES else multiply_float32(x, factor)
        if not KEEPS:
            scaled = select(scaled == -0x80000000, 0, scaled)
        return _encoded(scaled, _OF_ELEMENT)

    @dialect
    def to_code(x, c, random):
        return code_of(x, c[0])

    @dialect
    def to_value(x, c, random):
        return _value_of(code_of(x, c[7]), c, random)

    # The constants of a block are seven values, then the factor. A loop that makes codes needs only
    # the factor.
    at, element = (by_factors.rows_at(0, 8), to_value) if makes_values else (by_factors.rows_at(7, 1), to_code)
    in_vectors = source.name in ("float32", "bfloat16")
    return Formulation(prepare, at, element, 8, is_wide=False, in_wide_words=False, in_vectors=in_vectors)


@cache
def decoding(arithmetic: Arithmetic) -> Formulation:
    """Return the `Formulation` that decodes codes to float32 as a software stack does.

    `prepare` computes the values of the seven nonzero magnitude codes once per block.
    """
    decoded = arithmetic.decoded

    @dialect
    def prepare(code, tensor, tables, b, room):
        d, S, largest = _number_of_scale(code), _global_scale(tensor), number_of(low_word(tensor >> 32))
        for magnitude in range(1, 8):  # Compilers unroll this loop, so they treat `magnitude` as a constant.
            value = number_of(value_of_code(low_word(magnitude), UNIT, _OF_ELEMENT))
            store(tables, (magnitude - 1) * room + b, bits_of(decoded(value, d, S, largest)))
        largest_value = load(tables, 6 * room + b)
        return (code != _NAN_SCALE) & (largest_value >= 0) & (largest_value < _INFINITY)

    return Formulation(prepare, _decoding.at, _value_of, 7, is_wide=False, in_wide_words=False, in_vectors=True)
