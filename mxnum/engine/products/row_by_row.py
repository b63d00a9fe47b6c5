"""Products without tiles: sequential sums for two vectors, and sums by blocks for two matrices.

If float64 cannot hold the sum of a block exactly, each element of one operand is split into two
parts, and the products of each part are summed separately.
"""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic, register_jitable

from mxnum.engine.machine.jit import compile_loop
from mxnum.engine.machine.workers import bounds, run_in_threads, worth
from mxnum.memory.dtypes import Array

#: Threads save time only if each thread computes at least this many products.
PRODUCTS_PER_THREAD = 1 << 18


@compile_loop
def in_sequence(a, b, out):
    """Compute acc = fma(a, b, acc) in index order for two vectors.

    `out` has a single element: the starting value on entry, and the sum on return.
    """
    total = out[0, 0]
    for k in range(a.size):
        total = _fma(a[k], b[k], total)
    out[0, 0] = np.float32(np.nan) if np.isnan(total) else total


@intrinsic
def _fma(typing_context, a, b, c):
    def generate(context, builder, signature, arguments):
        word = ir.FloatType()
        kind = ir.FunctionType(word, [word] * 3)
        return builder.call(cgutils.get_or_insert_function(builder.module, kind, "llvm.fma.f32"), arguments)

    return types.float32(types.float32, types.float32, types.float32), generate


def by_blocks(
    a: Array, b: Array, scales_a: Array, scales_b: Array, run: int, step: float | None, out: Array, threads: int | None
) -> None:
    """Add one term for each block to `out`, in block order.

    The term of a block is the exact sum of its products, times both scales, rounded once to
    float32. If float64 cannot hold the exact sum, the caller passes `step`, and each number of `a`
    is split into a multiple of `step` and a remainder. float64 holds the sum of the products of
    each part exactly. `out` holds the starting values of the sums.
    """
    a, b = (_in_blocks(x, run) for x in (a, b))
    high = low = a
    if step is not None:
        with np.errstate(invalid="ignore"):
            high = np.trunc(a / np.float32(step)) * np.float32(step)
            low = np.where(np.isfinite(a), a - high, np.float32(0))

    def work(part: tuple[int, int]) -> None:
        some = slice(*part)
        _blocks(a[some], high[some], low[some], b, scales_a[some], scales_b, step is not None, out[some])

    workers = worth(out.size * a[0].size, PRODUCTS_PER_THREAD, threads)
    run_in_threads(work, list(pairwise(bounds(len(a), min(len(a), workers)))))


def _in_blocks(x: Array, run: int) -> Array:
    """Return the rows of `x`, cut into blocks. The last block of each row is padded with zeros."""
    rest = -x.shape[1] % run
    return (np.pad(x, ((0, 0), (0, rest))) if rest else x).reshape(len(x), -1, run)


@compile_loop
def _blocks(a, high, low, b, scales_a, scales_b, is_split, out):
    for i in range(out.shape[0]):
        for j in range(out.shape[1]):
            total = out[i, j]
            for block in range(scales_a.shape[1]):
                exact = np.float64(0)
                if is_split:
                    exact = _rounded_to_odd(_sum(high[i, block], b[j, block]), _sum(low[i, block], b[j, block]))
                # One part of a split element may be 0. If `b` holds an infinity there, the sum of
                # the parts is NaN although the exact sum may be infinite. So sum whole elements.
                if not is_split or not math.isfinite(exact):
                    exact = _sum(a[i, block], b[j, block])
                total += np.float32(exact * (np.float64(scales_a[i, block]) * np.float64(scales_b[j, block])))
            out[i, j] = np.float32(np.nan) if np.isnan(total) else total


@register_jitable(fastmath={"reassoc"})
def _sum(a, b):
    """Return a dot product. The sum is exact, so the compiler may reorder its additions."""
    total = 0.0
    for k in range(a.size):
        total += np.float64(a[k]) * np.float64(b[k])
    return total


@register_jitable
def _rounded_to_odd(high, low):
    """Return high + low in float64, rounded to odd.

    The result rounds to the same float32 number as the exact sum of high and low.
    """
    total = high + low
    part = total - high
    error = (high - (total - part)) + (low - part)
    bits = np.float64(total).view(np.int64)
    is_between = (error != 0) & (bits & 1 == 0) & math.isfinite(total)
    away = (error > 0) == (total > 0)
    return np.int64(bits + np.int64(is_between) * (2 * np.int64(away) - 1)).view(np.float64)
