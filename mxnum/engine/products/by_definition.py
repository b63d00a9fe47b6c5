"""The compiled definition of products: integer sums, right in every floating-point environment."""

from __future__ import annotations

from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np

from mxnum.definition.fused_sum import make_parts
from mxnum.definition.unpack import FINITE, NAN
from mxnum.engine.machine.jit import compile_loop
from mxnum.engine.machine.workers import bounds, run_in_threads, worth
from mxnum.engine.products import exact
from mxnum.engine.products.float32_by_integers import make_add_float32, make_fma_float32
from mxnum.engine.products.operands import Operand
from mxnum.engine.products.terms import Terms
from mxnum.formats import E8M0, FLOATS
from mxnum.memory.dtypes import Array, signed_bits, stored_bits

_WORD = 0xFFFFFFFF
#: The exponent of the smallest subnormal float32 number.
_LOWEST = FLOATS["float32"].emin - FLOATS["float32"].mantissa_bits
#: Threads save time only if each thread computes at least this many products.
PRODUCTS_PER_THREAD = 1 << 15


def in_sequence(a: Array, b: Array, out: Array, threads: int | None) -> None:
    """Compute acc = fma(a, b, acc) in index order for every pair of rows of float32 values.

    In all functions of this module, `out` holds the starting values of the sums.
    """
    _by_rows(sequential_loop(), [signed_bits(a)], [signed_bits(b)], (), out, threads)


def exactly(a: Operand, b: Operand, out: Array, threads: int | None) -> None:
    """Add the exact sum of products of every pair of rows to `out`, rounding each result once."""
    terms = Terms.of_values(a), Terms.of_values(b)
    unit = [np.full((len(x.classes), 1), E8M0.bias, np.uint8) for x in terms]
    _exact_sums(terms, unit, max(1, a.array.shape[-1]), False, out, threads)


def by_blocks(a: Operand, b: Operand, out: Array, threads: int | None) -> None:
    """Add one term for each block to `out`, in block order and in float32, for every pair of rows.

    The term of a block is the exact sum of the products of its elements, times both scales, rounded
    once. If an operand has float scales, its elements are first multiplied by their scales. The
    terms are the same.
    """
    of_a, of_b = (Terms.of_values(x) if x.has_float_scales else Terms.of_elements(x) for x in (a, b))
    scales: list[Any] = [x.scales for x in (a, b)]
    scales = [np.full_like(s, E8M0.bias, np.uint8) if s.dtype == np.float32 else s for s in scales]
    _exact_sums((of_a, of_b), scales, a.blocks[-1], True, out, threads)


def scale(x: Array, factors: Array) -> None:
    """Multiply the matrix `x` by float32 factors in place, each product rounded once."""
    factors = np.ascontiguousarray(np.broadcast_to(factors, x.shape))
    scale_loop()(stored_bits(x).ravel(), signed_bits(factors).ravel())


def _exact_sums(
    terms: tuple[Terms, Terms], scales: list[Array], run: int, adding: bool, out: Array, threads: int | None
) -> None:
    (low_a, high_a), (low_b, high_b) = (x.range for x in terms)
    lowest, highest = low_a + low_b, high_a + high_b
    if not adding and out.any():
        lowest, highest = min(lowest, _LOWEST), max(highest, FLOATS["float32"].emax)
    numbers = run, adding, lowest, exact.limbs_for(lowest, highest)
    a, b = ([*x.parts, own] for x, own in zip(terms, scales, strict=True))
    _by_rows(exact_loop(), a, b, numbers, out, threads)


def add_to_rows(x: Array, row: Array) -> None:
    """Add the vector `row` to each row of the matrix `x`, in place and in float32.

    Both arrays are contiguous.
    """
    add_loop()(stored_bits(x), signed_bits(row))


@cache
def sequential_loop() -> Any:
    """Return `multiply((a,), (b,), numbers, out)`, which computes fma sums in index order.

    All arrays hold float32 bit patterns. `out[i, j]` becomes the sum for row i of `a` and row j of
    `b`. `numbers` is empty.
    """
    fma_float32 = make_fma_float32()

    def multiply(arrays_a, arrays_b, numbers, out):
        a, b = arrays_a[0], arrays_b[0]
        for i in range(a.shape[0]):
            for j in range(b.shape[0]):
                total = int(out[i, j])
                for k in range(a.shape[1]):
                    total = fma_float32(int(a[i, k]), int(b[j, k]), total)
                out[i, j] = total & _WORD

    return compile_loop(multiply)


@cache
def exact_loop() -> Any:
    """Return `multiply(a, b, numbers, out)`, which computes exact sums and rounds them.

    `a` and `b` are tuples: the arrays of `Terms.parts`, then the scales. `numbers` are the block
    length, `adding`, the lowest exponent of a product, and the number of limbs of the accumulator.

    The exact sum of the products of a block is multiplied by both scales and rounded once. If
    `adding` is True, the results of the blocks of a row are added in float32 to the starting value.
    If `adding` is False, a row is a single block, and the starting value is one term of the exact
    sum.
    """
    add_product, state_of, special_float32 = exact.add_product, exact.state_of, exact.special_float32
    carry, rounded, often = exact.carry, exact.rounded, exact.CARRY_EVERY
    add_float32 = make_add_float32()
    SCALE_NAN, SCALES_BIAS = E8M0.nan_code, 2 * E8M0.bias
    WIDTH = FLOATS["float32"].mantissa_bits
    unpack = make_parts(FLOATS["float32"])

    def multiply(a, b, numbers, out):
        ma, ea, ca, xa, scales_a = a
        mb, eb, cb, xb, scales_b = b
        run, adding, lowest, size = numbers
        length, limbs = ca.shape[1], np.zeros(size, np.int64)
        for i in range(ca.shape[0]):
            for j in range(cb.shape[0]):
                special = xa[i] or xb[j]
                total = int(out[i, j])
                sign, exponent, significand, kind = unpack(0 if adding else total)
                infinite = exact.MINUS if sign else exact.PLUS
                start_state = 0 if kind == FINITE else exact.INVALID if kind == NAN else infinite
                for start in range(0, length if adding else max(length, 1), run):
                    stop, block = min(start + run, length), start // run
                    scale_a, scale_b = int(scales_a[i, block]), int(scales_b[j, block])
                    state = state_of(ca[i], cb[j], start, stop) if special else 0
                    if scale_a == SCALE_NAN or scale_b == SCALE_NAN:
                        state = exact.INVALID
                    state |= start_state
                    if state:
                        term = special_float32(state)
                    else:
                        for s in range(ma.shape[0]):
                            for t in range(mb.shape[0]):
                                for first in range(start, stop, often):
                                    for k in range(first, min(first + often, stop)):
                                        power = int(ea[s, i, k]) + int(eb[t, j, k]) - lowest
                                        add_product(limbs, int(ma[s, i, k]), int(mb[t, j, k]), power)
                                    carry(limbs)
                        if significand:
                            add_product(limbs, -significand if sign else significand, 1, exponent - WIDTH - lowest)
                        term = rounded(limbs, lowest + scale_a + scale_b - SCALES_BIAS)
                    total = add_float32(total, term) if adding else term
                out[i, j] = total & _WORD

    return compile_loop(multiply)


@cache
def scale_loop() -> Any:
    """Return `scale(x, factors)`, which multiplies the float32 vector `x` by `factors` in place."""
    fma_float32 = make_fma_float32()
    minus_zero = 1 << 31  # Unlike +0, the addend -0 keeps the sign of a product that is zero.

    def scale(x, factors):
        for i in range(x.size):
            x[i] = fma_float32(int(x[i]), int(factors[i]), minus_zero) & _WORD

    return compile_loop(scale)


@cache
def add_loop() -> Any:
    """Return `add(x, row)`, which adds a vector to each row of a matrix of float32 bit patterns."""
    add_float32 = make_add_float32()

    def add(x, row):
        for i in range(x.shape[0]):
            for j in range(x.shape[1]):
                x[i, j] = add_float32(int(x[i, j]), int(row[j])) & _WORD

    return compile_loop(add)


def _by_rows(
    loop: Any, a: list[Array], b: list[Array], numbers: tuple[int, ...], out: Array, threads: int | None
) -> None:
    """Run a loop over all pairs of a row of `a` and a row of `b`.

    The rows of the operand that has more rows are divided among the threads.
    """
    height, width = out.shape
    workers = worth(out.size * a[0].shape[-1], PRODUCTS_PER_THREAD, threads)
    if height < width and workers > 1:
        turned = np.ascontiguousarray(out.T)
        _by_rows(loop, b, a, numbers, turned, threads)
        out[...] = turned.T
        return

    def work(part: tuple[int, int]) -> None:
        some = slice(*part)
        parts = [x[:, some] if x.ndim == 3 else x[some] for x in a]
        loop(tuple(map(_plain, parts)), tuple(map(_plain, b)), numbers, stored_bits(out[some]))

    run_in_threads(work, list(pairwise(bounds(height, min(height, workers)))))


def _plain(x: Array) -> Array:
    """Return a contiguous array, so that each loop is compiled for one memory layout only."""
    return np.ascontiguousarray(x)
