"""The Hadamard transform of blocks whose sums are all exact in float64.

The numbers have 24 significant bits or fewer, and the exponents of a block lie close together.

All partial sums of a block are exact if the numbers are multiples of one power of two u, and the
sum of their magnitudes is below 2**53 u. With m the largest magnitude and c = 4 * size * m, the
test is (x + c) - c == x for each x. The sum x + c lies within c / 16 of c, and is a multiple of u,
which is half of the last place of c. If the test holds, x is the difference of two multiples of u,
and so a multiple of u. As u > 2**-54 c, the magnitudes sum to at most size * m = c / 4 < 2**52 u.
The test fails for infinities and NaN: the loop leaves their blocks to `by_integers`.
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

#: Numbers that are transformed together. They fit the first-level cache.
AT_ONCE = 1 << 10
_FLOAT32, _FLOAT64 = FLOATS["float32"], FLOATS["float64"]


@cache
def transform(source: ElementFormat) -> Any:
    """Return `loop((x, out), step, (signs, signs_after, factor), (first, last), lanes, marks)`.

    The loop transforms blocks `first` to `last`, and returns how many it left because their sums
    may not be exact. It sets `marks` for the blocks it left.

    Arrays are flat and hold bit patterns. Block n begins at (n // step) * step * size + n % step,
    and its numbers are `step` apart. The loop multiplies the numbers by `signs` and the sums by
    `signs_after` and `factor`, a power of two. It transforms `lanes` blocks side by side. The
    compiler vectorizes this because it does not know the number.
    """
    widen, narrow = _conversions(source)

    # Of the blocks that are transformed together, number j of block k is values[j * lanes + k].

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
    """Multiply `values` by their signs, and set `lost` to 0 for each block whose sums are exact.

    `lost` becomes the error that the test of this module finds in a block.
    """
    forbid_inlining()
    lanes = limit.size
    limit *= 4.0 * signs.size
    lost[:] = 0
    for j in range(signs.size):
        sign = signs[j]
        for k in range(lanes):
            value = values[j * lanes + k]
            # NaN stays NaN, which is not 0.
            lost[k] += abs((value + limit[k]) - limit[k] - value)
            values[j * lanes + k] = value * sign


@not_inlined
def _add_and_subtract(values, lanes):
    """Replace `values` by their Hadamard transform, without a factor."""
    forbid_inlining()
    half = lanes
    while half < values.size:
        for i in range(0, values.size, 2 * half):
            for k in range(i, i + half):
                a, b = values[k], values[k + half]
                values[k], values[k + half] = a + b, a - b
        half *= 2


def _conversions(source: ElementFormat) -> Any:
    """Return `(widen(x, i), narrow(out, i, value))`.

    `widen` reads a number as float64. `narrow` rounds a float64 number once and writes it.
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
