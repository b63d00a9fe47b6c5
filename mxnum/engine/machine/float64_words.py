"""float64 arithmetic on bit patterns in 64-bit integers. For float32 arithmetic see `lanes`."""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from mxnum.engine.machine.jit import compile_everywhere
from mxnum.engine.machine.lanes import FLOAT_ARITHMETIC


def add_float64(a: Any, b: Any) -> Any:
    """Return the bits of the float64 sum of two bit patterns."""
    return _arithmetic("add", a, b)


def subtract_float64(a: Any, b: Any) -> Any:
    """Return the bits of the float64 difference of two bit patterns."""
    return _arithmetic("subtract", a, b)


def multiply_float64(a: Any, b: Any) -> Any:
    """Return the bits of the float64 product of two bit patterns."""
    return _arithmetic("multiply", a, b)


def divide_float64(a: Any, b: Any) -> Any:
    """Return the bits of the float64 quotient of two bit patterns."""
    return _arithmetic("divide", a, b)


def _arithmetic(operation: str, a: Any, b: Any) -> Any:
    machine = FLOAT_ARITHMETIC.get(type(a)) or FLOAT_ARITHMETIC.get(type(b))
    if machine is not None:
        return machine(f"{operation} float64", a, b)
    with np.errstate(all="ignore"):
        floats = [np.asarray(bits, np.int64).view(np.float64) for bits in (a, b)]
        result = np.asarray(getattr(np, operation)(*floats)).view(np.int64)
    return result if result.ndim else int(result)


def _compiled(function: Any, instruction: str) -> None:
    """Compile calls of `function` on 64-bit integers to the LLVM instruction `instruction`."""

    @intrinsic
    def operation(context, a, b):
        def generate(target, builder, signature, arguments):
            floats = [builder.bitcast(argument, ir.DoubleType()) for argument in arguments]
            return builder.bitcast(getattr(builder, instruction)(*floats), ir.IntType(64))

        return types.int64(types.int64, types.int64), generate

    compile_everywhere(function, operation)


_compiled(add_float64, "fadd")
_compiled(subtract_float64, "fsub")
_compiled(multiply_float64, "fmul")
_compiled(divide_float64, "fdiv")
