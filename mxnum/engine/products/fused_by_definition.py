"""Compute the fused sums of a matrix unit by the compiled definition.

The definition gives the same bits in every floating-point environment.
"""

from __future__ import annotations

from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np

from mxnum.definition.fused_sum import INVALID, MINUS, PLUS, align, make_add, make_finish, make_parts
from mxnum.definition.unpack import INFINITE, NAN
from mxnum.definition.word import dialect
from mxnum.engine.machine.jit import compile_loop
from mxnum.engine.machine.workers import bounds, run_in_threads, worth
from mxnum.engine.products.exact import state_of_product
from mxnum.engine.products.float32_by_integers import make_fma_float32
from mxnum.engine.products.fused_operands import Side
from mxnum.engine.products.terms import NOT_A_NUMBER, ZERO
from mxnum.formats import FLOATS, ElementFormat
from mxnum.memory.dtypes import Array, stored_bits
from mxnum.modes import Rounding
from mxnum.units.unit import MatrixUnit

#: Threads save time only if each thread computes at least this many products.
PRODUCTS_PER_THREAD = 1 << 13


def multiply(a: Side, b: Side, unit: MatrixUnit, k: int, out: Array, redo: Array | None, threads: int | None) -> None:
    """Compute d = a·b + c for each pair of rows, as matrix instructions with K = `k` do.

    `out` holds c on entry and d on return. If `redo` is given, only the pairs of rows for which
    `redo` is True are computed.
    """
    accumulator, point = FLOATS[unit.accumulator], a.point + b.point
    kept, own = unit.fraction_bits, accumulator.mantissa_bits
    shifts = [max(kept - point, 0), max(point - kept, 0), max(kept - own, 0), max(own - kept, 0)]
    lengths = [k, unit.terms, unit.group, unit.promotion, a.block, b.block]
    numbers = np.array([*lengths, unit.addend == "after", kept, own - unit.result_bits, *shifts], np.int64)
    marks = np.ones(out.shape, np.bool_) if redo is None else redo
    loop = fused_loop(accumulator, Rounding(unit.rounding))

    def work(part: tuple[int, int]) -> None:
        some = slice(*part)
        loop(_arrays(a, some), _arrays(b, slice(None)), numbers, marks[some], stored_bits(out[some]))

    workers = worth(int(marks.sum()) * a.elements.classes.shape[1], PRODUCTS_PER_THREAD, threads)
    run_in_threads(work, list(pairwise(bounds(len(out), max(1, min(len(out), workers))))))


def _arrays(x: Side, some: slice) -> tuple[Array, ...]:
    arrays = [array for p in (x.elements, x.scales) for array in (p.significands, p.exponents, p.classes)]
    return tuple(np.ascontiguousarray(array[some]) for array in (*arrays, x.factors, x.special))


@cache
def fused_loop(accumulator: ElementFormat, rounding: Rounding) -> Any:
    """Return the function `multiply(a, b, numbers, marks, out)`.

    `multiply` computes a·b + c for the pairs of rows for which `marks` is True. `a` and `b` are the
    tuples that `_arrays` returns.
    """
    parts, finish, add = make_parts(accumulator), make_finish(accumulator, rounding), make_add(accumulator)
    fma = make_fma_float32()
    MASK, INFINITY = (1 << accumulator.bits) - 1, accumulator.max_code + 1
    MAGNITUDE = MASK >> 1

    def multiply(a, b, numbers, marks, out):
        ma, ea, ca, scale_ma, scale_ea, scale_ca, factors_a, xa = a
        mb, eb, cb, scale_mb, scale_eb, scale_cb, factors_b, xb = b
        k, terms, group, promotion, block_a, block_b, after, fraction_bits, below = numbers[:9]
        left, right, left_c, right_c = numbers[9:]
        significands, exponents = np.zeros(terms // group, np.int64), np.zeros(terms // group, np.int64)
        for i in range(out.shape[0]):
            for j in range(out.shape[1]):
                if not marks[i, j]:
                    continue
                special = xa[i] or xb[j]
                total = int(out[i, j])
                chain = 0 if promotion else total
                for start in range(0, ma.shape[1], k):
                    addend, chain = chain, 0 if after else chain
                    for first in range(start, start + k, terms):
                        sign_c, exponent_c, significand_c, kind_c = parts(chain)
                        largest = exponent_c
                        infinite = MINUS if sign_c == 1 else PLUS
                        state = INVALID if kind_c == NAN else infinite if kind_c == INFINITE else 0
                        count = min(terms, start + k - first) // group
                        for g in range(count):
                            at = first + g * group
                            significand, exponent, own_state = 0, 0, 0
                            for index in range(at, at + group):
                                significand += int(ma[i, index]) * int(mb[j, index])
                                exponent = int(ea[i, index]) + int(eb[j, index])
                                if special:
                                    own_state |= state_of_product(int(ca[i, index]), int(cb[j, index]))
                            own_a = at // block_a if scale_ma.shape[1] > 1 else 0
                            own_b = at // block_b if scale_mb.shape[1] > 1 else 0
                            if special:
                                state |= _state_of_scaled(own_state, scale_ca[i, own_a], scale_cb[j, own_b])
                            exponents[g] = exponent + int(scale_ea[i, own_a]) + int(scale_eb[j, own_b])
                            significands[g] = significand * int(scale_ma[i, own_a]) * int(scale_mb[j, own_b])
                            largest = max(largest, exponents[g])
                        # If a product or the addend is infinite or NaN, `finish` ignores `sums`.
                        sums = align(sign_c, exponent_c, significand_c, largest, left_c, right_c)
                        for g in range(count):
                            negative = 1 if significands[g] < 0 else 0
                            sums += align(negative, exponents[g], abs(significands[g]), largest, left, right)
                        chain = finish(sums, largest, fraction_bits, below, state)
                    if after:
                        chain = add(chain, addend)
                    done = start + k
                    if promotion and (done % promotion == 0 or done == ma.shape[1]):
                        own_a = start // promotion if factors_a.shape[1] > 1 else 0
                        own_b = start // promotion if factors_b.shape[1] > 1 else 0
                        factor = fma(int(factors_a[i, own_a]), int(factors_b[j, own_b]), 0)
                        total = fma(factor, chain, total)
                        chain = 0
                result = (total if promotion else chain) & MASK
                out[i, j] = MAGNITUDE if (result & MAGNITUDE) > INFINITY else result

    return compile_loop(multiply)


@dialect
def _state_of_scaled(state, class_a, class_b):
    """Return the state (infinite, invalid or 0) of a group's sum multiplied by both scales."""
    if class_a >= NOT_A_NUMBER or class_b >= NOT_A_NUMBER:
        return INVALID
    if state != 0 and (class_a == ZERO or class_b == ZERO):
        return INVALID
    return state


@cache
def factor_loop() -> Any:
    """Return `scale(product, left, right)`, which multiplies a float32 matrix by factors in place.

    Element (i, j) becomes product[i, j] * (left[i] * right[j]). Each of the two multiplications
    rounds to nearest even. All arrays hold bit patterns.
    """
    fma = make_fma_float32()
    ZERO = -(1 << 31)  # Adding -0 changes no number, not even the sign of a zero.

    def scale(product, left, right):
        for i in range(product.shape[0]):
            for j in range(product.shape[1]):
                result = fma(fma(int(left[i]), int(right[j]), ZERO), int(product[i, j]), ZERO) & 0xFFFFFFFF
                product[i, j] = 0x7FFFFFFF if (result & 0x7FFFFFFF) > 0x7F800000 else result

    return compile_loop(scale)
