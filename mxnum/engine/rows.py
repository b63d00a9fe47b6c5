"""Fast loops for blocks along contiguous rows of float32, rounding to nearest even.

A row is taken in groups of blocks, in two phases: first all scales of the group, then all elements, which is what
lets the compiler vectorize both. A group with a NaN, an infinity or an exponent outside the domain of the fast
formulation is done by the definition, and so is everything unless `nearest` says that the hardware rounds so.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from mxnum.engine import magic
from mxnum.engine.jit import compile_loop
from mxnum.formats import E8M0, ElementFormat
from mxnum.modes import Overflow, Rounding, ScaleRule
from mxnum.scalar.convert import make_decode, make_encode
from mxnum.scalar.scale import make_shared_scale
from mxnum.scalar.word import dialect

#: Blocks whose scales are found before their elements are rounded.
GROUP = 64


@cache
def quantize_rows(element: ElementFormat, rule: ScaleRule) -> Any:
    """(bits, run, scales, codes, nearest): scales and codes of every row, a NaN or infinity making its block NaN."""
    encode = make_encode(magic.FLOAT32, element, Rounding.RNE, Overflow.SATURATE)

    @dialect
    def definition(x, scale):
        return encode(x, scale, 0)

    return _two_phases(element, rule, magic.make_nearest_even_code(element), definition)


@cache
def fake_quantize_rows(element: ElementFormat, rule: ScaleRule) -> Any:
    """(bits, run, scales, values, nearest): scales and float32 bit patterns of the values, as `quantize_rows`."""
    encode = make_encode(magic.FLOAT32, element, Rounding.RNE, Overflow.SATURATE)
    decode = make_decode(element, magic.FLOAT32)

    @dialect
    def definition(x, scale):
        return decode(encode(x, scale, 0), scale)

    return _two_phases(element, rule, magic.make_nearest_even_value(element), definition)


def _two_phases(
    element: ElementFormat, rule: ScaleRule, fast: Callable[..., Any], definition: Callable[..., Any]
) -> Any:
    LEAST, GREATEST, LAST_FIELD = magic.domain(element)
    FIRST_OUTSIDE = (LAST_FIELD + 1) << 23
    INFINITY = magic.FLOAT32.max_code + 1
    NAN_SCALE = E8M0.nan_code
    i32 = np.int32
    shared_scale = make_shared_scale(magic.FLOAT32, element, rule)

    def loop(bits, run, scales, out, nearest):
        length = bits.shape[1]
        count = (length + run - 1) // run
        amax, group_scales = np.empty(GROUP, np.int32), np.empty(GROUP, np.int32)
        for r in range(bits.shape[0]):
            row, result, row_scales = bits[r], out[r], scales[r]
            for first in range(0, count, GROUP):
                blocks = min(GROUP, count - first)
                largest = i32(0)
                for b in range(blocks):
                    start = (first + b) * run
                    block = row[start : min(start + run, length)]
                    magnitude = i32(0)
                    for i in range(block.size):
                        magnitude = i32(max(magnitude, i32(block[i] & i32(0x7FFFFFFF))))
                    amax[b] = magnitude
                    largest = i32(max(largest, magnitude))
                least, greatest = i32(NAN_SCALE), i32(0)
                for b in range(blocks):
                    scale = i32(shared_scale(amax[b]))
                    group_scales[b] = scale
                    least, greatest = i32(min(least, scale)), i32(max(greatest, scale))
                if nearest and largest < FIRST_OUTSIDE and least >= LEAST and greatest <= GREATEST:
                    for b in range(blocks):
                        start = (first + b) * run
                        stop = min(start + run, length)
                        block, target, scale = row[start:stop], result[start:stop], group_scales[b]
                        row_scales[first + b] = scale
                        for i in range(block.size):
                            target[i] = fast(block[i], scale)
                else:
                    for b in range(blocks):
                        start = (first + b) * run
                        used = NAN_SCALE if amax[b] >= INFINITY else int(group_scales[b])
                        row_scales[first + b] = used
                        for i in range(start, min(start + run, length)):
                            result[i] = definition(int(row[i]), used)

    return compile_loop(loop)


@cache
def dequantize_rows(element: ElementFormat) -> Any:
    """(codes, run, scales, values): float32 bit patterns of the values of every row."""
    LEAST, GREATEST = magic.decoding_domain(element)
    fast = magic.make_value_of_code(element)
    decode = make_decode(element, magic.FLOAT32)

    def loop(codes, run, scales, values):
        length = codes.shape[1]
        for r in range(codes.shape[0]):
            row, result, row_scales = codes[r], values[r], scales[r]
            for b in range((length + run - 1) // run):
                start, scale = b * run, np.int32(row_scales[b])
                block, target = row[start : min(start + run, length)], result[start : min(start + run, length)]
                if LEAST <= scale <= GREATEST:
                    for i in range(block.size):
                        target[i] = fast(np.int32(block[i]), scale)
                else:
                    for i in range(block.size):
                        target[i] = decode(int(block[i]), scale)

    return compile_loop(loop)
