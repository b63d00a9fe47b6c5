"""float32 numbers for functions that compute with them as such, beside the bit patterns of `lanes`."""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from mxnum.engine.machine.jit import compile_directly
from mxnum.engine.machine.lanes import LANE


def number_of(bits: Any) -> Any:
    """The float32 number of a bit pattern, which is a lane."""
    return np.int32(bits).view(np.float32)


def bits_of(number: Any) -> Any:
    """The inverse."""
    return int(np.float32(number).view(np.int32))


@intrinsic
def _number_of(context, bits):
    def generate(target, builder, signature, arguments):
        return builder.bitcast(arguments[0], ir.FloatType())

    return types.float32(bits), generate


@intrinsic
def _bits_of(context, number):
    if number != types.float32:  # nothing may be rounded on the way
        raise TypeError(f"{number} is not float32")

    def generate(target, builder, signature, arguments):
        return builder.bitcast(arguments[0], ir.IntType(32))

    return LANE(number), generate


compile_directly(number_of, _number_of)
compile_directly(bits_of, _bits_of)
