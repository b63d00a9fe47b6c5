"""The vector instructions that add up products of small integers, and their packed operands.

All elements of a format without infinity and NaN are integer multiples of one unit. A 32-bit word
holds four elements as 8-bit integers, or two elements as 16-bit integers. One instruction
multiplies the integers of two words and adds the products to a 32-bit sum, in every lane of a
vector. A packed operand consists of panels, which are groups of rows.

The instructions for 8-bit integers require an unsigned left operand, so a bias makes the integers
of the left operand nonnegative. To cancel the bias, the sum of a block starts at -bias times the
sum of the right operand's integers.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from mxnum.engine.machine.jit import compile_loop, has_feature
from mxnum.engine.products.terms import INFINITY, meanings
from mxnum.formats import ElementFormat
from mxnum.memory.dtypes import Array

#: The number of integers in a 32-bit word, for each type of integers in a panel.
IN_WORD = {"int8": 4, "int16": 2}
#: The rectangle that `move` packs in registers: the number of rows, and of codes in each row.
_ROWS, _CODES = 4, 16
_RECTANGLE = _ROWS * _CODES
#: The largest number of codes whose table of integers fits in registers.
_TABLE = 64

_I8, _I32, _I64 = (ir.IntType(bits) for bits in (8, 32, 64))


@cache
def lanes() -> int:
    """Return the number of 32-bit sums in a vector, or 0 if the machine lacks the instructions."""
    return 16 if has_feature("avx512bw") else 8 if has_feature("avx2") else 0


@cache
def instructions() -> str:
    """Return which instructions multiply and add small integers: "vnni", "avx2", or "" for none.

    VNNI multiplies integers and adds the products to a sum in one instruction.
    """
    if not lanes():
        return ""
    has_vnni = has_feature("avx512vnni") and (lanes() == 16 or has_feature("avx512vl"))
    return "vnni" if has_vnni or (has_feature("avxvnni") and lanes() == 8) else "avx2"


#: The result of `lanes`, as a constant for compiled loops.
HOST_LANES = lanes()


@dataclass(frozen=True, eq=False)
class Integers:
    """The elements of a format as integers."""

    #: The value of each code as an int16, in units of 2**unit.
    values: Array
    unit: int

    @property
    def bias(self) -> int:
        """The least number that makes every element nonnegative if it is added to the elements."""
        return -int(self.values.min())


@cache
def integers_of(element: ElementFormat) -> Integers | None:
    """Return the elements of a format as integers of at most 16 bits.

    Returns None for formats that the loops of this module do not support.
    """
    term, unit = meanings(element), element.emin - element.mantissa_bits
    largest = np.ldexp(term.significands.astype(np.float64), term.exponents - unit)
    is_decoded = 1 << element.bits <= _TABLE or (element.integer and element.bits == 8)
    # For units from 2**-16 to 1, float32 represents unit * scale even for the smallest scale of
    # E8M0, bfloat16 or float16.
    if not is_decoded or not -16 <= unit <= 0 or (term.classes >= INFINITY).any():
        return None
    if np.abs(largest).max() >= 1 << 15:
        return None
    return Integers(largest.astype(np.int16), unit)


def word_for(a: ElementFormat, b: ElementFormat, run: int, given: str) -> str | None:
    """Return the integer type that gives exact sums of `run` products: "int8", "int16" or None.

    `given` is the result of `instructions`. The caller ensures that no sum of `run` products
    exceeds 2**24 units, so 32 bits hold every sum. Without VNNI, a sum of 8-bit products is kept as
    two partial sums, each of which must fit in 16 bits.
    """
    x, y = integers_of(a), integers_of(b)
    if not given or x is None or y is None:
        return None
    is_narrow = all(v.values.min() >= -128 and v.values.max() <= 127 for v in (x, y))
    if is_narrow and run % IN_WORD["int8"] == 0 and (given == "vnni" or x.bias * y.bias * run < 1 << 15):
        return "int8"
    return "int16" if run % IN_WORD["int16"] == 0 else None


def new_panels(rows: int, length: int, width: int, word: str) -> Array:
    """Return uninitialized panels of `width` rows each, for `rows` rows of `length` integers."""
    return np.empty((-(-rows // width), length // IN_WORD[word], width, IN_WORD[word]), word)


def pack(codes: Array, element: Integers, panels: Array, bias: int, starts: Array | None) -> None:
    """Store rows of codes in panels as integers, padded with zeros.

    If `starts` is None, the function adds `bias` to 8-bit integers. Otherwise, the function writes
    to `starts`, for each block, the sum of the block's integers times `-bias`. `starts` is None for
    the left operand, and for 16-bit integers.
    """
    is_turned = codes.strides[0] < codes.strides[1]
    memory = np.ascontiguousarray(codes.T if is_turned else codes)
    _pack(memory, is_turned, *_tables(element, bias if starts is None else 0, panels.dtype), panels)
    if starts is not None:
        _sum_blocks(panels, bias, starts)


@cache
def _tables(element: Integers, bias: int, kind: np.dtype[Any]) -> tuple[Array, Array]:
    """Return two tables indexed by code: the integers plus `bias`, and the bytes of these sums.

    The table of bytes has a row of low bytes and a row of high bytes.
    """
    values = element.values + np.int16(bias if kind == np.int8 else 0)
    halves = np.zeros((2, _TABLE), np.int8)
    if values.size <= _TABLE:
        halves[:, : values.size] = values.astype(np.int8), (values >> 8).astype(np.int8)
    return values.astype(kind), halves


@compile_loop
def _pack(memory, is_turned, table, halves, panels):
    """Store the rows of `memory`, or its columns if `is_turned`, in panels.

    The loop packs rectangles of 4 rows by 16 codes in registers, and the remaining codes singly.
    """
    count, words, width, size = panels.shape
    rows, length = (memory.shape[1], memory.shape[0]) if is_turned else memory.shape
    for p in range(count):
        first, panel = p * width, panels[p]
        high = min(width, rows - first)
        whole_rows, whole = high // _ROWS * _ROWS, length // _CODES * _CODES
        # The inner loops follow the rows of `memory`, so that all 64 codes of a cache line are read
        # while the line is in the cache.
        if is_turned:
            for k in range(0, whole, _CODES):
                for r in range(0, whole_rows, _ROWS):
                    _turn(memory, table, halves, panel, (k, first + r, k // size, r))
        else:
            for r in range(0, whole_rows, _ROWS):
                for k in range(0, whole, _CODES):
                    _copy(memory, table, halves, panel, (first + r, k, k // size, r))
        for word in range(words):
            for r in range(0 if word * size >= whole else whole_rows, width):
                for t in range(size):
                    k = word * size + t
                    code = 0
                    if r < high and k < length:
                        code = memory[k, first + r] if is_turned else memory[first + r, k]
                    panel[word, r, t] = table[code]


def _moving(turning: bool) -> Any:
    """Return `move(memory, table, halves, panel, where)`, which packs 4 rows of 16 codes.

    `where` is (i, j, word, row). `move` reads the codes that begin at `memory[i, j]`, and writes
    the words that begin at `panel[word, row]`. If `turning` is True, `move` packs columns of
    `memory` instead of rows.
    """

    @intrinsic
    def move(typing_context, memory, table, halves, panel, where):
        def generate(context, builder, signature, arguments):
            source, values, parts, target = (
                context.make_array(signature.args[k])(context, builder, arguments[k]) for k in range(4)
            )
            i, j, word, row = (builder.extract_value(arguments[4], k) for k in range(4))
            size = panel.dtype.bitwidth // 8

            def pointer(data, line, column, pitch, kind):
                at = builder.gep(data, [builder.add(builder.mul(line, pitch), column)])
                return builder.bitcast(at, kind.as_pointer())

            line, pitch = _bytes(_ROWS if turning else _CODES), builder.extract_value(source.shape, 1)
            indices = [builder.add(i, _I64(k)) for k in range(_RECTANGLE // line.count)]
            lines = [_loaded(builder, pointer(source.data, k, j, pitch, line)) for k in indices]
            while len(lines) > 1:
                whole = range(2 * lines[0].type.count)
                lines = [_chosen(builder, lines[k], lines[k + 1], whole) for k in range(0, len(lines), 2)]
            # In a panel, the codes of a word are adjacent. The words of all rows at the same index
            # are adjacent too.
            order = [(r, w + t) for w in range(0, _CODES, 4) for r in range(_ROWS) for t in range(4)]
            codes = _chosen(
                builder, lines[0], lines[0], [k * _ROWS + r if turning else r * _CODES + k for r, k in order]
            )
            low, high = (_looked_up(builder, codes, builder.gep(parts.data, [_I64(k * _TABLE)])) for k in (0, 1))
            # Table entries include the bias. Without a table, the 8-bit code is the integer itself,
            # and the bias is added here. Code 0 has the value 0, so the table entry of code 0 is
            # the bias.
            shift = _splat(builder, builder.trunc(builder.load(values.data), _I8), _RECTANGLE)
            has_table = builder.icmp_signed("<=", builder.extract_value(values.shape, 0), _I64(_TABLE))
            low = builder.select(has_table, low, builder.add(codes, shift))
            high = builder.select(has_table, high, builder.ashr(codes, ir.Constant(codes.type, [7] * _RECTANGLE)))
            data, width = builder.bitcast(target.data, _I32.as_pointer()), builder.extract_value(target.shape, 1)
            for n in range(_CODES * size // 4):
                first = n // size * 16 + n % size * 2
                places = [first + r * 4 + t for r in range(_ROWS) for t in range(4 // size)]
                both = [k + half * _RECTANGLE for k in places for half in range(size)]
                at = pointer(data, builder.add(word, _I64(n)), row, width, _bytes(len(both)))
                builder.store(_chosen(builder, low, high, both), at, align=4)
            return context.get_dummy_value()

        return types.void(memory, table, halves, panel, types.UniTuple(types.int64, 4)), generate

    return move


_copy, _turn = _moving(False), _moving(True)


def _looked_up(builder: Any, codes: Any, table: Any) -> Any:
    """Return IR that looks up each of `codes` in a table of 64 bytes."""
    count = 4 * lanes()
    name = "llvm.x86.avx512.pshuf.b.512" if lanes() == 16 else "llvm.x86.avx2.pshuf.b"
    parts = []
    for start in range(0, _RECTANGLE, count):
        part = _chosen(builder, codes, codes, range(start, start + count))
        found = ir.Constant(part.type, [0] * count)
        for first in range(0, _TABLE, 16):
            pointer = builder.bitcast(builder.gep(table, [_I64(first)]), _bytes(16).as_pointer())
            own = _loaded(builder, pointer)
            own = _chosen(builder, own, own, [k % 16 for k in range(count)])
            # The shuffle returns 0 for an index with bit 7 set. The addition sets bit 7 unless
            # the code is between `first` and `first` + 15.
            index = builder.xor(part, ir.Constant(part.type, [first] * count))
            index = builder.add(index, ir.Constant(part.type, [0x70] * count))
            found = builder.or_(found, _call(builder, name, part.type, own, index))
        parts.append(found)
    return parts[0] if len(parts) == 1 else _chosen(builder, parts[0], parts[1], range(_RECTANGLE))


@compile_loop
def _sum_blocks(panels, bias, starts):
    """Store the sum of the integers of each block and row, times `-bias`, in `starts`.

    The panels hold 8-bit integers.
    """
    count, words, width, _ = panels.shape
    blocks = starts.shape[1]
    run = words // max(1, blocks)
    for p in range(count):
        for block in range(blocks):
            line, place = starts[p, block], (p * blocks + block) * width
            line[:] = 0
            for word in range(block * run, (block + 1) * run):
                for r in range(0, width, HOST_LANES):
                    _add_words(panels, (p * words + word) * width + r, bias, starts, place + r)
            for r in range(width):
                line[r] = -line[r]


@intrinsic
def _add_words(typing_context, panels, index, factor, starts, place):
    """Add `factor` times the sum of each word's integers to a vector of `starts`.

    The words begin at word `index` of the flat `panels`, and the vector begins at element `place`
    of the flat `starts`.
    """

    def generate(context, builder, signature, arguments):
        def pointer(which, at):
            data = context.make_array(signature.args[which])(context, builder, arguments[which]).data
            vector = ir.VectorType(_I32, lanes()).as_pointer()
            return builder.bitcast(builder.gep(builder.bitcast(data, _I32.as_pointer()), [arguments[at]]), vector)

        target = pointer(3, 4)
        total, right = _loaded(builder, target, 4), _loaded(builder, pointer(0, 1), 4)
        factors = builder.bitcast(_splat(builder, builder.trunc(arguments[2], _I8), 4 * lanes()), right.type)
        zero = total if instructions() == "vnni" else ir.Constant(total.type, [0] * lanes())
        builder.store(widened(builder, dot(builder, zero, factors, right, "int8"), total), target, align=4)
        return context.get_dummy_value()

    index_type = types.int64
    return types.void(panels, index_type, index_type, starts, index_type), generate


def _bytes(count: int) -> Any:
    return ir.VectorType(_I8, count)


def _loaded(builder: Any, pointer: Any, align: int = 1) -> Any:
    return builder.load(pointer, align=align)


def _splat(builder: Any, scalar: Any, count: int) -> Any:
    vector = builder.insert_element(ir.Constant(ir.VectorType(scalar.type, count), ir.Undefined), scalar, _I32(0))
    return _chosen(builder, vector, vector, [0] * count)


def _chosen(builder: Any, a: Any, b: Any, which: Any) -> Any:
    """Return IR that joins the vectors `a` and `b` and picks elements by the indices `which`."""
    return builder.shuffle_vector(a, b, ir.Constant(ir.VectorType(_I32, len(which)), list(which)))


def dot(builder: Any, total: Any, left: Any, right: Any, word: str) -> Any:
    """Return IR that adds the products of the integers of two vectors to the sums `total`.

    Without VNNI, each sum of 8-bit products is kept as two 16-bit partial sums, which `widened`
    adds.
    """
    if instructions() == "vnni":
        name = f"llvm.x86.avx512.vpdp{'busd' if word == 'int8' else 'wssd'}.{32 * lanes()}"
        return _call(builder, name, total.type, total, left, right)
    if word == "int16":
        return builder.add(total, _multiplied_pairs(builder, left, right))
    name = "llvm.x86.avx512.pmaddubs.w.512" if lanes() == 16 else "llvm.x86.avx2.pmadd.ub.sw"
    bytes_, halves = (ir.VectorType(ir.IntType(bits), lanes() * 32 // bits) for bits in (8, 16))
    products = _call(builder, name, halves, *(builder.bitcast(x, bytes_) for x in (left, right)))
    return builder.bitcast(builder.add(builder.bitcast(total, halves), products), total.type)


def widened(builder: Any, total: Any, start: Any) -> Any:
    """Return IR for the 32-bit sums of the products over a block of 8-bit integers.

    `total` is the last result of `dot` for the block, and `start` is the initial value of the sums.
    """
    if instructions() == "vnni":
        return total
    ones = ir.Constant(total.type, [1 << 16 | 1] * lanes())
    return builder.add(_multiplied_pairs(builder, total, ones), start)


def _multiplied_pairs(builder: Any, left: Any, right: Any) -> Any:
    """Return IR for the sum of two products of 16-bit integers in every lane."""
    name = "llvm.x86.avx512.pmaddw.d.512" if lanes() == 16 else "llvm.x86.avx2.pmadd.wd"
    halves = ir.VectorType(ir.IntType(16), 2 * lanes())
    return _call(builder, name, left.type, *(builder.bitcast(x, halves) for x in (left, right)))


def _call(builder: Any, name: str, result: Any, *arguments: Any) -> Any:
    kind = ir.FunctionType(result, [x.type for x in arguments])
    return builder.call(cgutils.get_or_insert_function(builder.module, kind, name), arguments)
