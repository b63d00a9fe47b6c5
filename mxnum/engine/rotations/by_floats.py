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

from mxnum.engine.machine.jit import compile_loop
from mxnum.formats import FLOATS, ElementFormat
from mxnum.modes import Overflow, Rounding
from mxnum.scalar.convert import SCALE_BIAS, make_encode
from mxnum.scalar.word import dialect

#: Blocks that are transformed side by side, so that the compiler can vectorize.
LANES = 8
_FLOAT32, _FLOAT64 = FLOATS["float32"], FLOATS["float64"]


@cache
def transform(source: ElementFormat) -> Any:
    """(x, out, step, signs, signs_after, factor, (first, last), marks) -> blocks left, which are marked.

    Arrays are flat and hold bit patterns. Block n begins at (n // step) * step * size + n % step, and its numbers are
    `step` apart. `signs` multiply what is read, `signs_after` what is summed; `factor` is a power of two.
    """
    widen, narrow = _conversions(source)

    def loop(x, out, step, signs, signs_after, factor, bounds, marks):
        first, last = bounds
        size = signs.size
        reach, left = 4.0 * size, 0
        values, starts = np.empty((size, LANES), np.float64), np.empty(LANES, np.int64)
        largest, fits = np.empty(LANES, np.float64), np.empty(LANES, np.bool_)
        for start in range(first, last, LANES):
            lanes = min(LANES, last - start)
            for k in range(LANES):
                block = start + min(k, lanes - 1)
                starts[k] = (block // step) * step * size + block % step
                largest[k], fits[k] = 0.0, True
            for j in range(size):
                for k in range(LANES):
                    value = widen(x, starts[k] + j * step)
                    values[j, k] = value
                    largest[k] = max(largest[k], abs(value))
            for j in range(size):
                for k in range(LANES):
                    c, value = reach * largest[k], values[j, k]
                    fits[k] &= (value + c) - c == value
                    values[j, k] = value * signs[j]
            half = 1
            while half < size:
                for i in range(0, size, 2 * half):
                    for j in range(i, i + half):
                        for k in range(LANES):
                            a, b = values[j, k], values[j + half, k]
                            values[j, k], values[j + half, k] = a + b, a - b
                half *= 2
            for k in range(lanes):
                marks[start + k] = not fits[k]
                left += not fits[k]
            for j in range(size):
                for k in range(lanes):
                    if fits[k]:
                        # (an exact zero is +0)
                        narrow(out, starts[k] + j * step, (values[j, k] * signs_after[j] + 0.0) * factor)
        return left

    return compile_loop(loop)


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
