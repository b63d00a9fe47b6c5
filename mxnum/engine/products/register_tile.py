"""A register-blocked matrix product in which every rounding is defined.

A tile of the result has a few rows, and its columns form a few vectors. The tile stays in registers
while the loop over the summed index runs. For any size of tile, each element of the result is
summed in the order of the summed index, as in a plain triple loop. Fused multiply-adds are explicit
calls of `llvm.fma`; the compiler is never allowed to contract other operations. The results are
defined in the default floating-point environment only.

Operands are panels: C-contiguous arrays of shape (panels, length, rows or columns of a tile),
padded with zeros. A number of a panel is a float, or a word of several integers (see `integers`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import llvmlite.binding
import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic, register_jitable

from mxnum.engine.machine.jit import compile_loop, has_feature
from mxnum.engine.products import integers

#: The summed index is cut into pieces of about this length, so that a panel of columns stays in the
#: second-level cache.
_PIECE = 1024
#: The number of panels of rows that a panel of columns is multiplied by while it is in the cache.
_SHARING = 16

_I32, _I64, _F32, _F64 = ir.IntType(32), ir.IntType(64), ir.FloatType(), ir.DoubleType()


@dataclass(frozen=True)
class Shape:
    """The number of rows and columns of a tile, and the number of lanes of a vector.

    `columns` is a multiple of `lanes`.
    """

    rows: int
    columns: int
    lanes: int


def _shape(word: str) -> Shape:
    """Return the shape of the largest tile that fits the registers of this machine.

    The registers hold all accumulators, one row of the right panel, and a vector that repeats one
    number of the left panel.
    """
    if word in integers.IN_WORD:
        return Shape(4, 64, 16) if integers.lanes() == 16 else Shape(4, 16, 8)
    if has_feature("avx512f"):  # 32 registers of 64 bytes
        return Shape(8, 32, 16) if word == "float32" else Shape(4, 16, 8)
    if has_feature("avx2"):  # 16 registers of 32 bytes
        return Shape(6, 16, 8) if word == "float32" else Shape(6, 8, 4)
    return Shape(8, 8, 4) if word == "float32" else Shape(8, 4, 2)


#: True if the processor has instructions for fused multiply-add. Only x86 processors can lack them.
#: Without such instructions, `llvm.fma` calls the C library for every number.
HAS_FMA = bool(llvmlite.binding.get_host_cpu_features().get("fma", True))

#: The shape of a tile, by the number type of the panels.
SHAPES = {word: _shape(word) for word in ("float32", "float64", *integers.IN_WORD)}


class _Builder:
    """A builder of the LLVM IR for a tile, in vectors of `shape.lanes` numbers.

    `kind` is the numpy type of the panels, and `word` is the LLVM type of their numbers.
    """

    def __init__(self, context: Any, builder: Any, kind: str) -> None:
        self.context, self.ir, self.shape, self.kind = context, builder, SHAPES[kind], kind
        self.word = {"float32": _F32, "float64": _F64}.get(kind, _I32)
        self.vectors = self.shape.columns // self.shape.lanes
        self.cells = [(i, v) for i in range(self.shape.rows) for v in range(self.vectors)]

    def vector(self, word: Any) -> Any:
        return ir.VectorType(word, self.shape.lanes)

    def array(self, kind: Any, value: Any) -> Any:
        return self.context.make_array(kind)(self.context, self.ir, value)

    def panel(self, kind: Any, value: Any, which: Any, word: Any) -> Any:
        """Return a pointer to one panel of a contiguous array of numbers of the type `word`."""
        array = self.array(kind, value)
        size = self.ir.mul(self.ir.extract_value(array.shape, 1), self.ir.extract_value(array.shape, 2))
        return self.ir.gep(self.ir.bitcast(array.data, word.as_pointer()), [self.ir.mul(which, size)])

    def at(self, pointer: Any, index: Any, step: int) -> Any:
        return self.ir.gep(pointer, [self.ir.mul(index, _I64(step))])

    def load(self, pointer: Any, word: Any) -> Any:
        """Load a vector from a pointer that is aligned for one element, not for a whole vector."""
        loaded = self.ir.load(self.ir.bitcast(pointer, self.vector(word).as_pointer()))
        loaded.align = 8 if word == _F64 else 4
        return loaded

    def store(self, value: Any, pointer: Any) -> None:
        stored = self.ir.store(value, self.ir.bitcast(pointer, value.type.as_pointer()))
        stored.align = 4

    def splat(self, scalar: Any) -> Any:
        undefined = ir.Constant(self.vector(scalar.type), ir.Undefined)
        zeros = ir.Constant(self.vector(_I32), [0] * self.shape.lanes)
        return self.ir.shuffle_vector(self.ir.insert_element(undefined, scalar, _I32(0)), undefined, zeros)

    def add_product(self, a: Any, b: Any, c: Any) -> Any:
        """Return a * b + c, rounded once.

        If each word of the panels holds several small integers, multiply the integers of two words
        pairwise, and add the sum of these products to the word in `c`.
        """
        if self.word == _I32:
            return integers.dot(self.ir, c, a, b, self.kind)
        suffix = "f32" if a.type.element == _F32 else "f64"
        kind = ir.FunctionType(a.type, [a.type] * 3)
        name = f"llvm.fma.v{self.shape.lanes}{suffix}"
        return self.ir.call(cgutils.get_or_insert_function(self.ir.module, kind, name), [a, b, c])

    def loop(self, start: Any, stop: Any, initial: list[Any], body: Any) -> list[Any]:
        """Return the final values of a loop that computes ``values = body(index, values)``.

        `index` runs from `start` to `stop` - 1. The loop body runs at least once, even if `stop` <=
        `start`.
        """
        before = self.ir.block
        head, after = self.ir.append_basic_block("loop"), self.ir.append_basic_block("after")
        self.ir.branch(head)
        self.ir.position_at_end(head)
        index = self.ir.phi(_I64)
        index.add_incoming(start, before)
        values = [self.ir.phi(x.type) for x in initial]
        for phi, x in zip(values, initial, strict=True):
            phi.add_incoming(x, before)
        results = body(index, values)
        following = self.ir.add(index, _I64(1))
        index.add_incoming(following, self.ir.block)
        for phi, x in zip(values, results, strict=True):
            phi.add_incoming(x, self.ir.block)
        self.ir.cbranch(self.ir.icmp_signed("<", following, stop), head, after)
        self.ir.position_at_end(after)
        return list(results)

    def columns(self, pointer: Any, word: Any) -> list[Any]:
        """Return the vectors that make up one row of a panel of columns, loaded from `pointer`."""
        return [self.load(self.ir.gep(pointer, [_I64(v * self.shape.lanes)]), word) for v in range(self.vectors)]

    def multiply(self, a: Any, b: Any, start: Any, stop: Any, initial: list[Any]) -> list[Any]:
        """Return, for each cell, `initial` plus the products at indices `start` to `stop` - 1.

        A cell is a vector of the tile. The loop calls `add_product` once for each cell and index.
        """

        def body(k: Any, sums: list[Any]) -> list[Any]:
            right, row = self.columns(self.at(b, k, self.shape.columns), self.word), self.at(a, k, self.shape.rows)
            left = [self.splat(self.ir.load(self.ir.gep(row, [_I64(i)]))) for i in range(self.shape.rows)]
            return [self.add_product(left[i], right[v], c) for (i, v), c in zip(self.cells, sums, strict=True)]

        return self.loop(start, stop, initial, body)

    def block_sums(self, a: Any, b: Any, start: Any, stop: Any, starts: Any) -> list[Any]:
        """Return the sums of one block as floats, for all vectors of the tile.

        For 8-bit integers, `starts` points to the initial values of the sums, one for each column.
        """
        zeros = [ir.Constant(self.vector(self.word), [0] * self.shape.lanes)] * self.vectors
        initial = zeros if self.kind != "int8" else self.columns(starts, self.word)
        if self.kind != "int8" or integers.instructions() == "vnni":
            sums = self.multiply(a, b, start, stop, [initial[v] for _, v in self.cells])
        else:
            halves = self.multiply(a, b, start, stop, [zeros[v] for _, v in self.cells])
            sums = [integers.widened(self.ir, x, initial[v]) for x, (_, v) in zip(halves, self.cells, strict=True)]
        return [self.ir.sitofp(x, self.vector(_F32)) for x in sums] if self.word == _I32 else sums


@intrinsic
def _tile(typing_context, panels, out, run, where):
    """Add the product of two panels to a tile of `out`.

    `multiply` describes `panels`. `where` is (p, q, start, stop, row, column): panel `p` of `a` is
    multiplied by panel `q` of `b`, and the tile begins at (row, column).

    Without scales, each element gets one fma for each index from `start` to `stop` - 1, in order.
    With scales, `start` and `stop` count blocks of `run` indices. Each block adds one term to each
    element: the exact sum over the block, scaled and rounded to float32 once.
    """

    a, b, scales_a, scales_b, starts = panels.types

    def generate(context, builder, signature, arguments):
        t = _Builder(context, builder, a.dtype.name)
        shape, factor = t.shape, _F64 if t.word == _F64 else _F32
        given = [builder.extract_value(arguments[0], i) for i in range(5)]
        p, q, start, stop, row, column = (builder.extract_value(arguments[3], i) for i in range(6))
        run = arguments[2]
        panel_a, panel_b = t.panel(a, given[0], p, t.word), t.panel(b, given[1], q, t.word)
        result = t.array(out, arguments[1])
        width = builder.extract_value(result.shape, 1)
        corner = builder.gep(result.data, [builder.add(builder.mul(row, width), column)])
        cells = [
            builder.gep(corner, [builder.add(builder.mul(_I64(i), width), _I64(v * shape.lanes))]) for i, v in t.cells
        ]
        if scales_a == types.none:
            sums = t.multiply(panel_a, panel_b, start, stop, [t.load(cell, _F32) for cell in cells])
            for value, cell in zip(sums, cells, strict=True):
                t.store(value, cell)
            return context.get_dummy_value()

        left, right = t.panel(scales_a, given[2], p, factor), t.panel(scales_b, given[3], q, factor)
        initial = None if starts == types.none else t.panel(starts, given[4], q, _I32)

        def block(index, _):
            first, last = builder.mul(index, run), builder.mul(builder.add(index, _I64(1)), run)
            own_start = None if initial is None else t.at(initial, index, shape.columns)
            sums = t.block_sums(panel_a, panel_b, first, last, own_start)
            powers = t.columns(t.at(right, index, shape.columns), factor)
            own = t.at(left, index, shape.rows)
            splats = [t.splat(builder.load(builder.gep(own, [_I64(i)]))) for i in range(shape.rows)]
            for (i, v), total, cell in zip(t.cells, sums, cells, strict=True):
                term = builder.fmul(total, builder.fmul(splats[i], powers[v]))
                if factor == _F64:
                    term = builder.fptrunc(term, t.vector(_F32))
                t.store(builder.fadd(t.load(cell, _F32), term), cell)
            return []

        t.loop(start, stop, [], block)
        return context.get_dummy_value()

    return types.void(panels, out, types.int64, types.UniTuple(types.int64, 6)), generate


@compile_loop
def multiply(panels, run, out, first, count):
    """Add the products of all panels to `out`, from column `first` on.

    `panels` are (a, b, scales of a, scales of b, starts). `out` is a C-contiguous float32 matrix
    that contains `count` matrices, stacked along its rows. Each of these matrices has an equal
    share of the panels of `a` and of the panels of `b`. Panels of columns may extend beyond the
    edge of `out`. Every NaN in the computed columns becomes the canonical NaN.

    `run` is the length of a block, or 1 without scales. For 8-bit integers, `starts` has panels
    with the initial values of the block sums; otherwise `starts` is None.
    """
    a, b = panels[0], panels[1]
    rows, columns = a.shape[2], b.shape[2]
    height, width = out.shape[0] // count, out.shape[1]
    panels_a, panels_b = a.shape[0] // count, b.shape[0] // count
    steps = a.shape[1] // run
    piece = max(1, _PIECE // run)
    edge = np.zeros((rows, columns), np.float32)
    last = min(width, first + panels_b * columns)
    for matrix in range(count):
        for top in range(0, panels_a, _SHARING):
            bottom = min(top + _SHARING, panels_a)
            for start in range(0, steps, piece):
                stop = min(start + piece, steps)
                for q in range(panels_b):
                    column = first + q * columns
                    for p in range(top, bottom):
                        row = matrix * height + p * rows
                        high, wide = min(rows, height - p * rows), min(columns, width - column)
                        is_whole = high == rows and wide == columns
                        if not is_whole:
                            _copy(out, row, column, edge, 0, 0, high, wide)
                        target, top_row, left = (out, row, column) if is_whole else (edge, 0, 0)
                        own_a, own_b = matrix * panels_a + p, matrix * panels_b + q
                        _tile(panels, target, run, (own_a, own_b, start, stop, top_row, left))
                        if not is_whole:
                            _copy(edge, 0, 0, out, row, column, high, wide)
    for i in range(out.shape[0]):
        line = out[i, first:last]
        for j in range(line.size):
            if line[j] != line[j]:
                line[j] = np.float32(np.nan)


@register_jitable
def _copy(source, row, column, target, to_row, to_column, rows, columns):
    """Copy a rectangle of `source` to a rectangle of `target`.

    Loops compile faster than a slice assignment: numba takes seconds to compile checks of slice
    shapes.
    """
    for i in range(rows):
        for j in range(columns):
            target[to_row + i, to_column + j] = source[row + i, column + j]
