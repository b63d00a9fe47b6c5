"""Four over six: for each block, choose the scale with the smaller error out of two scales."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np

from mxnum.definition.float_scale import make_float_scale
from mxnum.engine.loops import four_over_six as loops
from mxnum.engine.loops.panels import rows_of
from mxnum.engine.machine import workers
from mxnum.engine.request import Settings
from mxnum.engine.traversal.block_walk import Walk
from mxnum.formats import FLOATS, ElementFormat
from mxnum.memory.dtypes import Array, signed_bits, stored_bits


def choose_scales(x: Array, scales: Array, tensor: Array, walk: Walk, asked: Settings) -> None:
    """Write the chosen scale code of each block of a contiguous array to `scales`.

    Compiled loops compare the errors of a block under both scales in float arithmetic. If float
    arithmetic cannot decide between the scales, this function compares the errors as exact
    fractions.
    """
    source, scale = FLOATS["float64" if asked.source.bits == 64 else "float32"], asked.format.scale
    numbers = x.ravel().astype(source.name, copy=False)
    bits, codes, tensors = signed_bits(numbers), stored_bits(scales.ravel()), tensor.ravel().view(np.uint32)
    walk = walk.in_bands
    undecided = np.zeros(codes.size, np.uint8)
    find = loops.choose(source, asked.element, scale, asked.float_rule)
    if find(numbers, bits, codes, tensors, walk.shape, walk.whole, undecided, workers.may_use_floats()) == 0:
        return
    four_of = make_float_scale(source, asked.element, scale, asked.float_rule, loops.FOUR)
    for place in np.flatnonzero(undecided):
        magnitudes = _block(bits, int(place), walk.shape) & ((1 << (source.bits - 1)) - 1)
        magnitudes = magnitudes[magnitudes <= source.max_code]
        t = int(tensors[int(place) if tensors.size > 1 else 0])
        four, of_tensor = int(four_of(int(magnitudes.max()), t)), _number(t, FLOATS["float32"])
        block = [_number(code, source) for code in magnitudes.tolist()]
        errors = [
            _error(block, Fraction(scale.value(code)) * of_tensor, asked.element, asked.float_rule.error_power)
            for code in (int(codes[place]), four)
        ]
        if errors[1] < errors[0]:
            codes[place] = four


def _number(code: int, fmt: ElementFormat) -> Fraction:
    """Return the number that a magnitude code represents, as a fraction.

    The function uses integer arithmetic on the fields of the code, because a processor may be set
    to read subnormal floats as zero.
    """
    exponent, mantissa = divmod(code, 1 << fmt.mantissa_bits)
    significand = mantissa + (exponent > 0) * (1 << fmt.mantissa_bits)
    return significand * Fraction(2) ** (max(exponent, 1) - fmt.bias - fmt.mantissa_bits)


def _block(numbers: Array, place: int, shape: tuple[int, ...]) -> Array:
    """Return the elements of the block with the index `place`."""
    _, columns, _, run, _ = shape
    band, at = divmod(place, -(-columns // run))
    first, last = rows_of(band, shape)
    return numbers[first * columns : last * columns].reshape(last - first, columns)[:, at * run : (at + 1) * run]


def _error(magnitudes: list[Fraction], factor: Fraction, element: ElementFormat, power: int) -> Fraction:
    """Return the exact sum of the rounding errors of magnitudes, each error raised to `power`.

    Each magnitude is rounded, to nearest even, to a product of `factor` and a value of `element`.
    """
    values: list[Any] = [Fraction(element.value(code)) * factor for code in range(element.max_code + 1)]
    total = Fraction(0)
    for x in magnitudes:
        code = 0
        for above, (low, high) in enumerate(pairwise(values), 1):
            middle = (low + high) / 2
            code = above if x > middle or (x == middle and above % 2 == 0) else code
        total += abs(x - values[code]) ** power
    return total
