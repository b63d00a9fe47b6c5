"""Matrix products along the last axes of two operands, with a defined accumulation.

Float hardware computes sums by blocks and sums in sequence if the result has the same bits as the
definition. Otherwise, and for exact sums, mxnum uses integers, like the definition.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import assert_never

import numpy as np

from mxnum.engine.machine import workers
from mxnum.engine.products import by_definition, by_floats, exactness
from mxnum.engine.products.operands import Operand, ToFloat32, matrices, stack
from mxnum.memory.dtypes import Array
from mxnum.modes import Accumulate

#: A matrix product with at most this many multiplications takes no longer than the call of a loop.
SMALL = 1 << 20


def matmul(
    a: Operand,
    b: Operand,
    accumulate: Accumulate,
    out: Array,
    threads: int | None,
    to_float32: ToFloat32,
    tensor_scales: Sequence[Array] = (),
) -> None:
    """Add the matrix product of `a` and `b` to `out`, with sums over the last axis of both.

    `out` is a C-contiguous float32 array of shape (*batch, rows of a, rows of b), which holds the
    starting values of the sums. If `tensor_scales` are given, the sums are then multiplied by the
    product of all tensor scales. `tensor_scales` are float32 arrays that broadcast with `out`.
    """
    if accumulate == Accumulate.BLAS:
        with np.errstate(all="ignore"):
            start = out.copy() if out.any() else None
            np.matmul(to_float32(a, threads), to_float32(b, threads).swapaxes(-1, -2), out=out)
            if start is not None:
                out += start
        return
    if not out.size:
        return
    trusted = by_floats.HAS_FMA and workers.may_use_floats()
    a, b = a.by_rows(), b.by_rows()
    done = trusted and accumulate == Accumulate.BLOCK and _multiply_stack(a, b, out, threads)
    for result, x, y in () if done else matrices(out, a, b):
        match accumulate:
            case Accumulate.EXACT:
                by_definition.exactly(x, y, result, threads)
            case Accumulate.BLOCK:
                held = exactness.held(x, y) if trusted else None
                if held is None:
                    by_definition.by_blocks(x, y, result, threads)
                else:
                    by_floats.by_blocks(x, y, held, result, threads)
            case Accumulate.SEQUENTIAL:
                if trusted:
                    by_floats.in_sequence(x, y, result, threads, to_float32)
                else:
                    by_definition.in_sequence(to_float32(x, threads), to_float32(y, threads), result, threads)
            case _:
                assert_never(accumulate)
    if tensor_scales:
        scale = by_floats.scale if trusted else by_definition.scale
        factors = np.ones(np.broadcast_shapes((1, 1), *(x.shape for x in tensor_scales)), np.float32)
        for tensor_scale in tensor_scales:
            scale(factors, tensor_scale)
        scale(out, factors)


def add_to_rows(x: Array, row: Array) -> None:
    """Add the vector `row` to each row of the matrix `x`, in place and in float32.

    Both arrays are contiguous.
    """
    (by_floats if workers.may_use_floats() else by_definition).add_to_rows(x, row)


def _multiply_stack(a: Operand, b: Operand, out: Array, threads: int | None) -> bool:
    """Compute block sums for a stack of small matrices, and return True.

    Compute nothing and return False if an operand is a single matrix, if the matrices are large, or
    if each product has only one element. Do the same if floats might not hold the sums unless
    elements are split.
    """
    is_stack = a.array.ndim > 2 and b.array.ndim > 2 and out.shape[-1] * out.shape[-2] > 1
    if not is_stack or math.prod(out.shape[-2:]) * a.array.shape[-1] > SMALL:
        return False
    matrices_, x, y = stack(out, a, b)
    held = exactness.held(x.joined(1), y.joined(1))
    if held is None or held.step is not None:
        return False
    by_floats.by_blocks_of_stack(x, y, held, matrices_, threads)
    return True
