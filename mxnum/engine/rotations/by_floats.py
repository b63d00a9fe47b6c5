"""The Hadamard transform where float64 holds every sum: 24 bits or fewer, and exponents that lie close enough.

All partial sums of a block are exact if the numbers are multiples of one power of two u, and the sum of their
magnitudes is below 2**53 u. With m the largest magnitude and c = 4 * size * m, the test is (x + c) - c == x for each x.
The sum x + c lies within c / 16 of c, and is a multiple of u, half of the last place of c; so is x then, for it is the
difference of two. As u > 2**-54 c, the magnitudes sum to size * m = c / 4 < 2**52 u. The test fails for infinities and
NaN, whose blocks are left.
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

#: Numbers that are transformed at a time: they stay in the nearest cache.
AT_ONCE = 1 << 10
_FLOAT32, _FLOAT64 = FLOATS["float32"], FLOATS["float64"]


@cache
def transform(source: ElementFormat) -> Any:
    """(x, out, step, signs, signs_after, factor, (first, last), lanes, marks) -> blocks left, which are marked.

    Arrays are flat and hold bit patterns. Block n begins at (n // step) * step * size + n % step, and its numbers are
    `step` apart. `signs` multiply what is read, `signs_after` what is summed; `factor` is a power of two. So many
    `lanes` are done side by side, which a compiler vectorizes because it does not know how many.
    """
    widen, narrow = _conversions(source)

    # Number j of block k of those that are done together lies at values[j * lanes + k].

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
                    # (an exact zero is +0)
                    narrow(out, starts[k] + j * step, (values[j * lanes + k] * sign + 0.0) * factor)

    def loop(x, out, step, signs, signs_after, factor, bounds, lanes, marks):
        first, last = bounds
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
    """Numbers times their signs, and what each block loses in the test: nothing if its sums are exact."""
    forbid_inlining()
    lanes = limit.size
    limit *= 4.0 * signs.size
    lost[:] = 0
    for j in range(signs.size):
        sign = signs[j]
        for k in range(lanes):
            value = values[j * lanes + k]
            lost[k] += abs((value + limit[k]) - limit[k] - value)  # (NaN stays)
            values[j * lanes + k] = value * sign


@not_inlined
def _add_and_subtract(values, lanes):
    """The transform, without a factor."""
    forbid_inlining()
    half = lanes
    while half < values.size:
        for i in range(0, values.size, 2 * half):
            for k in range(i, i + half):
                a, b = values[k], values[k + half]
                values[k], values[k + half] = a + b, a - b
        half *= 2


def _conversions(source: ElementFormat) -> Any:
    """A number read as float64, and a float64 number rounded once and written."""
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
