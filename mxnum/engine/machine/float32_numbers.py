"""Conversions between float32 numbers and their bit patterns, for code that computes with floats.

The functions of `lanes` need no conversion, because they take and return bit patterns.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from mxnum.engine.machine.jit import compile_directly
from mxnum.engine.machine.lanes import LANE


def number_of(bits: Any) -> Any:
    """Return the float32 number whose bit pattern is the lane `bits`."""
    return np.int32(bits).view(np.float32)


def bits_of(number: Any) -> Any:
    """Return the bit pattern of a float32 number as a lane."""
    return int(np.float32(number).view(np.int32))


@intrinsic
def _number_of(context, bits):
    def generate(target, builder, signature, arguments):
        return builder.bitcast(arguments[0], ir.FloatType())

    return types.float32(bits), generate


@intrinsic
def _bits_of(context, number):
    if number != types.float32:  # Converting another float type to float32 would round.
        raise TypeError(f"{number} is not float32")

    def generate(target, builder, signature, arguments):
        return builder.bitcast(arguments[0], ir.IntType(32))

    return LANE(number), generate


compile_directly(number_of, _number_of)
compile_directly(bits_of, _bits_of)
