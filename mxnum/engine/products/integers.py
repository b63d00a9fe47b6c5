"""Products of small integers: the instructions that add them, and the panels that these read.

An element without infinity and NaN is an integer number of units. A word of 32 bits holds four such
integers of 8 bits, or two of 16 bits. One instruction multiplies the integers of two words and adds
the products to a sum of 32 bits, in every lane of a vector. The instructions for 8 bits take one
operand without signs. So the left integers are biased, and the sum of a block starts at minus the
bias times the sum of the right integers.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from llvmlite import ir
from numba.core import cgutils

from mxnum.engine.machine.jit import compile_loop, has_feature
from mxnum.engine.products.terms import INFINITY, meanings
from mxnum.formats import ElementFormat
from mxnum.memory.dtypes import Array

#: The number of integers in a word, by the type of panels.
IN_WORD = {"int8": 4, "int16": 2}
#: The number of rows that `_pack` reads at a time, so that their lines stay in the first-level
#: cache.
_ROWS = 8


@cache
def lanes() -> int:
    """Return how many sums a vector of this machine has, or 0 without instructions for integers."""
    return 16 if has_feature("avx512bw") else 8 if has_feature("avx2") else 0


@cache
def instructions() -> str:
    """Return the instructions for integers of this machine: "vnni", "avx2" or none ("").

    VNNI multiplies integers and adds the products to a sum in one instruction.
    """
    if not lanes():
        return ""
    has_vnni = has_feature("avx512vnni") and (lanes() == 16 or has_feature("avx512vl"))
    return "vnni" if has_vnni or has_feature("avxvnni") and lanes() == 8 else "avx2"


@dataclass(frozen=True, eq=False)
class Integers:
    """The elements of a format as integers."""

    #: The elements in units of 2**unit, by code, as int16.
    values: Array
    unit: int

    @property
    def bias(self) -> int:
        """The number that makes all elements positive or zero when it is added."""
        return -int(self.values.min())


@cache
def integers_of(element: ElementFormat) -> Integers | None:
    """Return the elements of a format as integers of at most 16 bits, or None."""
    term, unit = meanings(element), element.emin - element.mantissa_bits
    largest = np.ldexp(term.significands.astype(np.float64), term.exponents - unit)
    if (term.classes >= INFINITY).any() or np.abs(largest).max() >= 1 << 15:
        return None
    return Integers(largest.astype(np.int16), unit)


def word_for(a: ElementFormat, b: ElementFormat, run: int, given: str) -> str | None:
    """Return the type of panels whose products `given` instructions add exactly, or None.

    The caller knows that no sum of `run` products exceeds 2**24 units, so that 32 bits hold it.
    Without VNNI, 16 bits have to hold half of a sum of 8-bit integers.
    """
    x, y = integers_of(a), integers_of(b)
    if not given or x is None or y is None:
        return None
    is_narrow = all(-128 <= v.values.min() and v.values.max() <= 127 for v in (x, y))
    if is_narrow and run % IN_WORD["int8"] == 0 and (given == "vnni" or x.bias * y.bias * run < 1 << 15):
        return "int8"
    return "int16" if run % IN_WORD["int16"] == 0 else None


def new_panels(rows: int, length: int, width: int, word: str) -> Array:
    """Return uninitialized panels of `width` rows each, for `rows` rows of `length` integers."""
    return np.empty((-(-rows // width), length // IN_WORD[word], width, IN_WORD[word]), word)


def pack(codes: Array, element: Integers, panels: Array, bias: int, starts: Array | None) -> None:
    """Store rows of codes in panels as integers, padded with zeros.

    8-bit integers of the left operand are biased. Those of the right operand have `starts`, which
    gets minus `bias` times the sum of each block.
    """
    is_turned = codes.strides[0] < codes.strides[1]
    memory = np.ascontiguousarray(codes.T if is_turned else codes)
    pitches = (1, codes.shape[0]) if is_turned else (codes.shape[1], 1)
    is_biased = starts is None and panels.dtype == np.int8
    table = (element.values + np.int16(bias if is_biased else 0)).astype(panels.dtype)
    _pack(memory.ravel(), table, *codes.shape, *pitches, panels)
    if starts is not None:
        _sum(panels, bias, starts)


@compile_loop
def _pack(memory, table, rows, length, row_pitch, pitch, panels):
    """Store the values by code of a matrix, whose element (r, k) is at r * row_pitch + k * pitch."""
    count, words, width, size = panels.shape
    whole = length // size
    for p in range(count):
        first, panel = p * width, panels[p]
        high = min(width, rows - first)
        for top in range(0, high, _ROWS):
            bottom = min(top + _ROWS, high)
            for word in range(whole):
                for r in range(top, bottom):
                    start = (first + r) * row_pitch + word * size * pitch
                    for t in range(size):
                        panel[word, r, t] = table[memory[start + t * pitch]]
        for word in range(words):
            for r in range(high if word < whole else 0, width):
                for t in range(size):
                    k = word * size + t
                    is_there = r < high and k < length
                    panel[word, r, t] = table[memory[(first + r) * row_pitch + k * pitch]] if is_there else table[0]


@compile_loop
def _sum(panels, bias, starts):
    """Store minus the bias times the sum of each block of a row in `starts`."""
    count, words, width, size = panels.shape
    run = words // max(1, starts.shape[1])
    for p in range(count):
        for block in range(starts.shape[1]):
            line = starts[p, block]
            line[:] = 0
            for word in range(block * run, (block + 1) * run):
                numbers = panels[p, word]
                for r in range(width):
                    for t in range(size):
                        line[r] -= np.int32(np.int32(bias) * np.int32(numbers[r, t]))


def dot(builder: Any, total: Any, left: Any, right: Any, word: str) -> Any:
    """Return IR that adds the products of all integers of two vectors of words to the sums `total`.

    Without VNNI, the sums of 8-bit products are two numbers of 16 bits until `widened`.
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
    """Return IR for the sums of 32 bits of a block, given what `dot` returns last for 8-bit integers.

    `start` is the value from which the sums start.
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
