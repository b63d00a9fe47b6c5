"""Prefetching.

A loop with two phases reads in bursts, and the lines that it writes are fetched at the first write.
Hardware prefetchers foresee neither. With explicit prefetches, memory is busy in both phases.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from mxnum.engine.machine.jit import compile_directly
from mxnum.engine.machine.lanes import element_pointer

#: The distance in bytes at which a loop prefetches what it reads, and what it will write.
READ_AHEAD, WRITE_AHEAD = 8192, 2048
#: The number of elements for which a loop prefetches at once if blocks do not give it: in loops
#: with much work for each element, and with little.
PART, LONG_PART = 64, 256
#: Bytes of a cache line.
_LINE = 64


def ask_for(array: Any, index: Any, count: int, ahead: int) -> None:
    """Ask the processor to prefetch `count` elements.

    They lie `ahead` bytes behind those from an index on.

    `count` is a constant. The addresses may lie outside the array: a prefetch never faults.
    """


@intrinsic(prefer_literal=True)
def _ask_for(context, array, index, count, ahead):
    first = ahead.literal_value
    last = first + count.literal_value * array.dtype.bitwidth // 8

    def generate(target, builder, signature, arguments):
        byte, word = ir.IntType(8).as_pointer(), ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [byte, word, word, word])
        prefetch = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
        start = builder.bitcast(element_pointer(target, builder, array, *arguments[:2]), byte)
        for offset in range(first, last, _LINE):
            line = builder.gep(start, [ir.IntType(64)(offset)])
            builder.call(prefetch, [line, word(0), word(3), word(1)])  # Data, to be read and kept.
        return target.get_dummy_value()

    return types.none(array, index, count, ahead), generate


compile_directly(ask_for, _ask_for)
