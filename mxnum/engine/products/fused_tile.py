"""A tile of fused sums on float hardware: a few rows by one vector of columns.

Each lane computes one fused sum at a time, in the steps of the definition:

1. Find the greatest exponent of the products and of the addend.

2. Multiply each product of significands (an integer that float32 holds) by the power of two that
   aligns the product. Truncate each aligned product to a 32-bit integer, and add the integers.

3. Add the aligned addend in float64. Truncate the sum, by clearing its low bits.

The results are defined in the default floating-point environment only.
"""

from __future__ import annotations

from typing import Any

import llvmlite.binding
import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from mxnum.engine.machine.jit import compile_loop
from mxnum.engine.products.register_tile import Shape, _Builder

_I1, _I32, _I64, _F32, _F64 = ir.IntType(1), ir.IntType(32), ir.IntType(64), ir.FloatType(), ir.DoubleType()
LANES = 16
#: The number of rows of a tile, chosen so that the sums and exponents of all rows stay in
#: registers.
ROWS = 8 if llvmlite.binding.get_host_cpu_features().get("avx512f") else 4
#: The greatest number of fraction bits with which sums of aligned products fit in 32-bit integers.
MOST_BITS = 26
#: The initial value in the search for the greatest exponent, which is less than the exponent of any
#: product.
_LOWEST = -(1 << 20)
#: The exponent of a zero addend, and of a sum whose terms are all zero. This exponent is less than
#: that of any nonzero term. Yet float64 can represent the powers of two that are computed from it.
LEAST = -600


class _Tile(_Builder):
    """Builds IR for a tile of fused sums, with vectors of 16 lanes (numbers)."""

    def __init__(self, context: Any, builder: Any) -> None:
        super().__init__(context, builder, "float32")
        self.shape, self.vectors = Shape(ROWS, LANES, LANES), 1
        self.cells = [(i, 0) for i in range(ROWS)]

    def panel(self, kind: Any, value: Any, which: Any, word: Any = None) -> Any:
        """Return a pointer to one panel of a contiguous array.

        The pointer's element type is that of the array.
        """
        return super().panel(kind, value, which, self.context.get_value_type(kind.dtype))

    def all(self, word: Any, number: Any) -> Any:
        """Return a constant vector with `number` in every lane."""
        return ir.Constant(self.vector(word), [number] * LANES)

    def call(self, name: str, *vectors: Any) -> Any:
        kind = vectors[0].type
        suffix = {_F64: "f64", _F32: "f32", _I32: "i32"}[kind.element]
        function = ir.FunctionType(kind, [kind] * len(vectors))
        full = f"llvm.{name}.v{LANES}{suffix}"
        return self.ir.call(cgutils.get_or_insert_function(self.ir.module, function, full), vectors)

    def greater(self, a: Any, b: Any) -> Any:
        return self.ir.select(self.ir.icmp_signed(">", a, b), a, b)

    def power(self, exponents: Any) -> Any:
        """Return IR for 2**exponents in float64, for int32 exponents from -1022 to 1023."""
        wide = self.ir.sext(self.ir.add(exponents, self.all(_I32, 1023)), self.vector(_I64))
        return self.ir.bitcast(self.ir.shl(wide, self.all(_I64, 52)), self.vector(_F64))

    def scalars(self, panel: Any, index: Any) -> list[Any]:
        """Return one vector for each row of a panel: the row's number at `index` in every lane."""
        row = self.at(panel, index, ROWS)
        return [self.splat(self.ir.load(self.ir.gep(row, [_I64(i)]))) for i in range(ROWS)]

    def lanes_at(self, panel: Any, index: Any) -> Any:
        pointer = self.at(panel, index, LANES)
        return self.load(pointer, pointer.type.pointee)

    def exponent_of(self, c: Any) -> Any:
        """Return the exponents of float32 numbers.

        A subnormal number has the exponent -126, and a zero has the exponent `LEAST`.
        """
        field = self.ir.and_(
            self.ir.lshr(self.ir.bitcast(c, self.vector(_I32)), self.all(_I32, 23)), self.all(_I32, 255)
        )
        exponent = self.ir.sub(self.greater(field, self.all(_I32, 1)), self.all(_I32, 127))
        is_zero = self.ir.fcmp_ordered("==", c, self.all(_F32, 0.0))
        return self.ir.select(is_zero, self.all(_I32, LEAST), exponent)

    def normal(self, total: Any, largest: Any, fraction_bits: Any, mask: Any) -> Any:
        """Return total * 2**(largest - fraction_bits) as float32, truncated toward zero.

        `mask` clears the bits of a float64 number that the result does not keep. The caller ensures
        that subnormal results need no rounding.
        """
        b = self.ir
        value = b.fmul(total, self.power(b.sub(largest, fraction_bits)))
        kept = b.bitcast(b.and_(b.bitcast(value, self.vector(_I64)), mask), self.vector(_F64))
        return b.fadd(b.fptrunc(kept, self.vector(_F32)), self.all(_F32, 0.0))  # -0 becomes +0.

    def rounded(self, total: Any, largest: Any, fraction_bits: Any, mask: Any, quantum: Any) -> Any:
        """Return total * 2**(largest - fraction_bits) as float32, truncated toward zero.

        `mask` clears the bits of a float64 number that the result does not keep. Subnormal results
        are truncated to multiples of 2**-quantum.
        """
        b = self.ir
        value = b.fmul(total, self.power(b.sub(largest, fraction_bits)))
        kept = b.bitcast(b.and_(b.bitcast(value, self.vector(_I64)), mask), self.vector(_F64))
        steps = self.call("trunc", b.fmul(value, self.power(quantum)))
        small = b.fmul(steps, self.power(b.sub(self.all(_I32, 0), quantum)))
        is_small = b.fcmp_ordered("<", self.call("fabs", value), self.all(_F64, 2.0**-126))
        result = b.fptrunc(b.select(is_small, small, kept), self.vector(_F32))
        return b.fadd(result, self.all(_F32, 0.0))  # -0 becomes +0.


@intrinsic
def _fused_tile(typing_context, panels, tile, p, q, numbers):
    """Replace the addends in `tile` by fused sums of panel `p` of `a` and panel `q` of `b`.

    The docstring of `multiply` describes `panels`. The arrays of scales hold an int32 exponent for
    each fused sum, and the arrays of factors hold a float32 factor for each promotion (see
    `MatrixUnit`). Scales and factors may be None.

    `numbers[0]` is the number of fused sums, `numbers[1]` the number of terms per fused sum, and
    `numbers[2]` the number of terms per 32-bit integer sum. `numbers[3]` is the number of fraction
    bits of a sum. `numbers[4]` is `numbers[3]` minus the number of fraction bits of a product.
    `numbers[5]` is the number of low bits of the float64 sum that are cleared. `numbers[6]` is the
    `quantum` of `_Tile.rounded`. `numbers[7]` is the number of fused sums per promotion.
    `numbers[8]` is 0 if the addend is a term of the first fused sum. Otherwise, the addend is added
    to the result of each group of `numbers[8]` fused sums.
    """
    sa, sb, ea, eb, scale_a, scale_b, factor_a, factor_b = panels.types

    def generate(context, builder, signature, arguments):
        t = _Tile(context, builder)
        values = [builder.extract_value(arguments[0], i) for i in range(8)]
        p, q = arguments[2], arguments[3]
        packed = t.array(numbers, arguments[4]).data
        given = [builder.load(builder.gep(packed, [_I64(i)])) for i in range(9)]
        sums, terms, at_once, kept, lifted, discarded, quantum, promotion, together = given

        def splat32(value: Any) -> Any:
            return t.splat(builder.trunc(value, _I32))

        kept, lifted, quantum = splat32(kept), splat32(lifted), splat32(quantum)
        mask = t.splat(builder.shl(_I64(-1), discarded))
        is_after = builder.icmp_signed("!=", together, _I64(0))
        after = t.splat(is_after)
        a, b, exponents_a, exponents_b = (
            t.panel(kind, values[i], which) for i, (kind, which) in enumerate(((sa, p), (sb, q), (ea, p), (eb, q)))
        )
        cells = [builder.gep(t.array(tile, arguments[1]).data, [_I64(i * LANES)]) for i in range(ROWS)]
        zero = t.all(_F32, 0.0)

        def exponents(k: Any) -> list[Any]:
            right = t.lanes_at(exponents_b, k)
            return [builder.add(left, right) for left in t.scalars(exponents_a, k)]

        def fused_sum(index: Any, chain: list[Any]) -> list[Any]:
            first = builder.mul(index, terms)
            last = builder.add(first, terms)
            largest = t.loop(
                first, last, [t.all(_I32, _LOWEST)] * ROWS,
                lambda k, most: [t.greater(m, e) for m, e in zip(most, exponents(k), strict=True)],
            )  # fmt: skip
            if scale_a != types.none:
                own = t.scalars(t.panel(scale_a, values[4], p), index)
                right = t.lanes_at(t.panel(scale_b, values[5], q), index)
                scales = [builder.add(x, right) for x in own]
                largest = [builder.add(m, s) for m, s in zip(largest, scales, strict=True)]
            largest = [t.greater(m, t.exponent_of(c)) for m, c in zip(largest, chain, strict=True)]
            base = [builder.sub(builder.add(lifted, t.all(_I32, 127)), m) for m in largest]
            if scale_a != types.none:
                base = [builder.add(x, s) for x, s in zip(base, scales, strict=True)]

            def add_terms(k: Any, totals: list[Any]) -> list[Any]:
                right, added = t.lanes_at(b, k), []
                for left, x, e, total in zip(t.scalars(a, k), base, exponents(k), totals, strict=True):
                    field = t.greater(builder.add(x, e), t.all(_I32, 0))
                    factor = builder.bitcast(builder.shl(field, t.all(_I32, 23)), t.vector(_F32))
                    aligned = builder.fmul(builder.fmul(left, right), factor)
                    added.append(builder.add(total, builder.fptosi(aligned, t.vector(_I32))))
                return added

            def integer_sum(part: Any, totals: list[Any]) -> list[Any]:
                start = builder.add(first, builder.mul(part, at_once))
                stop = builder.add(start, at_once)
                stop = builder.select(builder.icmp_signed("<", stop, last), stop, last)
                some = t.loop(start, stop, [t.all(_I32, 0)] * ROWS, add_terms)
                return [
                    builder.fadd(total, builder.sitofp(x, t.vector(_F64)))
                    for total, x in zip(totals, some, strict=True)
                ]

            aligned = [
                t.call("trunc", builder.fmul(builder.fpext(c, t.vector(_F64)), t.power(builder.sub(kept, m))))
                for c, m in zip(chain, largest, strict=True)
            ]
            parts = builder.sdiv(builder.sub(builder.add(terms, at_once), _I64(1)), at_once)
            totals = t.loop(_I64(0), parts, aligned, integer_sum)
            return [t.rounded(x, m, kept, mask, quantum) for x, m in zip(totals, largest, strict=True)]

        def chained(first: Any, last: Any, start: list[Any]) -> list[Any]:
            """Compute a chain of fused sums whose first addend is `start`."""
            length = builder.select(is_after, together, builder.sub(last, first))

            def instruction(index: Any, chain: list[Any]) -> list[Any]:
                begin = builder.add(first, builder.mul(index, length))
                own = [builder.select(after, zero, c) for c in chain]
                results = t.loop(begin, builder.add(begin, length), own, fused_sum)
                return [builder.select(after, builder.fadd(d, c), d) for d, c in zip(results, chain, strict=True)]

            return t.loop(_I64(0), builder.sdiv(builder.sub(last, first), length), start, instruction)

        start = [t.load(cell, _F32) for cell in cells]
        if factor_a == types.none:
            results = chained(_I64(0), sums, start)
        else:

            def segment(index: Any, totals: list[Any]) -> list[Any]:
                first = builder.mul(index, promotion)
                last = builder.add(first, promotion)
                last = builder.select(builder.icmp_signed("<", last, sums), last, sums)
                chain = chained(first, last, [zero] * ROWS)
                own = t.scalars(t.panel(factor_a, values[6], p), index)
                right = t.lanes_at(t.panel(factor_b, values[7], q), index)
                return [
                    t.add_product(builder.fmul(x, right), c, total)
                    for x, c, total in zip(own, chain, totals, strict=True)
                ]

            count = builder.sdiv(builder.sub(builder.add(sums, promotion), _I64(1)), promotion)
            results = t.loop(_I64(0), count, start, segment)
        for value, cell in zip(results, cells, strict=True):
            t.store(value, cell)
        return context.get_dummy_value()

    return types.void(panels, tile, types.int64, types.int64, numbers), generate


@compile_loop
def multiply(panels, numbers, out, first):
    """Compute d = a·b + c for all panels; d replaces c in `out`, from column `first` on.

    `panels` has four pairs of arrays, for a and b: significands of elements, exponents of elements,
    exponents of scales, and factors. Each array has the shape (panels, length, rows or lanes).
    `_fused_tile` describes `numbers`.
    """
    sa, sb = panels[0], panels[1]
    tile = np.zeros((sa.shape[2], sb.shape[2]), np.float32)
    for q in range(sb.shape[0]):
        column = first + q * sb.shape[2]
        width = min(sb.shape[2], out.shape[1] - column)
        for p in range(sa.shape[0]):
            row = p * sa.shape[2]
            height = min(sa.shape[2], out.shape[0] - row)
            for i in range(height):
                for j in range(width):
                    tile[i, j] = out[row + i, column + j]
            _fused_tile(panels, tile, p, q, numbers)
            for i in range(height):
                for j in range(width):
                    out[row + i, column + j] = tile[i, j]


@compile_loop
def pack(memory, is_turned, table, padding, panels):
    """Store `table[code]` in panels for each code of a matrix, and pad the panels with `padding`.

    `memory` holds the rows of the matrix, or its columns if `is_turned`.
    """
    count, _, width = panels.shape
    rows, length = (memory.shape[1], memory.shape[0]) if is_turned else memory.shape
    for p in range(count):
        panel, present = panels[p], min(width, rows - p * width)
        for start in range(0, length, 64):
            for r in range(present):
                for k in range(start, min(start + 64, length)):
                    panel[k, r] = table[memory[k, p * width + r] if is_turned else memory[p * width + r, k]]
        panel[:, present:] = padding
        panel[length:] = padding
