"""Blocks of few values, for which quantizers have code of their own."""

from __future__ import annotations

import numpy as np

from mxnum.conformance.cases import grid
from mxnum.conformance.cases.generator import Generator
from mxnum.conformance.task import Task
from mxnum.memory.dtypes import Array


def few_values(task: Task, anchors: Array, words: Generator) -> Array:
    """Return blocks of few values: zeros, one number, one NaN or infinity, falling powers, alternating signs.

    In the last blocks, one element alone decides the scale. It is the median of `anchors` (bit
    patterns of maxima), at each position and with each sign, among numbers of a fourth of it.
    """
    source, k = task.source, task.block
    dtype = anchors.dtype
    sign = dtype.type(1 << (source.bits - 1))
    one = grid.narrowed(np.array([1.0]), source)[0]
    rows = [np.zeros(k, dtype), np.full(k, sign), np.where(np.arange(k) % 2, sign, dtype.type(0))]
    for special in grid.special_patterns(source):
        alone, first, last, inside, everywhere = (np.zeros(k, dtype) for _ in range(5))
        alone[k // 2] = special
        first[:], first[0] = one, special
        last[:], last[-1] = one, special
        inside[:] = words.patterns(source, k)
        inside[k // 3] = special
        everywhere[:] = special
        rows += [alone, first, last, inside, everywhere]
    powers = np.ldexp(1.0, -np.arange(k))
    for top in (0, 8, -100, 100):
        falling = grid.narrowed(np.ldexp(powers, top), source)
        rows += [falling, falling[::-1], falling ^ np.where(np.arange(k) % 2, sign, dtype.type(0))]
    for anchor in anchors[:: max(1, len(anchors) // 64)]:
        constant, single = np.full(k, anchor), np.zeros(k, dtype)
        single[words.integers(0, k - 1, 1)[0]] = anchor
        rows += [constant, single]
    middle = np.sort(anchors)[len(anchors) // 2]
    places = np.full((2 * k, k), max(int(middle) - (2 << source.mantissa_bits), 0), dtype)
    places[np.arange(2 * k), np.arange(2 * k) % k] = np.repeat([middle, middle | sign], k)
    return np.concatenate([np.stack(rows), places])
