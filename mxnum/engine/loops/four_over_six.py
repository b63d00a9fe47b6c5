"""A loop that chooses the better of two scales for each block, for the rule "four over six".

The better scale has the lower sum of rounding errors. The difference between a number and its
rounded value is exact in float64 if the rounded value is zero, or lies between half and twice the
number. The square of a rounding error is exact as a sum of two float64 numbers. The loop keeps each
sum of errors as two float64 numbers, and records whether an addition lost bits. If an addition lost
bits, the loop chooses a scale only if the two sums differ by more than a bound on this loss. If the
two sums of a block are too close, the loop leaves the block undecided, and the caller sums the
block's errors exactly.

Fast path: for blocks of whole vectors, the two sums are first compared in float32. In the following
bounds, A is the largest magnitude of a block, and a factor is a scale times the tensor scale. The
computed product of a factor and a value or threshold of E2M1 has a relative error of at most
2**-23. A rounded value is at most twice the number. So the computed distance between a number and
its rounded value has an error of at most 2**-20.8 A. The rounded value and the threshold between
two values each contribute 2**-22 A to this bound, and the subtraction contributes 2**-24 A. The
distance is at most A, so the computed square of the distance has an error of at most 2**-19.8 A**2.
Computing the difference of the two sums adds an error of less than 2**-20 A for each number, or
2**-20 A**2 if errors are squared. The total error bound of a block is the sum of these bounds over
the numbers of the block. The fast path chooses a scale only if the two sums differ by more than the
total error bound.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from mxnum.definition.float_scale import make_float_scale
from mxnum.definition.word import dialect, select
from mxnum.engine.loops.panels import rows_of
from mxnum.engine.machine import vectors
from mxnum.engine.machine.float32_numbers import number_of
from mxnum.engine.machine.float64_words import multiply_float64
from mxnum.engine.machine.jit import compile_loop
from mxnum.engine.machine.lanes import (
    float32_to_float64,
    float64_to_float32,
    greatest_of,
    integer,
    load,
    low_word,
    multiply_float32,
    store,
    subtract_float32,
    wide,
)
from mxnum.engine.machine.vectors import LENGTH, many, total_float32
from mxnum.engine.rounding import by_factors, paths
from mxnum.engine.rounding.by_factors import make_number_of_scale
from mxnum.formats import ElementFormat, ScaleFormat
from mxnum.modes import FloatScaleRule

#: The E2M1 code of the value 4, to which the second scale maps the largest number of a block.
FOUR = 6
#: If a difference lies between `_LEAST` and `_GREATEST`, its square is exact as a sum of two
#: float64 numbers.
_LEAST, _GREATEST = 2.0**-400, 2.0**400
_SPLIT = 2.0**27 + 1
#: Adding up n errors loses at most n**2 * `_LOST` times their sum. There are at most 2 * n terms,
#: because a squared error has two terms. Adding the kth term loses at most about k * 2**-106 times
#: the sum.
_LOST = 2.0**-100


@dialect
def two_sum(a, b):
    """Return (s, e), where s is a + b rounded, and s + e is a + b exactly."""
    s = a + b
    b_part = s - a
    return s, (a - (s - b_part)) + (b - b_part)


@dialect
def _nearest(x, f):
    """Round a non-negative `x` to the nearest product of `f` and an E2M1 value, ties to even."""
    v = 0.0 if x <= 0.25 * f else 0.5 * f
    v = v if x < 0.75 * f else f
    v = v if x <= 1.25 * f else 1.5 * f
    v = v if x < 1.75 * f else 2.0 * f
    v = v if x <= 2.5 * f else 3.0 * f
    v = v if x < 3.5 * f else 4.0 * f
    return v if x <= 5.0 * f else 6.0 * f


@dialect
def _added(high, low, lost, term):
    """Add `term` to the sum high + low, and return the new (high, low, lost).

    `lost` becomes True if the addition loses bits, and then stays True.
    """
    high, error = two_sum(high, term)
    low, error = two_sum(low, error)
    return high, low, lost | (error != 0.0)


_QUARTER, _HALF, _3_4, _5_4, _3_2, _7_4, _2, _5_2, _3, _7_2, _4, _5, _6 = (
    int(np.float32(number).view(np.int32)) for number in (0.25, 0.5, 0.75, 1.25, 1.5, 1.75, 2, 2.5, 3, 3.5, 4, 5, 6)
)
#: The comparison in float32 is valid only if the block's largest magnitude and both factors lie
#: between `_LEAST_WIDE` and `_GREATEST_WIDE`.
_LEAST_WIDE, _GREATEST_WIDE = 2.0**-50, 2.0**50
#: A is the largest magnitude of a block. Each number of the block adds at most `_TERM` * A to the
#: error of the difference of the two sums, or `_SQUARE` * A**2 if errors are squared.
_TERM, _SQUARE = 2.0**-19.8 + 2.0**-20, 2.0**-18.8 + 2.0**-20


@dialect
def _difference(x, f):
    """Return the approximate distance of each number in `x` to the nearest `f` * (E2M1 value).

    The vector `x`, `f` and the result hold float32 bit patterns.
    """
    v = select(x > multiply_float32(f, _QUARTER), multiply_float32(f, _HALF), 0)
    v = select(x > multiply_float32(f, _3_4), f, v)
    v = select(x > multiply_float32(f, _5_4), multiply_float32(f, _3_2), v)
    v = select(x > multiply_float32(f, _7_4), multiply_float32(f, _2), v)
    v = select(x > multiply_float32(f, _5_2), multiply_float32(f, _3), v)
    v = select(x > multiply_float32(f, _7_2), multiply_float32(f, _4), v)
    v = select(x > multiply_float32(f, _5), multiply_float32(f, _6), v)
    return subtract_float32(x, v) & 0x7FFFFFFF


@cache
def choose(source: ElementFormat, element: ElementFormat, scale: ScaleFormat, rule: FloatScaleRule) -> Any:
    """Return a loop that chooses the better of two scales for each block.

    The loop is called as `loop(x, bits, scales, tensor, shape, bounds, undecided, by_floats)`. The
    loop stores the better scale of each block, and returns the number of undecided blocks. For an
    undecided block, the loop stores the first candidate scale and sets the block's item in
    `undecided` to 1. `bits` holds the bit patterns of `x`, and `tensor` holds tensor scales. If
    `by_floats` is False, the loop sums no errors, and leaves every block undecided whose two
    candidate scales differ. `source` is float32 or float64.
    """
    finds_fast = paths.FOUND.covers(source, element, scale=scale, rule=FloatScaleRule.NEAREST)
    make_scale = by_factors.make_scale if finds_fast else make_float_scale
    six_of, four_of = (make_scale(source, element, scale, rule, aim) for aim in (None, FOUR))
    exact_six_of, exact_four_of = (make_float_scale(source, element, scale, rule, aim) for aim in (None, FOUR))
    IN_VECTORS, number_of_scale = source.bits == 32 and vectors.available(), make_number_of_scale(scale)
    largest_of_block, balance_of = _make_largest(source, IN_VECTORS), _make_balance(source, rule)
    balance_in_vectors = _make_balance_in_vectors(source, rule)

    def loop(x, bits, scales, tensor, shape, bounds, undecided, by_floats):
        _, columns, _, run, _ = shape
        first, last, begin, end = bounds
        per_row, count = (columns + run - 1) // run, 0
        step, words = 1 if tensor.size > 1 else 0, np.empty(2, np.int64)
        factors = words.view(np.float64)
        for band in range(first, last):
            first_row, last_row = rows_of(band, shape)
            for column in range(begin, end, run):
                place, stop = band * per_row + column // run, min(column + run, end)
                block = first_row, last_row, columns, column, stop
                amax, in_vectors = largest_of_block(bits, block)
                t = wide(load(tensor, place * step))
                if by_floats:
                    six, four = wide(six_of(amax, t)), wide(four_of(amax, t))
                else:
                    six, four = wide(exact_six_of(amax, t)), wide(exact_four_of(amax, t))
                store(scales, place, six)
                if six == four:
                    continue
                balance = 0
                if by_floats:
                    wide_t = float32_to_float64(low_word(t))
                    words[0] = multiply_float64(number_of_scale(six), wide_t)
                    words[1] = multiply_float64(number_of_scale(four), wide_t)
                    f6, f4 = factors[0], factors[1]
                    if IN_VECTORS and in_vectors:
                        narrow6, narrow4 = float64_to_float32(words[0]), float64_to_float32(words[1])
                        words[0] = float32_to_float64(low_word(amax))
                        balance = balance_in_vectors(bits, block, factors[0], f6, f4, narrow6, narrow4)
                        if balance != 0:
                            # A select, because a branch would be mispredicted half the time.
                            store(scales, place, four if balance < 0 else six)
                            continue
                    balance = balance_of(x, bits, block, f6, f4)
                if balance == 0:
                    undecided[place] = 1
                    count += 1
                elif balance < 0:
                    store(scales, place, four)
        return count

    return compile_loop(loop)


# The functions below describe a block as (first row, row after the last, columns of a row, first
# column, column after the last). Each function `balance` compares the sums of errors of two scales.
# It returns -1 if the second scale has the lower sum, 1 if the second scale does not, and 0 if the
# sums are too close to decide.


def _make_largest(source: ElementFormat, in_vectors: bool) -> Callable[..., Any]:
    """Return `largest_of_block(bits, block)`, which returns (largest finite magnitude, flag).

    The flag is True only if the block lies in one row and consists of whole vectors of finite
    numbers.
    """
    MAGNITUDE, MAX, IN_VECTORS = (1 << (source.bits - 1)) - 1, source.max_code, in_vectors

    @dialect
    def largest_of_block(bits, block):
        first_row, last_row, columns, column, stop = block
        amax, start = np.int64(0), first_row * columns + column
        if IN_VECTORS and last_row - first_row == 1 and (stop - column) % LENGTH == 0:
            for i in range(start, start + stop - column, LENGTH):
                amax = max(amax, np.int64(greatest_of(bits, i, LENGTH, MAGNITUDE)))
            if amax <= MAX:
                return amax, True
        amax = np.int64(0)
        for row in range(first_row, last_row):
            for i in range(row * columns + column, row * columns + stop):
                magnitude = np.int64(integer(load(bits, i) & MAGNITUDE))
                amax = max(amax, magnitude if magnitude <= MAX else np.int64(0))
        return amax, False

    return largest_of_block


def _make_balance_in_vectors(source: ElementFormat, rule: FloatScaleRule) -> Callable[..., Any]:
    """Return a function that compares the sums of errors of two scales in float32.

    The function is called as `balance(bits, block, largest, f6, f4, narrow6, narrow4)`. `largest`
    is the largest magnitude of the block, and `f6` and `f4` are the factors of the two scales, all
    as float64 numbers. `narrow6` and `narrow4` are the same factors as float32 bit patterns.
    """
    MAGNITUDE, SQUARES = (1 << (source.bits - 1)) - 1, rule.error_power == 2

    @dialect
    def balance_in_vectors(bits, block, largest, f6, f4, narrow6, narrow4):
        first_row, _, columns, column, stop = block
        start, balance = first_row * columns + column, 0.0
        for i in range(start, start + stop - column, LENGTH):
            numbers = load(bits, many(i)) & MAGNITUDE
            near6, near4 = _difference(numbers, narrow6), _difference(numbers, narrow4)
            if SQUARES:
                near6, near4 = multiply_float32(near6, near6), multiply_float32(near4, near4)
            balance += np.float64(number_of(total_float32(subtract_float32(near4, near6))))
        term = _SQUARE * largest * largest if SQUARES else _TERM * largest
        is_clear = min(largest, f6) > _LEAST_WIDE and max(largest, f4) < _GREATEST_WIDE
        if is_clear and abs(balance) > (stop - column) * term:
            return -1 if balance < 0.0 else 1
        return 0

    return balance_in_vectors


def _make_balance(source: ElementFormat, rule: FloatScaleRule) -> Callable[..., Any]:
    """Return a function that compares the sums of errors of two scales.

    The function keeps each sum as two float64 numbers. The function is called as
    `balance(x, bits, block, f6, f4)`. `f6` and `f4` are the factors of the two scales (scale times
    tensor scale), as float64 numbers.
    """
    MAGNITUDE, MAX, SQUARES = (1 << (source.bits - 1)) - 1, source.max_code, rule.error_power == 2

    @dialect
    def balance_of(x, bits, block, f6, f4):
        first_row, last_row, columns, column, stop = block
        h6, l6, h4, l4, lost = 0.0, 0.0, 0.0, 0.0, False
        is_exact, elements = True, np.float64((last_row - first_row) * (stop - column))
        for row in range(first_row, last_row):
            for i in range(row * columns + column, row * columns + stop):
                if integer(load(bits, i) & MAGNITUDE) > MAX:
                    continue
                number = abs(np.float64(x[i]))
                v6, v4 = _nearest(number, f6), _nearest(number, f4)
                is_exact &= (v6 == 0.0) | ((number <= 2.0 * v6) & (v6 <= 2.0 * number))
                is_exact &= (v4 == 0.0) | ((number <= 2.0 * v4) & (v4 <= 2.0 * number))
                d6, d4 = abs(number - v6), abs(number - v4)
                if SQUARES:
                    is_exact &= (d6 == 0.0) | ((d6 > _LEAST) & (d6 < _GREATEST))
                    is_exact &= (d4 == 0.0) | ((d4 > _LEAST) & (d4 < _GREATEST))
                    (d6, e6), (d4, e4) = _square(d6), _square(d4)
                    h6, l6, lost = _added(h6, l6, lost, e6)
                    h4, l4, lost = _added(h4, l4, lost, e4)
                h6, l6, lost = _added(h6, l6, lost, d6)
                h4, l4, lost = _added(h4, l4, lost, d4)
        high, error_high = two_sum(h4, -h6)
        low, error_low = two_sum(l4, -l6)
        total, error = two_sum(high, low)
        rest = abs(error) + abs(error_high) + abs(error_low)
        is_clear = abs(total) > 4.0 * rest + ((h4 + h6) * (_LOST * elements * elements) if lost else 0.0)
        is_zero = (not lost) and total == 0.0 and rest == 0.0
        if is_exact and (is_clear or is_zero):
            return -1 if total < 0.0 else 1
        return 0

    return balance_of


@dialect
def _square(d):
    """Return (p, e), where p is d * d rounded, and p + e is d * d exactly."""
    far = d * _SPLIT
    a = far - (far - d)
    b, p = d - a, d * d
    return p, ((a * a - p) + 2.0 * a * b) + b * b
