"""One row with one row: what `tiles` does for matrices, but along memory and a piece at a time."""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from mxnum.dtypes import Array
from mxnum.engine.jit import compile_loop
from mxnum.engine.packs import Side, split

#: Numbers of each row that are unpacked at a time, about: they stay in the second cache.
_PIECE = 1 << 15


def in_sequence(left: Side, right: Side) -> Any:
    """acc = fma(a, b, acc) in index order."""
    total, step = np.zeros(1, np.float32), max(1, min(_PIECE, left.length))
    a, b = (side.room(1, 1, "float32", False, step) for side in (left, right))
    with a, b:
        for start in range(0, left.length, step):
            stop = min(start + step, left.length)
            left.pack(0, 1, a, start, stop)
            right.pack(0, 1, b, start, stop)
            _chain()(a.panels.reshape(-1), b.panels.reshape(-1), stop - start, total)
    return _canonical(total)


def by_blocks(left: Side, right: Side, wide: Array | None, step: float) -> Any:
    """acc = acc + (the sum of a block in float64, scaled and rounded once), the `wide` ones split at `step`."""
    run, total = left.run, np.zeros(1, np.float32)
    blocks = -(-left.length // run)
    some = min(max(1, _PIECE // run), blocks)
    marks = np.zeros(blocks, np.uint8) if wide is None else wide
    a, b = (side.room(1, 1, "float64", True, some * run) for side in (left, right))
    with a, b:
        for first in range(0, blocks, some):
            start, stop = first * run, min((first + some) * run, left.length)
            left.pack(0, 1, a, start, stop)
            right.pack(0, 1, b, start, stop)
            its_marks, low = marks[first : first + some], a.panels
            if its_marks.any():
                low = np.zeros_like(a.panels)
                split()(a.panels, low, its_marks, run, step)
            arrays: Any = a.panels, low, b.panels, a.factors, b.factors
            _blocks()(*(x.reshape(-1) for x in arrays), its_marks, run, total)
    return _canonical(total)


def _canonical(total: Array) -> Any:
    return np.float32(np.nan) if np.isnan(total[0]) else total[0]


@intrinsic
def _fma(typing_context, a, b, c):
    def generate(context, builder, signature, arguments):
        word = ir.FloatType()
        kind = ir.FunctionType(word, [word] * 3)
        return builder.call(cgutils.get_or_insert_function(builder.module, kind, "llvm.fma.f32"), arguments)

    return types.float32(types.float32, types.float32, types.float32), generate


@cache
def _chain() -> Any:
    """(a, b, length, totals): the only one of the totals goes on."""

    def chain(a, b, length, totals):
        total = totals[0]
        for k in range(length):
            total = _fma(a[k], b[k], total)
        totals[0] = total

    return compile_loop(chain)


@intrinsic
def _sum_of_products(typing_context, a, b, first, last):
    """In any order: the sum is exact, and so the compiler may choose one."""

    def generate(context, builder, signature, arguments):
        numbers = [
            context.make_array(kind)(context, builder, value).data
            for kind, value in ((a, arguments[0]), (b, arguments[1]))
        ]
        total = cgutils.alloca_once_value(builder, ir.Constant(ir.DoubleType(), 0.0))
        with cgutils.for_range_slice(builder, *arguments[2:], ir.IntType(64)(1), ir.IntType(64)) as (k, _):
            x, y = (builder.load(builder.gep(pointer, [k])) for pointer in numbers)
            product = builder.fmul(x, y)
            builder.store(builder.fadd(builder.load(total), product, flags=("reassoc",)), total)
        return builder.load(total)

    return types.float64(a, b, types.int64, types.int64), generate


@cache
def _blocks() -> Any:
    """(a, low, b, scales of a, those of b, marks, run, totals): the only total goes on."""

    def blocks(a, low, b, scales_a, scales_b, marks, run, totals):
        total = totals[0]
        for block in range(marks.size):
            first, last = block * run, (block + 1) * run
            exact = _sum_of_products(a, b, first, last)
            if marks[block]:
                high, rest = exact, _sum_of_products(low, b, first, last)
                exact = high + rest
                # To odd: rounding to float32 is then as if of the exact sum.
                part = exact - high
                error = (high - (exact - part)) + (rest - part)
                if error != 0 and math.isfinite(exact) and np.float64(exact).view(np.int64) & 1 == 0:
                    exact = np.nextafter(exact, np.inf if error > 0 else -np.inf)
            total += np.float32(exact * (scales_a[block] * scales_b[block]))
        totals[0] = total

    return compile_loop(blocks)
