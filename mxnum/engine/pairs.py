"""One row with one row: what `tiles` does for matrices, but along memory and a piece at a time."""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import numba
import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from mxnum.dtypes import Array
from mxnum.engine.jit import compile_loop
from mxnum.engine.packs import Side, split

#: Numbers of each row that are unpacked at a time, about: they stay in the second cache.
_PIECE = 1 << 14


def in_sequence(left: Side, right: Side) -> np.float32:
    """acc = fma(a, b, acc) in index order."""
    total = np.float32(0)
    for start, stop in _pieces(left.length, math.lcm(left.run, right.run)):
        (a, _), (b, _) = (_unpacked(side, start, stop, "float32", apart=False) for side in (left, right))
        total = _chain()(a.reshape(-1), b.reshape(-1), total)
    return _canonical(total)


def by_blocks(left: Side, right: Side, wide: Array | None, step: float) -> np.float32:
    """acc = acc + (the sum of a block in float64, scaled and rounded once), the blocks marked as wide split at `step`."""
    run, total = left.run, np.float32(0)
    for start, stop in _pieces(left.length, run):
        (a, scales_a), (b, scales_b) = (_unpacked(side, start, stop, "float64", apart=True) for side in (left, right))
        marks = np.zeros(scales_a.size, np.uint8) if wide is None else wide[start // run : -(-stop // run)]
        low = a
        if marks.any():
            low = np.zeros_like(a)
            split()(a, low, marks, run, step)
        total = _blocks()(
            a.reshape(-1), low.reshape(-1), b.reshape(-1), scales_a.reshape(-1), scales_b.reshape(-1), marks, run, total
        )
    return _canonical(total)


def _pieces(length: int, run: int) -> list[tuple[int, int]]:
    step = max(1, _PIECE // run) * run
    return [(start, min(start + step, length)) for start in range(0, length, step)]


def _unpacked(side: Side, start: int, stop: int, word: str, apart: bool) -> tuple[Array, Any]:
    part = side.between(start, stop)
    panels, factors = part.room(1, 1, word, apart)
    part.pack(0, 1, panels, factors)
    return panels, factors


def _canonical(total: Any) -> np.float32:
    return np.float32(np.nan if total != total else total)


@intrinsic
def _fma(typing_context, a, b, c):
    def generate(context, builder, signature, arguments):
        word = ir.FloatType()
        kind = ir.FunctionType(word, [word] * 3)
        return builder.call(cgutils.get_or_insert_function(builder.module, kind, "llvm.fma.f32"), arguments)

    return types.float32(types.float32, types.float32, types.float32), generate


@cache
def _chain() -> Any:
    """(a, b, total) -> total."""

    def chain(a, b, total):
        for k in range(a.size):
            total = _fma(a[k], b[k], total)
        return total

    return compile_loop(chain)


@numba.njit(error_model="numpy", nogil=True, fastmath={"reassoc"})
def _sum_of_products(a, b):
    """In any order: the sum is exact."""
    total = 0.0
    for k in range(a.size):
        total += a[k] * b[k]
    return total


@cache
def _blocks() -> Any:
    """(a, low, b, scales of a, those of b, marks, run, total) -> total."""

    def blocks(a, low, b, scales_a, scales_b, marks, run, total):
        for block in range(marks.size):
            first, last = block * run, (block + 1) * run
            right = b[first:last]
            exact = _sum_of_products(a[first:last], right)
            if marks[block]:
                high, rest = exact, _sum_of_products(low[first:last], right)
                exact = high + rest
                # To odd: rounding to float32 is then as if of the exact sum.
                part = exact - high
                error = (high - (exact - part)) + (rest - part)
                if error != 0 and math.isfinite(exact) and np.float64(exact).view(np.int64) & 1 == 0:
                    exact = np.nextafter(exact, np.inf if error > 0 else -np.inf)
            total += np.float32(exact * (scales_a[block] * scales_b[block]))
        return total

    return compile_loop(blocks)
