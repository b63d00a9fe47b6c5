"""Matrix products of two operands, with sums computed as a matrix unit computes them."""

from __future__ import annotations

import numpy as np

from mxnum.engine.machine import workers
from mxnum.engine.products import by_floats, fused_by_definition, fused_by_floats
from mxnum.engine.products.fused_operands import side
from mxnum.engine.products.operands import Operand, matrices
from mxnum.formats import ScaleFormat
from mxnum.memory.dtypes import Array, signed_bits, stored_bits
from mxnum.units.unit import MatrixUnit

#: The bit pattern of every NaN in a result: all bits but the sign are set.
_NAN = 0x7FFFFFFF


def matmul(
    a: Operand,
    b: Operand,
    scales: tuple[ScaleFormat | None, ScaleFormat | None],
    unit: MatrixUnit,
    k: int,
    out: Array,
    threads: int | None,
) -> None:
    """Compute d = a·b + c, summed over the last axis, as matrix instructions with K = `k` do.

    `out` holds c on entry and d on return. `out` is a C-contiguous array of the accumulator's type,
    with the shape (*batch, rows of a, rows of b).
    """
    if not out.size:
        return
    is_fast = workers.may_use_floats() and by_floats.HAS_FMA and fused_by_floats.serves(a, b, scales, unit)
    for result, x, y in matrices(out, a.by_rows(), b.by_rows()):
        redo = None
        if is_fast:
            special = (fused_by_floats.special_rows(each, scale) for each, scale in zip((x, y), scales, strict=True))
            redo = np.logical_or.outer(*special)
            addends = result[redo]
            fused_by_floats.multiply(x, y, scales, unit, k, result, threads)
            result[redo] = addends
            result.view(np.uint32)[np.isnan(result)] = _NAN
        if redo is None or redo.any():
            left, right = side(x, scales[0], unit, k), side(y, scales[1], unit, k)
            fused_by_definition.multiply(left, right, unit, k, result, redo, threads)


def multiply_by_factors(product: Array, left: Array | None, right: Array | None) -> None:
    """Multiply each row and each column of a float32 product by a factor, in place.

    `left` holds the factors of rows, and `right` the factors of columns. Both arrays have the axes
    of the operands, with length 1 in the last axis. If `left` or `right` is None, its factors are
    all 1.
    """
    *batch, height, width = product.shape
    one = np.ones((1, 1), np.float32)
    rows, columns = (one if x is None else x for x in (left, right))
    rows, columns = np.broadcast_to(rows, (*batch, height, 1)), np.broadcast_to(columns, (*batch, width, 1))
    if workers.may_use_floats():
        with np.errstate(all="ignore"):
            product *= rows * columns.swapaxes(-1, -2)
        product.view(np.uint32)[np.isnan(product)] = _NAN
        return
    scale = fused_by_definition.factor_loop()
    for place in np.ndindex(*batch):
        factors = (signed_bits(np.ascontiguousarray(x[place][:, 0])) for x in (rows, columns))
        scale(stored_bits(product[place]), *factors)
