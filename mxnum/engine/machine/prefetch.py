"""Asking for memory before it is needed.

A loop with two phases reads in bursts, and what it writes is fetched when it is written to;
processors do not see either coming. Asked for in time, memory is as busy in one phase as in the
other.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from mxnum.engine.machine.jit import compile_directly
from mxnum.engine.machine.lanes import element_pointer

#: How many bytes ahead of where it is a loop asks for what it reads, and for room for what it
#: writes.
READ_AHEAD, WRITE_AHEAD = 8192, 2048
#: Elements before which as many others are asked for, where blocks do not say how many: by loops
#: with much to do for each, and with little.
PART, LONG_PART = 64, 256
#: Bytes of a line of the cache.
_LINE = 64


def ask_for(array: Any, index: Any, count: int, ahead: int) -> None:
    """Ask for so many elements, a constant number, that lie so many bytes behind those from an index on.

    There need not be any: processors do not mind.
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
            builder.call(prefetch, [line, word(0), word(3), word(1)])  # to be read, and kept, as data
        return target.get_dummy_value()

    return types.none(array, index, count, ahead), generate


compile_directly(ask_for, _ask_for)
