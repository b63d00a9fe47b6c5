"""The Hadamard transform of blocks whose sums are all exact in float64.

The sums of a block are exact if all numbers of the block have at most 24 significant bits and
similar exponents.

Proof: All partial sums of a block are exact if the numbers are multiples of one power of two u, and
the sum of their magnitudes is below 2**53 u. Let m be the largest magnitude in the block, c = 4 *
size * m, and u half a unit in the last place of c. The loop tests (x + c) - c == x for each number
x. The rounded sum x + c lies within c / 16 of c, so it is a multiple of u. If (x + c) - c == x,
then x is a difference of two multiples of u, so x is a multiple of u too. Because u > 2**-54 c, the
magnitudes sum to at most size * m = c / 4 < 2**52 u. The test fails for infinities and NaN, so
`by_integers` transforms the blocks that contain them.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from mxnum.definition.convert import SCALE_BIAS, make_encode
from mxnum.definition.word import dialect
from mxnum.engine.machine.jit import compile_loop, forbid_inlining, not_inlined
from mxnum.formats import FLOATS, ElementFormat
from mxnum.modes import Overflow, Rounding

#: The loop transforms about `AT_ONCE` numbers together, because so many numbers fit in the L1
#: cache.
AT_ONCE = 1 << 10
_FLOAT32, _FLOAT64 = FLOATS["float32"], FLOATS["float64"]


@cache
def transform(source: ElementFormat) -> Any:
    """Return the loop that transforms blocks of `source` numbers whose sums are exact in float64.

    The loop is called as
    `loop((x, out), step, (signs, signs_after, factor), (first, last), lanes, marks)`. The loop
    transforms blocks `first` to `last - 1`. The loop does not write a block whose sums may be
    inexact, but marks the block in `marks`. The loop returns the number of marked blocks.

    The arrays `x` and `out` are flat and hold bit patterns. Block n begins at index (n // step) *
    step * size + n % step, and its numbers are `step` apart. Numbers are multiplied by `signs`
    before the transform. Sums are multiplied by `signs_after` and by `factor`, a power of two. The
    loop transforms `lanes` blocks side by side, so that the compiler can vectorize. `lanes` is an
    argument, because compilers unroll loops of a short constant length instead of vectorizing them.
    """
    widen, narrow = _conversions(source)

    # values[j * lanes + k] is number j of block k among the blocks that are transformed together.

    @not_inlined
    def read(x, starts, step, values, limit):
        forbid_inlining()
        lanes = limit.size
        limit[:] = 0
        for j in range(values.size // lanes):
            for k in range(lanes):
                value = widen(x, starts[k] + j * step)
                values[j * lanes + k] = value
                magnitude = abs(value)
                limit[k] = magnitude if magnitude > limit[k] else limit[k]

    @not_inlined
    def write(out, starts, step, values, lost, signs, factor):
        forbid_inlining()
        lanes = lost.size
        for j in range(signs.size):
            sign = signs[j]
            for k in range(lanes):
                if lost[k] == 0:
                    # Adding 0 turns -0 into +0, because an exact sum of zero is +0.
                    narrow(out, starts[k] + j * step, (values[j * lanes + k] * sign + 0.0) * factor)

    def loop(arrays, step, factors, bounds, lanes, marks):
        (x, out), (signs, signs_after, factor), (first, last) = arrays, factors, bounds
        size, left = signs.size, 0
        values, starts = np.empty(size * lanes, np.float64), np.empty(lanes, np.int64)
        limit, lost = np.empty(lanes, np.float64), np.empty(lanes, np.float64)
        for start in range(first, last, lanes):
            blocks = min(lanes, last - start)
            for k in range(lanes):
                block = start + min(k, blocks - 1)
                starts[k] = (block // step) * step * size + block % step
            read(x, starts, step, values, limit)
            _look(values, limit, lost, signs)
            _add_and_subtract(values, lanes)
            write(out, starts, step, values, lost, signs_after, factor)
            for k in range(blocks):
                marks[start + k] = lost[k] != 0
                left += lost[k] != 0
        return left

    return compile_loop(loop)


@not_inlined
def _look(values, limit, lost, signs):
    """Multiply `values` by `signs`, and set `lost` to 0 for each block whose sums are exact.

    If the sums of a block may not be exact, `lost` becomes a positive number or NaN. The sums are
    exact if (x + c) - c == x for each number x, as this module's docstring explains.
    """
    forbid_inlining()
    lanes = limit.size
    limit *= 4.0 * signs.size
    lost[:] = 0
    for j in range(signs.size):
        sign = signs[j]
        for k in range(lanes):
            value = values[j * lanes + k]
            # A NaN makes `lost` NaN, which is not 0, so a block with a NaN does not count as exact.
            lost[k] += abs((value + limit[k]) - limit[k] - value)
            values[j * lanes + k] = value * sign


@not_inlined
def _add_and_subtract(values, lanes):
    """Replace `values` by their Hadamard transform, without the factor 1 / sqrt(size)."""
    forbid_inlining()
    half = lanes
    while half < values.size:
        for i in range(0, values.size, 2 * half):
            for k in range(i, i + half):
                a, b = values[k], values[k + half]
                values[k], values[k + half] = a + b, a - b
        half *= 2


def _conversions(source: ElementFormat) -> Any:
    """Return `widen(x, i)`, which reads a number, and `narrow(out, i, value)`, which writes one.

    `widen` returns number i of `x` as float64. `narrow` rounds the float64 number `value` once and
    writes it as number i of `out`.
    """
    if source == _FLOAT32:

        @dialect
        def widen_float32(x, i):
            return np.float64(np.int32(x[i]).view(np.float32))

        @dialect
        def narrow_float32(out, i, value):
            out[i] = np.uint32(np.float32(value).view(np.int32))

        return widen_float32, narrow_float32
    to_float64 = make_encode(source, _FLOAT64, Rounding.RNE, Overflow.IEEE)
    from_float64 = make_encode(_FLOAT64, source, Rounding.RNE, Overflow.IEEE)

    @dialect
    def widen(x, i):
        return np.int64(to_float64(np.int64(x[i]), SCALE_BIAS, 0)).view(np.float64)

    @dialect
    def narrow(out, i, value):
        out[i] = from_float64(np.float64(value).view(np.int64), SCALE_BIAS, 0)

    return widen, narrow
