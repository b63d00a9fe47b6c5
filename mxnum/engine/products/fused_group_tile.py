"""Compute a tile of fused sums on float hardware, for units whose terms are the sums of groups.

Each lane computes one fused sum at a time. The sum of a group times its two scales is exact in
float32. The scaled sum of a group is aligned by a power of two and truncated to an integer, which
is a term of the fused sum. The sum of the terms is exact in float64. The results are defined in the
default floating-point environment only.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types
from numba.extending import intrinsic

from mxnum.engine.machine.jit import compile_loop
from mxnum.engine.products.fused_tile import _F32, _F64, _I32, _I64, _LOWEST, LANES, ROWS, _Tile


@intrinsic
def _group_tile(typing_context, panels, tile, p, q, numbers):
    """Replace the addends in `tile` by fused sums of panel `p` of `a` and panel `q` of `b`.

    The docstring of `multiply` describes `panels`. Each group has a float32 scale, and the int32
    exponent of this scale.

    `numbers` holds five counts: the fused sums, the groups per fused sum, the products per group,
    the fraction bits, and the float64 bits that the result drops.
    """

    def generate(context, builder, signature, arguments):
        t = _Tile(context, builder)
        p, q = arguments[2], arguments[3]
        packed = t.array(numbers, arguments[4]).data
        sums, groups, group, fraction_bits, discarded = (builder.load(builder.gep(packed, [_I64(i)])) for i in range(5))
        kept = t.splat(builder.trunc(fraction_bits, _I32))
        mask = t.splat(builder.shl(_I64(-1), discarded))
        given = [builder.extract_value(arguments[0], i) for i in range(6)]
        left, right, scales_a, scales_b, exponents_a, exponents_b = (
            t.panel(kind, value, which) for kind, value, which in zip(panels.types, given, (p, q) * 3, strict=True)
        )
        cells = [builder.gep(t.array(tile, arguments[1]).data, [_I64(i * LANES)]) for i in range(ROWS)]

        def greatest(g: Any, most: list[Any]) -> list[Any]:
            column = t.lanes_at(exponents_b, g)
            return [t.greater(m, builder.add(x, column)) for m, x in zip(most, t.scalars(exponents_a, g), strict=True)]

        def fused_sum(index: Any, chain: list[Any]) -> list[Any]:
            first = builder.mul(index, groups)
            last = builder.add(first, groups)
            largest = t.loop(first, last, [t.all(_I32, _LOWEST)] * ROWS, greatest)
            largest = [t.greater(m, t.exponent_of(c)) for m, c in zip(largest, chain, strict=True)]
            fields = [builder.sub(builder.add(kept, t.all(_I32, 127)), m) for m in largest]
            # Limit the exponent field to 254, because 255 encodes infinity or NaN. A field exceeds
            # the limit only if every group has a scale of zero, so that all terms are zero.
            fields = [
                builder.select(builder.icmp_signed("<", x, t.all(_I32, 254)), x, t.all(_I32, 254)) for x in fields
            ]
            powers = [builder.bitcast(builder.shl(x, t.all(_I32, 23)), t.vector(_F32)) for x in fields]

            def add_group(g: Any, totals: list[Any]) -> list[Any]:
                start = builder.mul(g, group)
                stop = builder.add(start, group)
                some = t.multiply(left, right, start, stop, [t.all(_F32, 0.0)] * ROWS)
                column, added = t.lanes_at(scales_b, g), []
                for value, own, power, total in zip(some, t.scalars(scales_a, g), powers, totals, strict=True):
                    term = builder.fmul(builder.fmul(value, builder.fmul(own, column)), power)
                    term = builder.fpext(t.call("trunc", term), t.vector(_F64))
                    added.append(builder.fadd(total, term))
                return added

            aligned = [
                t.call("trunc", builder.fmul(builder.fpext(c, t.vector(_F64)), t.power(builder.sub(kept, m))))
                for c, m in zip(chain, largest, strict=True)
            ]
            totals = t.loop(first, last, aligned, add_group)
            return [t.normal(x, m, kept, mask) for x, m in zip(totals, largest, strict=True)]

        results = t.loop(_I64(0), sums, [t.load(cell, _F32) for cell in cells], fused_sum)
        for value, cell in zip(results, cells, strict=True):
            t.store(value, cell)
        return context.get_dummy_value()

    return types.void(panels, tile, types.int64, types.int64, numbers), generate


@compile_loop
def multiply(panels, numbers, out, first):
    """Replace c in `out` by d = a·b + c for all panels, from column `first` on.

    The panels are six arrays of shape (panels, length, rows or lanes): elements of a and of b,
    group scales of a and of b, and the exponents of these scales. The docstring of `_group_tile`
    describes `numbers`.
    """
    a, b = panels[0], panels[1]
    tile = np.zeros((a.shape[2], b.shape[2]), np.float32)
    for q in range(b.shape[0]):
        column = first + q * b.shape[2]
        width = min(b.shape[2], out.shape[1] - column)
        for p in range(a.shape[0]):
            row = p * a.shape[2]
            height = min(a.shape[2], out.shape[0] - row)
            for i in range(height):
                for j in range(width):
                    tile[i, j] = out[row + i, column + j]
            _group_tile(panels, tile, p, q, numbers)
            for i in range(height):
                for j in range(width):
                    out[row + i, column + j] = tile[i, j]
