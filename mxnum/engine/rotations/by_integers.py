"""The Hadamard transform in integer arithmetic, for any numbers in any floating-point environment.

Each number of a block is written as digits of 48 bits, in units of the last place of the block's
smallest number. The loop adds the digits of each position separately, in 64-bit integers, and
propagates carries once, at the end.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from mxnum.definition.pack import make_pack
from mxnum.definition.unpack import FINITE, INFINITE, NAN, make_unpack
from mxnum.definition.word import dialect
from mxnum.engine.machine.jit import compile_loop
from mxnum.formats import ElementFormat
from mxnum.modes import Overflow, Rounding

#: Bits of a digit. A 64-bit integer can hold the sum of 2**14 signed digits, and no block has more
#: than 2**14 numbers.
_DIGIT = 48
_MASK = (1 << _DIGIT) - 1
#: The number of fraction bits of a sum before rounding.
_WIDTH = 60


@dialect
def butterflies(values):
    """Multiply a vector by the Hadamard matrix, in place."""
    half = 1
    while half < values.size:
        for i in range(0, values.size, 2 * half):
            for j in range(i, i + half):
                a, b = int(values[j]), int(values[j + half])
                values[j], values[j + half] = a + b, a - b
        half *= 2


@dialect
def place(digits, index, significand, position):
    """Write significand * 2**position to column `index` of `digits`; abs(significand) < 2**53."""
    first, shift = position // _DIGIT, position % _DIGIT
    sign = -1 if significand < 0 else 1
    magnitude = abs(significand)
    rest = magnitude >> (_DIGIT - shift)
    digits[first, index] = sign * ((magnitude & ((1 << (_DIGIT - shift)) - 1)) << shift)
    digits[first + 1, index] = sign * (rest & _MASK)
    digits[first + 2, index] = sign * (rest >> _DIGIT)


@dialect
def carry(digits, index):
    """Propagate carries in column `index`, so that all digits but the last are in 0..2**48-1.

    The last digit has the sign of the number.
    """
    for k in range(digits.shape[0] - 1):
        digit = int(digits[k, index])
        digits[k, index] = digit & _MASK
        digits[k + 1, index] += digit >> _DIGIT


@dialect
def leading(digits, index):
    """Return (sign, position, significand) of the number in column `index`.

    The magnitude of the number, rounded to odd, is significand * 2**(position - 60). The leading
    bit of the significand is 2**60. Zero has significand zero.
    """
    last = digits.shape[0] - 1
    carry(digits, index)
    sign = 0
    if digits[last, index] < 0:
        sign = 1
        for k in range(last + 1):
            digits[k, index] = -int(digits[k, index])
        carry(digits, index)
    while last >= 0 and digits[last, index] == 0:
        last -= 1
    if last < 0:
        return 0, 0, 0
    # The significand consists of the leading digit and as many bits of the next two digits as fit.
    # To round to odd, also set its last bit if any of the remaining bits of the number is set.
    top = int(digits[last, index])
    middle = int(digits[last - 1, index]) if last > 0 else 0
    low = int(digits[last - 2, index]) if last > 1 else 0
    length = 0
    while top >> length:
        length += 1
    room = _WIDTH + 1 - length
    if room <= _DIGIT:
        significand = (top << room) | (middle >> (_DIGIT - room))
        below = (middle & ((1 << (_DIGIT - room)) - 1)) | low
    else:
        significand = (((top << _DIGIT) | middle) << (room - _DIGIT)) | (low >> (2 * _DIGIT - room))
        below = low & ((1 << (2 * _DIGIT - room)) - 1)
    for k in range(last - 2):
        below |= int(digits[k, index])
    return sign, _DIGIT * last + length - 1, significand | (1 if below else 0)


@cache
def transform(source: ElementFormat) -> Any:
    """Return the loop that transforms marked blocks of `source` numbers exactly.

    The loop is called as
    `loop((x, out), step, (signs, signs_after, exponent), (first, last), marks)`. Of the blocks in
    `range(first, last)`, the loop transforms those with a nonzero mark, and multiplies the sums by
    2**exponent. `by_floats.transform` describes the arrays, the blocks and the signs.
    """
    mantissa, mask = source.mantissa_bits, (1 << source.bits) - 1 if source.bits < 64 else -1
    unpack = make_unpack(source, mantissa)
    pack = make_pack(source, Rounding.RNE, Overflow.IEEE, _WIDTH, 64)
    ONE = 1 << _WIDTH

    def loop(arrays, step, factors, bounds, marks):
        (x, out), (signs, signs_after, exponent), (first, last) = arrays, factors, bounds
        size = signs.size
        significands, exponents = np.empty(size, np.int64), np.empty(size, np.int64)
        infinite = np.empty(size, np.int64)
        for block in range(first, last):
            if not marks[block]:
                continue
            start = (block // step) * step * size + block % step
            least, greatest, infinities, state = 1 << 20, -(1 << 20), 0, FINITE
            for j in range(size):
                sign, e, significand, kind = unpack(int(x[start + j * step]))
                state, infinities = max(state, kind), infinities + (kind == INFINITE)
                sign = -1 if (sign == 1) != (signs[j] < 0) else 1
                infinite[j] = sign if kind == INFINITE else 0
                significands[j], exponents[j] = sign * significand, e
                if significand:
                    least, greatest = min(least, e), max(greatest, e)
            if state != FINITE:
                # Every sum of a block contains all infinities of the block. If they all have the
                # same sign in a sum, the sum is infinite; otherwise it is NaN.
                butterflies(infinite)
                for j in range(size):
                    total = int(infinite[j]) if signs_after[j] > 0 else -int(infinite[j])
                    kind = INFINITE if state == INFINITE and abs(total) == infinities else NAN
                    out[start + j * step] = pack(1 if total < 0 else 0, 0, ONE, kind, 0) & mask
                continue
            digits = np.zeros((max(greatest - least, 0) // _DIGIT + 4, size), np.int64)
            for j in range(size):
                if significands[j]:
                    place(digits, j, int(significands[j]), int(exponents[j]) - least)
            for k in range(digits.shape[0]):
                butterflies(digits[k])
            for j in range(size):
                sign, position, significand = leading(digits, j)
                bits = 0
                if significand:
                    sign ^= 1 if signs_after[j] < 0 else 0
                    bits = pack(sign, least - mantissa + position + exponent, significand, FINITE, 0) & mask
                out[start + j * step] = bits

    return compile_loop(loop)
