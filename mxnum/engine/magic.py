"""Rounding to nearest even with two float32 additions: the fast formulation of the commonest conversion.

Adding to |x| a power of two whose last place is the element's quantum makes the hardware round x to that quantum;
taking it away again leaves the rounded value. Both hold inside `domain` only, and only while the hardware rounds to
nearest even, which loops check. There the functions here equal encode, and decode after encode, of `mxnum.scalar`: a
theorem.

They are written like the dialect, with two primitives more (`add_float32`, `subtract_float32`) and `narrow`, which
keeps the compiler in 32 bits.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic, overload

from mxnum.formats import FLOATS, ElementFormat
from mxnum.scalar.word import dialect, select

FLOAT32 = FLOATS["float32"]

#: The elements this is right for: all but e3m0, whose ties go by the parity of the exponent.
ELEMENTS = ("e4m3", "e5m2", "e3m2", "e2m3", "e2m1", "int8", "int4")

#: How a machine other than plain integers and numpy adds floats: type -> (a, b, subtract) -> sum.
FLOAT_ARITHMETIC: dict[type, Callable[[Any, Any, bool], Any]] = {}


def narrow(value: Any) -> Any:
    """The same integer; compiled code keeps it in 32 bits."""
    return value


def add_float32(a: Any, b: Any) -> Any:
    """Bits of the float32 sum of two bit patterns."""
    return _arithmetic(a, b, subtract=False)


def subtract_float32(a: Any, b: Any) -> Any:
    """Bits of the float32 difference of two bit patterns."""
    return _arithmetic(a, b, subtract=True)


def _arithmetic(a: Any, b: Any, subtract: bool) -> Any:
    machine = FLOAT_ARITHMETIC.get(type(a))
    if machine is not None:
        return machine(a, b, subtract)
    x, y = np.asarray(a).astype(np.int32).view(np.float32), np.asarray(b).astype(np.int32).view(np.float32)
    bits = (x - y if subtract else x + y).view(np.int32)
    return bits if bits.ndim else int(bits)


@overload(narrow, jit_options={"forceinline": True})
def _compile_narrow(value):
    return lambda value: np.int32(value)


def _float_intrinsic(instruction: str) -> Any:
    @intrinsic
    def emit(context, a, b):
        def generate(target, builder, signature, arguments):
            operands = [builder.bitcast(builder.trunc(v, _I32) if v.type.width > 32 else v, _F32) for v in arguments]
            return builder.bitcast(getattr(builder, instruction)(*operands), _I32)

        return types.int32(a, b), generate

    return emit


_I32, _F32 = ir.IntType(32), ir.FloatType()
_emit_add, _emit_subtract = _float_intrinsic("fadd"), _float_intrinsic("fsub")


@overload(add_float32, jit_options={"forceinline": True})
def _compile_add(a, b):
    return lambda a, b: _emit_add(a, b)


@overload(subtract_float32, jit_options={"forceinline": True})
def _compile_subtract(a, b):
    return lambda a, b: _emit_subtract(a, b)


def domain(element: ElementFormat) -> tuple[int, int, int]:
    """(least scale, greatest scale, greatest exponent field of x) for which the functions below are right.

    The quantum stays above the subnormals by enough that flushing them changes nothing, and nothing becomes infinite.
    """
    last_field = 254 - (FLOAT32.mantissa_bits - element.mantissa_bits)
    least = 3 + element.mantissa_bits - element.emin
    return least, min(last_field - element.emin, 254 - element.emax), last_field


def make_nearest_even_code(element: ElementFormat) -> Callable[..., Any]:
    """(x, scale) -> element code of x / 2**(scale - 127), to nearest even, saturating; x a float32 bit pattern."""
    MANTISSA, EMIN, MAX, BITS = element.mantissa_bits, element.emin, element.max_code, element.bits
    DISCARDED = FLOAT32.mantissa_bits - MANTISSA
    INTEGER = element.integer
    MASK = (1 << BITS) - 1
    magic_of = _make_magic(element)

    @dialect
    def nearest_even_code(x, scale):
        magnitude = narrow(x & 0x7FFFFFFF)
        magic = magic_of(magnitude, scale)
        significand = narrow(add_float32(magnitude, magic) - magic)  # in quanta
        steps = narrow(narrow(magic >> DISCARDED) - narrow((scale + EMIN + DISCARDED) << MANTISSA))
        code = narrow(significand + steps)
        code = narrow(select(code > MAX, MAX, code))
        if INTEGER:
            sign = narrow(x >> 31)
            return narrow((narrow(code ^ sign) - sign) & MASK)
        return narrow(code | narrow(narrow(x >> (32 - BITS)) & (1 << (BITS - 1))))

    nearest_even_code.__name__ = f"nearest_even_code_{element.name}"
    return nearest_even_code


def make_nearest_even_value(element: ElementFormat) -> Callable[..., Any]:
    """(x, scale) -> float32 bit pattern of the value that `make_nearest_even_code`'s code has under that scale."""
    INTEGER = element.integer
    LARGEST = _float32_bits(element.max)
    magic_of = _make_magic(element)

    @dialect
    def nearest_even_value(x, scale):
        magnitude = narrow(x & 0x7FFFFFFF)
        magic = magic_of(magnitude, scale)
        value = subtract_float32(add_float32(magnitude, magic), magic)
        largest = narrow(LARGEST + narrow((scale - 127) << 23))
        value = narrow(select(value > largest, largest, value))
        signed = narrow(value | narrow(x & -0x80000000))
        if INTEGER:  # no -0
            return narrow(select(value == 0, 0, signed))
        return signed

    nearest_even_value.__name__ = f"nearest_even_value_{element.name}"
    return nearest_even_value


def decoding_domain(element: ElementFormat) -> tuple[int, int]:
    """(least, greatest) scale at which values are zero or normal float32 numbers, and no field overflows."""
    magnitudes = 1 << (element.bits - 1)
    last_field = (magnitudes if element.integer else magnitudes - 1) >> element.mantissa_bits
    return 1 + element.mantissa_bits - element.emin, 254 + element.bias - last_field


def make_value_of_code(element: ElementFormat) -> Callable[..., Any]:
    """(code, scale) -> float32 bit pattern of element value * 2**(scale - 127), for a scale in `decoding_domain`.

    The fields of a normal value move into place; a subnormal one is put behind a leading one, which an exact
    subtraction takes away. No rounding happens, so this holds in every floating-point environment.
    """
    MANTISSA, BIAS, BITS, MAX = element.mantissa_bits, element.bias, element.bits, element.max_code
    MAGNITUDE_MASK = (1 << (BITS - 1)) - 1
    UP = FLOAT32.mantissa_bits - MANTISSA
    INTEGER, HAS_NAN, HAS_INFINITY = element.integer, element.specials != "none", element.specials == "ieee"
    NAN_CODE, INFINITY_CODE = FLOAT32.nan_code, FLOAT32.infinity_code

    @dialect
    def value_of_code(code, scale):
        sign = narrow(narrow(code >> (BITS - 1)) & 1)
        magnitude = narrow(code & MAGNITUDE_MASK)
        if INTEGER:
            magnitude = narrow(select(sign == 0, magnitude, (1 << (BITS - 1)) - magnitude))
        moved = narrow(magnitude << UP)
        normal = narrow(moved + narrow((scale - BIAS) << 23))
        leading = narrow((scale - BIAS + 1) << 23)
        subnormal = narrow(subtract_float32(moved + leading, leading) & 0x7FFFFFFF)
        value = narrow(select(magnitude < (1 << MANTISSA), subnormal, normal))
        value = narrow(value | narrow(narrow(0 - sign) << 31))
        if HAS_INFINITY:
            value = narrow(select(magnitude == MAX + 1, INFINITY_CODE | narrow(narrow(0 - sign) << 31), value))
            return narrow(select(magnitude > MAX + 1, NAN_CODE, value))
        if HAS_NAN:
            return narrow(select(magnitude > MAX, NAN_CODE, value))
        return value

    value_of_code.__name__ = f"value_of_code_{element.name}"
    return value_of_code


def _make_magic(element: ElementFormat) -> Callable[..., Any]:
    """(magnitude, scale) -> bits of the power of two whose last place is the quantum at that magnitude."""
    EMIN = element.emin
    UP = (FLOAT32.mantissa_bits - element.mantissa_bits) << FLOAT32.mantissa_bits

    @dialect
    def magic_of(magnitude, scale):
        binade = narrow(magnitude & 0x7F800000)
        least = narrow((scale + EMIN) << 23)
        return narrow(select(binade > least, binade, least) + UP)

    return magic_of


def _float32_bits(value: float) -> int:
    return int(np.float32(value).view(np.int32))
