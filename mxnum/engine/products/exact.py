"""Exact sums of exact products, in a fixed-point accumulator that is as wide as the operands need.

The accumulator holds base 2**32 digits in signed 64-bit limbs, the least significant first, and
propagates carries rarely.
"""

from __future__ import annotations

from mxnum.definition.unpack import FINITE, make_normalize
from mxnum.definition.word import dialect
from mxnum.engine.products.float32_by_integers import make_round
from mxnum.engine.products.terms import INFINITY, NOT_A_NUMBER, ZERO

#: States of a sum with nonfinite products. Each sign of infinity has one bit; NaN has both bits.
PLUS, MINUS, INVALID = 1, 2, 3

_DIGIT = 32
_DIGIT_MASK = (1 << _DIGIT) - 1
_HALF = 27
_HALF_MASK = (1 << _HALF) - 1
#: Carries are propagated after this many products. Each product changes a limb by less than 2**36,
#: so after 2**20 products all limbs are far below 2**63.
CARRY_EVERY = 1 << 20
#: The exact sum in the limbs is normalized to this many significand bits before it is rounded. The
#: last bit is sticky.
SUM_WIDTH = 60

_normalize_sum = make_normalize(SUM_WIDTH)
_round_sum = make_round(SUM_WIDTH)


@dialect
def add_shifted(limbs, value, position, negative):
    """Add value * 2**position to `limbs`, or subtract it if `negative`.

    `value` is at least 0 and below 2**56.
    """
    digit, shift = position >> 5, position & 31
    low, high = (value & _DIGIT_MASK) << shift, (value >> _DIGIT) << shift
    middle = (low >> _DIGIT) + (high & _DIGIT_MASK)
    if negative:
        limbs[digit] -= low & _DIGIT_MASK
        limbs[digit + 1] -= middle
        limbs[digit + 2] -= high >> _DIGIT
    else:
        limbs[digit] += low & _DIGIT_MASK
        limbs[digit + 1] += middle
        limbs[digit + 2] += high >> _DIGIT


@dialect
def add_product(limbs, a, b, position):
    """Add a * b * 2**position to `limbs`, for |a|, |b| < 2**53."""
    if a == 0 or b == 0:
        return
    negative = (a < 0) != (b < 0)
    a, b = abs(a), abs(b)
    low_a, high_a, low_b, high_b = a & _HALF_MASK, a >> _HALF, b & _HALF_MASK, b >> _HALF
    add_shifted(limbs, low_a * low_b, position, negative)
    if high_a | high_b:
        add_shifted(limbs, low_a * high_b + high_a * low_b, position + _HALF, negative)
        add_shifted(limbs, high_a * high_b, position + 2 * _HALF, negative)


@dialect
def carry(limbs):
    """Propagate carries, so that all digits but the last lie in 0..2**32-1.

    The last digit has the sign of the sum.
    """
    for i in range(limbs.size - 1):
        up = limbs[i] >> _DIGIT
        limbs[i] &= _DIGIT_MASK
        limbs[i + 1] += up


@dialect
def rounded(limbs, position):
    """Return the float32 bit pattern of limbs * 2**position, rounded once.

    A sum of zero is +0. The function resets the accumulator to zero.
    """
    carry(limbs)
    last = limbs.size - 1
    negative = limbs[last] < 0
    if negative:
        for i in range(limbs.size):
            limbs[i] = -limbs[i]
        carry(limbs)
    while last >= 0 and limbs[last] == 0:
        last -= 1
    if last < 0:
        return 0
    # `value` has 30 to 61 bits: the leading digit and the upper 29 bits of the next digit. The last
    # bit of `value` is sticky: it is also set if any lower bit of the sum is set.
    value = int(limbs[last]) << 29
    below = 0
    if last > 0:
        value |= int(limbs[last - 1]) >> 3
        below = int(limbs[last - 1]) & 7
        for i in range(last - 1):
            below |= int(limbs[i])
    if below:
        value |= 1
    limbs[:] = 0
    exponent, significand = _normalize_sum(position + _DIGIT * last - 29 + SUM_WIDTH, value)
    return _round_sum(1 if negative else 0, exponent, significand, FINITE)


def limbs_for(lowest: int, highest: int) -> int:
    """Return the number of limbs of an accumulator for a sum of up to 2**63 products.

    The products are m * 2**e with |m| < 2**106 and lowest <= e <= highest.
    """
    return (highest - lowest + 106 + 64) // _DIGIT + 3


@dialect
def state_of_product(a, b):
    """Return the state of the product of two numbers of given classes.

    The state is PLUS or MINUS for an infinity, INVALID for NaN, and 0 for a finite product.
    """
    if a >= NOT_A_NUMBER or b >= NOT_A_NUMBER:
        return INVALID
    if a < INFINITY and b < INFINITY:
        return 0
    if ZERO <= a < INFINITY or ZERO <= b < INFINITY:
        return INVALID
    return MINUS if (a ^ b) & 1 else PLUS


@dialect
def state_of(classes_a, classes_b, start, stop):
    """Return the state of the sum of the products `start` to `stop` - 1 of two rows.

    `classes_a` and `classes_b` are the classes of the rows' elements. The state of the sum is the
    bitwise or of the states of all products: PLUS, MINUS, INVALID or 0.
    """
    state = 0
    for k in range(start, stop):
        state |= state_of_product(int(classes_a[k]), int(classes_b[k]))
    return state


@dialect
def special_float32(state):
    """Return the bits of the float32 infinity or NaN for a state other than 0."""
    return 0x7F800000 if state == PLUS else 0xFF800000 if state == MINUS else 0x7FC00000
