"""Matrix products with a defined accumulation: every row of one operand with every row of the other.

The loops here use integers only: they are the definition in compiled form, right in any floating-point environment.
Where the hardware can be trusted and holds the sums, `panels` computes the same bits.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np

from mxnum.dtypes import Array, signed_bits, stored_bits
from mxnum.engine import environment, exact
from mxnum.engine.arithmetic import make_add_float32, make_fma_float32
from mxnum.engine.jit import compile_loop
from mxnum.engine.operands import FLOAT32, INFINITY, Operand, meanings, narrowed
from mxnum.engine.pieces import bounds, in_pieces, worth
from mxnum.formats import E8M0, ElementFormat
from mxnum.modes import Accumulate

_WORD = 0xFFFFFFFF
#: Below this many products by integers a thread costs more than it saves.
PRODUCTS_PER_THREAD = 1 << 15


def matmul(
    a: Operand,
    b: Operand,
    accumulate: Accumulate,
    target: ElementFormat = FLOAT32,
    threads: int | None = None,
    out: Array | None = None,
) -> Array:
    """float32 sums over the last axis of both, rounded to `target`: shape (*batch, rows of a, rows of b)."""
    in_place = out is not None and target == FLOAT32 and out.flags.c_contiguous and not _overlaps(out, a, b)
    if out is not None and in_place:
        sums = out
    else:
        batch = a.array.shape[:-2]
        if b.array.ndim > 2:
            batch = np.broadcast_shapes(batch, b.array.shape[:-2])
        sums = np.empty((*batch, a.array.shape[-2], b.array.shape[-2]), np.float32)
    _WAYS[accumulate](a, b, sums, threads)
    if in_place or out is None:
        return narrowed(sums, FLOAT32, target)
    out[...] = narrowed(sums, FLOAT32, target)
    return out


def _overlaps(out: Array, *operands: Operand) -> bool:
    parts = [part for x in operands for part in (x.array, x.scales, x.offsets) if part is not None]
    return any(np.may_share_memory(out, part) for part in parts)


def by_blas(a: Operand, b: Operand, out: Array, threads: int | None = None) -> None:
    """numpy's matmul of the values in float32."""
    with np.errstate(all="ignore"):
        np.matmul(a.float32(threads), b.float32(threads).swapaxes(-1, -2), out=out)


def _panels() -> Any:
    """The module of fast products, or None where the hardware cannot be trusted to do what they ask."""
    if not environment.is_default():
        return None
    from mxnum.engine import panels, tiles

    return panels if tiles.HAS_FMA else None


# In sequence


def in_sequence(a: Operand, b: Operand, out: Array, threads: int | None = None) -> None:
    """acc = fma(a, b, acc) in index order."""
    panels = _panels()
    if panels is None:
        in_sequence_by_definition(a, b, out, threads)
        return
    left, right = panels.Sequential(a, threads), panels.Sequential(b, threads)
    for result, x, y in _matrices(out, 2, left.parts, right.parts):
        panels.in_sequence(left.side(x), right.side(y), result, threads)


def in_sequence_by_definition(a: Operand, b: Operand, out: Array, threads: int | None = None) -> None:
    """The same by integers."""
    for result, x, y in _matrices(out, 2, [a.float32(threads)], [b.float32(threads)]):
        _by_rows(sequential_loop(), [signed_bits(*x)], [signed_bits(*y)], (), result, threads)


@cache
def sequential_loop() -> Any:
    """(a, b, out): float32 bit patterns."""
    fma_float32 = make_fma_float32()

    def multiply(a, b, out):
        for i in range(a.shape[0]):
            for j in range(b.shape[0]):
                total = 0
                for k in range(a.shape[1]):
                    total = fma_float32(int(a[i, k]), int(b[j, k]), total)
                out[i, j] = total & _WORD

    return compile_loop(multiply)


# Exactly


def exactly(a: Operand, b: Operand, out: Array, threads: int | None = None) -> None:
    """The exact sum, rounded once."""
    terms_a, terms_b = a.terms(), b.terms()
    (low_a, high_a), (low_b, high_b) = terms_a.range, terms_b.range
    size = exact.limbs_for(low_a + low_b, high_a + high_b)
    for result, x, y in _matrices(out, 3, terms_a.parts, terms_b.parts):
        _by_rows(exact_loop(), x, y, (low_a + low_b, size), result, threads)


@cache
def exact_loop() -> Any:
    """(terms of a, terms of b, lowest exponent, number of limbs, out)."""
    add_product, state_of, special_float32 = exact.add_product, exact.state_of, exact.special_float32
    carry, rounded, often = exact.carry, exact.rounded, exact.CARRY_EVERY

    def multiply(ma, ea, ca, xa, mb, eb, cb, xb, lowest, size, out):
        length, limbs = ca.shape[2], np.zeros(size, np.int64)
        for i in range(ca.shape[1]):
            for j in range(cb.shape[1]):
                state = state_of(ca[0, i], cb[0, j], 0, length) if xa[0, i, 0] or xb[0, j, 0] else 0
                if state:
                    out[i, j] = special_float32(state)
                    continue
                for s in range(ma.shape[0]):
                    for t in range(mb.shape[0]):
                        for start in range(0, length, often):
                            for k in range(start, min(start + often, length)):
                                power = int(ea[s, i, k]) + int(eb[t, j, k]) - lowest
                                add_product(limbs, int(ma[s, i, k]), int(mb[t, j, k]), power)
                            carry(limbs)
                out[i, j] = rounded(limbs, lowest) & _WORD

    return compile_loop(multiply)


# By blocks


def by_blocks(a: Operand, b: Operand, out: Array, threads: int | None = None) -> None:
    """Exact sums of element products within blocks, scaled and rounded once; blocks added in float32."""
    run = min(a.blocks[-1], a.array.shape[-1])
    panels = _panels() if run else None
    how = None if panels is None else panels.plan(a.format, b.format, run)
    if panels is None or how is None:
        by_blocks_by_definition(a, b, out, threads)
        return
    parts_a, parts_b = [a.array, a.row_scales()], [b.array, b.row_scales()]
    for result, x, y in _matrices(out, 2, parts_a, parts_b):
        split = panels.by_blocks(how, a, b, x, y, run, result, threads)
        if split is None:
            _some_by_definition(a, b, x, y, run, slice(None), result, threads)
        elif split:
            infinite = np.flatnonzero((meanings(b.format).classes // 2 == INFINITY // 2)[y[0]].any(1))
            if infinite.size:
                _some_by_definition(a, b, x, y, run, infinite, result, threads)


def _some_by_definition(
    a: Operand,
    b: Operand,
    parts_a: list[Array],
    parts_b: list[Array],
    run: int,
    rows_b: Any,
    out: Array,
    threads: int | None,
) -> None:
    """Columns of the product of two matrices, which rows of b make."""  # fmt: skip
    left, right = (
        Operand(codes[where], x.format, (1, run), scales[where])
        for x, (codes, scales), where in ((a, parts_a, slice(None)), (b, parts_b, rows_b))
    )
    part = np.empty((len(left.array), len(right.array)), np.float32)
    by_blocks_by_definition(left, right, part, threads)
    out[:, rows_b] = part


def by_blocks_by_definition(a: Operand, b: Operand, out: Array, threads: int | None = None) -> None:
    """The same by integers."""
    terms_a, terms_b = a.elements(), b.elements()
    (low_a, high_a), (low_b, high_b) = terms_a.range, terms_b.range
    lowest = low_a + low_b
    parts_a, parts_b = [*terms_a.parts, _stacked(a.row_scales())], [*terms_b.parts, _stacked(b.row_scales())]
    size = exact.limbs_for(lowest, high_a + high_b)
    for result, x, y in _matrices(out, 3, parts_a, parts_b):
        _by_rows(block_loop(), x, y, (a.blocks[-1], lowest, size), result, threads)


@cache
def block_loop() -> Any:
    """(terms and scales of a, those of b, block length, lowest exponent, number of limbs, out)."""
    add_product, state_of, special_float32 = exact.add_product, exact.state_of, exact.special_float32
    carry, rounded, often = exact.carry, exact.rounded, exact.CARRY_EVERY
    add_float32 = make_add_float32()
    SCALE_NAN, SCALES_BIAS = E8M0.nan_code, 2 * E8M0.bias

    def multiply(ma, ea, ca, xa, scales_a, mb, eb, cb, xb, scales_b, run, lowest, size, out):
        length, limbs = ca.shape[2], np.zeros(size, np.int64)
        for i in range(ca.shape[1]):
            for j in range(cb.shape[1]):
                special = xa[0, i, 0] or xb[0, j, 0]
                total = 0
                for start in range(0, length, run):
                    stop, block = min(start + run, length), start // run
                    scale_a, scale_b = int(scales_a[0, i, block]), int(scales_b[0, j, block])
                    state = state_of(ca[0, i], cb[0, j], start, stop) if special else 0
                    if scale_a == SCALE_NAN or scale_b == SCALE_NAN:
                        state = exact.INVALID
                    if state:
                        term = special_float32(state)
                    else:
                        for first in range(start, stop, often):
                            for k in range(first, min(first + often, stop)):
                                power = int(ea[0, i, k]) + int(eb[0, j, k]) - lowest
                                add_product(limbs, int(ma[0, i, k]), int(mb[0, j, k]), power)
                            carry(limbs)
                        term = rounded(limbs, lowest + scale_a + scale_b - SCALES_BIAS)
                    total = add_float32(total, term)
                out[i, j] = total & _WORD

    return compile_loop(multiply)


# A bias


def add_to_rows(x: Array, row: Array) -> None:
    """x + row in float32, in place: x a contiguous matrix, row a contiguous vector."""
    add_loop()(stored_bits(x), signed_bits(row))


@cache
def add_loop() -> Any:
    """(x, row): float32 bit patterns."""
    add_float32 = make_add_float32()

    def add(x, row):
        for i in range(x.shape[0]):
            for j in range(x.shape[1]):
                x[i, j] = add_float32(int(x[i, j]), int(row[j])) & _WORD

    return compile_loop(add)


def _by_rows(
    loop: Any, a: list[Array], b: list[Array], numbers: tuple[int, ...], out: Array, threads: int | None
) -> None:
    """A loop over rows of a and rows of b, a share of the rows of a in each thread; of those of b, if these are more.

    The parts have the rows as their last axis but one.
    """
    height, width = out.shape
    if height < width and _workers(out, a, threads) > 1:
        turned = np.empty((width, height), np.float32)
        _by_rows(loop, b, a, numbers, turned, threads)
        out[...] = turned.T
        return

    def work(part: tuple[int, int]) -> None:
        some = slice(*part)
        loop(*(x[..., some, :] for x in a), *b, *numbers, stored_bits(out[some]))

    in_pieces(work, list(pairwise(bounds(height, max(1, min(height, _workers(out, a, threads)))))))


def _workers(out: Array, a: list[Array], threads: int | None) -> int:
    return worth(out.size * a[0].shape[-1], PRODUCTS_PER_THREAD, threads)


_WAYS = {
    Accumulate.EXACT: exactly,
    Accumulate.BLOCK: by_blocks,
    Accumulate.SEQUENTIAL: in_sequence,
    Accumulate.BLAS: by_blas,
}


def _stacked(x: Array) -> Array:
    """A matrix (or many) as the only one of a third axis from the end."""
    return x[..., np.newaxis, :, :]


def _matrices(
    out: Array, core: int, a: list[Array], b: list[Array]
) -> Iterator[tuple[Array, list[Array], list[Array]]]:
    """For each index of the batch: the result there, and the parts of both operands, whose leading axes broadcast.

    The last `core` axes of a part are its own.
    """
    if core == 2 < out.ndim and all(x.ndim == 2 for x in b) and all(x.size for x in [out, *a]):
        # One matrix on the right: more rows on the left.
        a, out = [x.reshape(-1, x.shape[-1]) for x in a], out.reshape(-1, out.shape[-1])
    batch = out.shape[:-2]
    if not batch and all(x.ndim == core for x in a) and all(x.ndim == core for x in b):
        yield out, a, b
        return
    for place in np.ndindex(batch):
        yield out[place], [_at(x, core, place) for x in a], [_at(x, core, place) for x in b]


def _at(x: Array, core: int, place: tuple[int, ...]) -> Array:
    """The part for one index of the batch, along whose axes x broadcasts."""
    own = x.shape[:-core]
    part: Array = x[tuple(0 if n == 1 else i for n, i in zip(own, place[len(place) - len(own) :], strict=True))]
    return part
