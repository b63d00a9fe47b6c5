"""Compiled functions that evaluate the rules of `family` with integers, one case at a time.

This module shares no code with `mxnum.definition` and `mxnum.reference`. A rule is a row of
integers with the columns `COLUMNS`; a format is a row with the columns `BITS` to `KIND`.
A number is a tuple (significand, exponent, negative, state). The significand is signed. `negative`
is the sign bit, 0 or 1, and also gives the sign of a zero. `state` is 0 if the number is finite;
otherwise it is `PLUS`, `MINUS` or `NAN`. Functions that add read their terms from a table of
numbers, an array of shape (numbers, 4).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

Array = np.ndarray[Any, Any]
Number = Any
_jit = njit(cache=True, nogil=True, boundscheck=False, error_model="numpy")
_inner = njit(nogil=True, boundscheck=False, error_model="numpy", no_cfunc_wrapper=True, no_cpython_wrapper=True)

#: The columns of the row of integers that describes a rule.
COLUMNS = (
    "terms", "combine", "addend", "order", "align", "fraction_bits", "normalize", "rounding", "result_bits",
    "add_rounding", "carry", "flush_operands", "flush_addend", "flush_result", "zero_exponent", "zero", "overflow",
    "infinities", "nan", "group",
)  # fmt: skip
(
    TERMS, COMBINE, ADDEND, ORDER, ALIGN, FRACTION, NORMALIZE, ROUNDING, RESULT_BITS, ADD_ROUNDING, CARRY,
    FLUSH_OPERANDS, FLUSH_ADDEND, FLUSH_RESULT, ZERO_EXPONENT, ZERO, OVERFLOW, INFINITIES, NAN_BITS, GROUP,
) = range(len(COLUMNS))  # fmt: skip
CHAIN, ADD, TREE, HALVES = range(4)
TERM, BEFORE, AFTER, NONE = range(4)
RTZ, FLOOR, RNE, STICKY = range(4)
TO_ZERO, TO_NEAREST, TO_FLOOR = range(3)
IEEE, ALL_NAN, FINITE = range(3)
#: The columns of the row of integers that describes a format. KIND is 2 for scales that are powers
#: of two, 1 for formats with NaN or infinities, and 0 for all other formats.
BITS, MANTISSA, BIAS, MAX_CODE, INFINITY, EMAX, KIND = range(7)
#: The row numbers in a table of the formats of a `family.Problem`: both operands, the sum, the
#: result and the scales.
A, B, SUM, RESULT, SCALE = range(5)
#: The states of +infinity, -infinity and NaN. The state of a sum is the bitwise OR of the states of
#: its terms, so the sum of +infinity and -infinity is NaN.
PLUS, MINUS, NAN = 1, 2, 3
#: The exponent that zeros get so that they do not affect alignment. All other exponents are larger.
NO_EXPONENT = -(10**6)
_FAR = 62
_LIMBS = 64
_LOW = (1 << 32) - 1


@_inner
def _length(x: int) -> Any:
    """Return the bit length of a number that is not negative."""
    n = 0
    while x >= 1 << 16:
        x >>= 16
        n += 16
    while x:
        x >>= 1
        n += 1
    return n


@_inner
def decode(code: int, fmt: Array, flush: int, infinities: int) -> Number:
    """Return the number that `code` encodes.

    The significand is an integer number of units of the last mantissa bit.
    """
    if fmt[KIND] == 2:
        return (0, 0, 0, NAN) if code > fmt[MAX_CODE] else (1, code - fmt[BIAS], 0, 0)
    m, width = fmt[MANTISSA], fmt[BITS] - 1
    negative = code >> width & 1
    magnitude = code & ((1 << width) - 1)
    if fmt[KIND] == 1 and magnitude > fmt[MAX_CODE] and infinities != FINITE:
        infinite = magnitude == fmt[INFINITY] and infinities == IEEE
        return 0, 0, negative, (MINUS if negative else PLUS) if infinite else NAN
    field, sig = magnitude >> m, magnitude & ((1 << m) - 1)
    if field:
        sig |= 1 << m
    elif flush:
        sig = 0
    return -sig if negative else sig, max(field, 1) - fmt[BIAS], negative, 0


@_inner
def _product(x: Number, y: Number, zero: int) -> Number:
    """Return the product of two numbers. A factor that is zero gets the exponent `zero`."""
    negative = x[2] ^ y[2]
    state = 0
    if x[3] | y[3]:
        of_zero = (x[3] == 0 and x[0] == 0) or (y[3] == 0 and y[0] == 0)
        state = NAN if x[3] == NAN or y[3] == NAN or of_zero else MINUS if negative else PLUS
    first = zero if x[0] == 0 and x[3] == 0 else x[1]
    second = zero if y[0] == 0 and y[3] == 0 else y[1]
    return x[0] * y[0], first + second, negative, state


@_inner
def _normalized(sig: int, exponent: int, point: int) -> Any:
    """Return the significand, shifted into [1, 2), and the exponent after this shift.

    Significands have `point` fraction bits, which are so many that the shift loses no bits.
    """
    if sig == 0:
        return sig, exponent
    lift = point + 1 - _length(abs(sig))
    return sig >> -lift if lift < 0 else sig << lift, exponent - lift


@_inner
def _products(row: Array, formats: Array, point: int, order: Array, case: Any, table: Array) -> None:
    """Multiply the operands of a case, and write the terms to rows 1, 2, ... of `table`."""
    a, b = case
    k, group, zero = len(order), row[GROUP], row[ZERO_EXPONENT]
    blocks = len(a) - k
    scaled = blocks > 0
    shift = point - formats[A, MANTISSA] - formats[B, MANTISSA] - (2 * formats[SCALE, MANTISSA] if scaled else 0)
    for start in range(0, k, group):
        total, exponent, negative, state = 0, 0, 1, 0
        for at in range(start, start + group):
            i = order[at]
            x = decode(a[i], formats[A], row[FLUSH_OPERANDS], row[INFINITIES])
            y = decode(b[i], formats[B], row[FLUSH_OPERANDS], row[INFINITIES])
            one = _product(x, y, zero)
            if group > 1:  # a group's sum is one term, and the exponent of the term comes from the scales
                total += one[0] << (shift + x[1] + y[1])
            else:
                total, exponent = one[0] << shift, one[1]
            negative &= one[2]
            state |= one[3]
        if scaled:
            block = k + order[start] * blocks // k
            for code in (a[block], b[block]):
                scale = decode(code, formats[SCALE], 0, IEEE)
                exponent += zero if scale[0] == 0 and scale[3] == 0 else scale[1]
                state = _product((total, 0, negative, state), scale, zero)[3]
                total *= scale[0]
        if row[NORMALIZE]:
            total, exponent = _normalized(total, exponent, point)
        slot = table[1 + start // group]
        slot[0], slot[1], slot[2], slot[3] = total, exponent, negative, state


@_inner
def _exact(table: Array, first: int, last: int, limbs: Array) -> Any:
    """Return the sum of the terms in rows `first` to `last` - 1, as an integer and an exponent.

    The sum is integer * 2**(exponent - p), where p is the number of fraction bits of the terms. If
    the exact sum is too long for the integer, its low bits are dropped. If any dropped bit is set,
    the last bit of the integer is set, too.
    """
    least, high = 1 << 20, -(1 << 20)
    for i in range(first, last):
        if table[i, 0] != 0:
            least, high = min(least, table[i, 1]), max(high, table[i, 1])
    if high < least:
        return 0, 0
    used = (high - least) // 32 + 5
    limbs[:used] = 0
    for i in range(first, last):
        if table[i, 0] != 0:
            distance, sign = table[i, 1] - least, -1 if table[i, 0] < 0 else 1
            at, shift, magnitude = distance >> 5, distance & 31, abs(table[i, 0])
            low, top = (magnitude & _LOW) << shift, (magnitude >> 32) << shift
            limbs[at] += sign * (low & _LOW)
            limbs[at + 1] += sign * ((low >> 32) + (top & _LOW))
            limbs[at + 2] += sign * (top >> 32)
    negative = _carried(limbs, used) < 0
    if negative:
        for i in range(used):
            limbs[i] = -limbs[i]
        _carried(limbs, used)
    top = used - 1
    while top > 0 and limbs[top] == 0:
        top -= 1
    total, unit = limbs[0], least
    if top > 0:
        rest = limbs[top - 1] & 15
        for i in range(top - 1):
            rest |= limbs[i]
        total = limbs[top] << 28 | limbs[top - 1] >> 4 | (1 if rest else 0)
        unit = least + 32 * top - 28
    return -total if negative else total, unit


@_inner
def _carried(limbs: Array, used: int) -> Any:
    """Reduce limbs to 32 bits each, and return the carry out of the last limb."""
    carry = 0
    for i in range(used):
        value = limbs[i] + carry
        limbs[i] = value & _LOW
        carry = value >> 32
    return carry


@_inner
def _aligned(sig: int, distance: int, left: int, align: int) -> Any:
    """Return `sig` shifted left by `left`, then right by `distance`, rounded as `align` says."""
    if align == FLOOR:
        return (sig << left) >> distance
    magnitude = abs(sig) << left
    term = magnitude >> distance
    lost = magnitude - (term << distance)
    if align == STICKY:
        term |= 1 if lost else 0
    elif align == RNE and distance > 0:
        half = 1 << (distance - 1)
        term += 1 if lost > half or (lost == half and term & 1) else 0
    return -term if sig < 0 else term


@_inner
def _fused(table: Array, first: int, last: int, row: Array, fmt: Array, point: int, limbs: Array) -> Number:
    """Return the rounded sum of the terms in rows `first` to `last` - 1 of a table."""
    largest, negative, state = table[first, 1], 1, 0
    for i in range(first, last):
        largest = max(largest, table[i, 1])
        negative &= table[i, 2]
        state |= table[i, 3]
    if row[FRACTION] < 0:
        total, unit = _exact(table, first, last, limbs)
        return _rounded(total, unit - point, negative, state, row, fmt, False)
    fraction = row[FRACTION] + (1 if row[ALIGN] == STICKY else 0)
    left, right = max(fraction - point, 0), max(point - fraction, 0)
    total = 0
    for i in range(first, last):
        distance = min(largest - table[i, 1] + right, _FAR)
        total += _aligned(table[i, 0], distance, left, row[ALIGN])
    if row[CARRY]:
        half = 1 << (fraction + row[CARRY])
        total = ((total + half) & (2 * half - 1)) - half
    return _rounded(total, largest - fraction, negative, state, row, fmt, False)


@_inner
def _rounded(total: int, unit: int, negative: int, state: int, row: Array, fmt: Array, outside: bool) -> Number:
    """Return total * 2**unit, rounded to the `result_bits` of a rule.

    `outside` is True for additions that are not part of a sum. They are rounded to the number of
    bits of the accumulator, as the rule's `add_rounding` says.
    """
    m = fmt[MANTISSA]
    bits, mode = (m, row[ADD_ROUNDING]) if outside else (row[RESULT_BITS], row[ROUNDING])
    minus, magnitude = total < 0, abs(total)
    quantum = max(_length(magnitude) - 1 + unit, 1 - fmt[BIAS]) - bits
    drop = 0 if magnitude == 0 else quantum - unit
    down, up = min(max(drop, 0), _FAR), min(max(-drop, 0), _FAR)
    sig = magnitude >> down
    lost = magnitude - (sig << down)
    if lost != 0:
        half = 1 << (down - 1)
        nearest = lost > half or (lost == half and sig & 1)
        sig += 1 if (mode == TO_NEAREST and nearest) or (mode == TO_FLOOR and minus) else 0
    sig <<= up
    exponent = quantum + bits
    if sig >> (bits + 1):
        sig, exponent = sig >> 1, exponent + 1
    sig <<= m - bits
    if row[FLUSH_RESULT] and sig < 1 << m:
        sig = 0
    sign = 1 if minus or (total == 0 and negative) else 0
    if not outside and row[ZERO] == 0 and sig == 0:
        sign = 0
    if sig == 0:
        exponent = 1 - fmt[BIAS]
    elif exponent > fmt[EMAX]:
        if row[OVERFLOW] == 0 and state == 0:
            state = MINUS if sign else PLUS
        sig, exponent = ((1 << (m + 1)) - 1) >> (m - bits) << (m - bits), fmt[EMAX]
    return -sig if sign else sig, exponent, sign, state


@_inner
def _sum(x: Any, y: Any, row: Array, fmt: Array) -> Number:
    """Return the sum of two accumulators, rounded by `row[ADD_ROUNDING]`."""
    largest = max(NO_EXPONENT if x[0] == 0 else x[1], NO_EXPONENT if y[0] == 0 else y[1])
    total = 0
    for sig, exponent in ((x[0], x[1]), (y[0], y[1])):
        distance = 0 if sig == 0 else largest - exponent
        if distance <= 27:
            total += sig << (27 - distance)
        else:
            total += 1 if sig > 0 else -1
    unit = 0 if largest == NO_EXPONENT else largest - fmt[MANTISSA] - 27
    return _rounded(total, unit, x[2] & y[2], x[3] | y[3], row, fmt, True)


@_inner
def _put(slot: Array, x: Any) -> None:
    slot[0], slot[1], slot[2], slot[3] = x[0], x[1], x[2], x[3]


@_inner
def _accumulator(slot: Array, x: Any, row: Array, fmt: Array, point: int) -> None:
    """Write an accumulator to row `slot` of a table, so that the next sum includes it as a term."""
    sig, exponent = x[0], x[1]
    if row[FLUSH_ADDEND] and abs(sig) < 1 << fmt[MANTISSA]:
        sig = 0
    if sig == 0 and x[3] == 0:
        exponent = row[ZERO_EXPONENT]
    sig <<= point - fmt[MANTISSA]
    if row[NORMALIZE]:
        sig, exponent = _normalized(sig, exponent, point)
    _put(slot, (sig, exponent, x[2], x[3]))


@_inner
def _combined(table: Array, n: int, row: Array, fmt: Array) -> None:
    """Add the first `n` numbers of a table in the order of the rule; row 0 becomes the sum."""
    while n > 1:
        half = 1 if row[COMBINE] == ADD else n // 2
        for i in range(half):
            first, second = (2 * i, 2 * i + 1) if row[COMBINE] == TREE else (i, half + i)
            _put(table[i], _sum(table[first], table[second], row, fmt))
        for i in range(2 * half, n):
            _put(table[i - half], table[i])
        n -= half


@_inner
def _encoded(x: Any, row: Array, fmt: Array, narrow: int) -> Any:
    """Return the bits of a number in the format of results.

    `narrow` is the bit width of sums minus the bit width of results.
    """
    if x[3] == NAN:
        return row[NAN_BITS]
    m, code = fmt[MANTISSA], abs(x[0])
    if code >> m:
        code += (x[1] - 1 + fmt[BIAS]) << m
    sign = x[2]
    if x[3]:
        code, sign = fmt[MAX_CODE] + 1, 1 if x[3] == MINUS else 0
    code |= sign << (fmt[BITS] - 1)
    if narrow:  # round float32 to bfloat16, to nearest even
        code = (code + (1 << (narrow - 1)) - 1 + (code >> narrow & 1)) >> narrow
    return code


@_inner
def _answer(row: Array, formats: Array, point: int, c: int, table: Array, limbs: Array) -> Any:
    """Return the bits of the result of one case.

    `table` holds the terms of the products, and is overwritten.
    """
    fmt = formats[SUM]
    narrow = fmt[BITS] - formats[RESULT, BITS]
    addend = decode(c << narrow, fmt, row[FLUSH_ADDEND], row[INFINITIES])
    total = addend if row[ADDEND] == TERM else (0, 1 - fmt[BIAS], 0, 0)
    count, size = len(table) - 1, row[TERMS] // row[GROUP]
    for start in range(0, count, size):
        if row[COMBINE] == CHAIN:  # the accumulator overwrites a product that is already added
            _accumulator(table[start], total, row, fmt, point)
            total = _fused(table, start, start + size + 1, row, fmt, point, limbs)
        else:
            _put(table[start // size], _fused(table, start + 1, start + size + 1, row, fmt, point, limbs))
    if row[COMBINE] != CHAIN:
        if row[ADDEND] == BEFORE:
            _put(table[0], _sum(addend, table[0], row, fmt))
        _combined(table, count // size, row, fmt)
        total = (table[0, 0], table[0, 1], table[0, 2], table[0, 3])
    if row[ADDEND] == AFTER:
        total = _sum(total, addend, row, fmt)
    return _encoded(total, row, fmt, narrow)


@_inner
def _same_products(x: Array, y: Array) -> Any:
    """Return True if two rules make the same terms from the products of a case."""
    return (
        x[ORDER] == y[ORDER] and x[GROUP] == y[GROUP] and x[NORMALIZE] == y[NORMALIZE]
        and x[FLUSH_OPERANDS] == y[FLUSH_OPERANDS] and x[INFINITIES] == y[INFINITIES]
        and x[ZERO_EXPONENT] == y[ZERO_EXPONENT]
    )  # fmt: skip


@_jit
def answers(rows: Array, formats: Array, point: int, orders: Array, cases: Any) -> Array:
    """Return the bits of the results, with a row for each rule and a column for each case.

    If consecutive rules need the same terms of a case, the terms are computed only once.
    """
    a, b, c = cases
    k, limbs = orders.shape[1], np.empty(_LIMBS, np.int64)
    products, scratch = np.empty((k + 1, 4), np.int64), np.empty((k + 1, 4), np.int64)
    found = np.empty((len(rows), len(c)), np.int64)
    for i in range(len(c)):
        for r in range(len(rows)):
            row = rows[r]
            terms = k // row[GROUP] + 1
            if r == 0 or not _same_products(row, rows[r - 1]):
                _products(row, formats, point, orders[row[ORDER]], (a[i], b[i]), products)
            scratch[1:terms] = products[1:terms]
            found[r, i] = _answer(row, formats, point, c[i], scratch[:terms], limbs)
    return found


@_jit
def fitting(
    rows: Array, formats: Array, point: int, orders: Array, cases: Any, right: Array, zeros: int, wrong: int
) -> Array:
    """Return a mask of the rules that give the wrong answer for at most `wrong` cases.

    If +0 and -0 count as equal, `zeros` is a word in which only the sign bit is set; otherwise
    `zeros` is 0. A case that refutes a rule moves forward in the order of the cases, so that it
    tests later rules sooner.
    """
    a, b, c = cases
    k, limbs = orders.shape[1], np.empty(_LIMBS, np.int64)
    scratch, turns = np.empty((k + 1, 4), np.int64), np.arange(len(c))
    kept = np.ones(len(rows), np.bool_)
    for r in range(len(rows)):
        row, misses = rows[r], 0
        table = scratch[: k // row[GROUP] + 1]
        for turn in range(len(c)):
            i = turns[turn]
            _products(row, formats, point, orders[row[ORDER]], (a[i], b[i]), table)
            found = _answer(row, formats, point, c[i], table, limbs)
            if found != right[i] and (found | right[i]) & ~zeros != 0:
                misses += 1
                if misses > wrong:
                    kept[r] = False
                    turns[turn], turns[turn // 2] = turns[turn // 2], turns[turn]
                    break
    return kept
