"""Fused sums of matrix units: splitting codes, aligning terms, short sums, and rounding.

The statements compute in exact integers of 128 bits, from the standards' tables. The statements use
neither the definition's normalization nor its rounding.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial
from itertools import product
from typing import Any

import numpy as np
import z3

from mxnum.definition.fused_sum import align, make_finish, make_parts
from mxnum.definition.unpack import FINITE, INFINITE, NAN
from mxnum.formats import ELEMENTS, FLOATS
from mxnum.modes import Rounding
from mxnum.prove.sym import run
from mxnum.units import get, names
from mxnum.units.unit import SUM_BITS, ZERO_EXPONENT
from proofs.machines.solve import prove
from proofs.specs import tables
from proofs.theorem import Outcome, Theorem

PARTS = (
    "`parts` splits every code into the sign, the exponent and the significand of its value, and its kind: finite, "
    "infinity or NaN. A subnormal number has the exponent of the smallest normal number, and zero has the exponent "
    "-1024."
)
ALIGNED = (
    "`align` returns the value of a term in units of 2**(largest exponent of a term - F), with the magnitude truncated "
    "to an integer. No intermediate result leaves 64 bits."
)
SUMS = (
    "The aligned terms of two products of codes and of a float32 addend add up to the sum of the exact values, each "
    "truncated to a multiple of 2**(largest exponent of a term - F). F is the last part of the theorem's name."
)
ROUNDED = (
    "`finish` rounds a sum as the mode demands. Toward zero, no number with the result's bits lies between the result "
    "and the sum. To nearest, no such number is nearer to the sum, and ties go to even. A sum that rounds to a number "
    "beyond the largest gives infinity; zero is +0. No intermediate result leaves 64 bits."
)
#: The number of bits of the integers in the statements.
WIDE = 128
#: A bound on the magnitude of the exponents of terms and sums. A zero has the exponent -1024, so
#: the lowest exponent of a term is -4096: the exponent of two zero elements with two zero scales.
FARTHEST = 1 << 13
MOST_BITS = 40
WORD = 64
#: In `check_sum`, all terms are multiples of 2**-UNIT.
UNIT = 60


def check_parts(name: str) -> Outcome:
    """Compare the sign, exponent, significand and kind of every code with the standards' tables."""
    started = time.perf_counter()
    own = FLOATS.get(name) or ELEMENTS[name]
    codes = np.arange(1 << own.bits, dtype=np.int64)
    parts: Any = make_parts(own)(codes)
    signs, exponents, significands, kinds = (np.broadcast_to(part, codes.shape).tolist() for part in parts)
    for code in codes.tolist():
        want = _table_parts(name, code)
        got = signs[code], exponents[code], significands[code], kinds[code]
        if want != got:
            return Outcome("refuted", "sweep", time.perf_counter() - started, f"code {code:#x}: {got}, not {want}")
    return Outcome("proved", "sweep", time.perf_counter() - started, f"{codes.size} codes")


def _table_parts(name: str, code: int) -> tuple[int, int, int, int]:
    """Return (sign, exponent, significand, kind) of a code, from the standards' tables."""
    if name in tables.FLOATS:
        float_type = tables.FLOATS[name]
        half, mantissa, emin = 1 << (float_type.bits - 1), float_type.precision - 1, float_type.emin
        negative, magnitude = divmod(code, half)
        if magnitude >= float_type.infinity:
            return negative, ZERO_EXPONENT, 0, INFINITE if magnitude == float_type.infinity else NAN
        step, fraction = divmod(magnitude, 1 << mantissa)
        significand, exponent = fraction + (min(step, 1) << mantissa), emin + max(step - 1, 0)
        return negative, exponent if significand else ZERO_EXPONENT, significand, FINITE
    element = tables.ELEMENTS[name]
    negative, magnitude = divmod(code, 1 << (element.bits - 1))
    if magnitude > element.last:
        return negative, ZERO_EXPONENT, 0, INFINITE if magnitude == element.infinity else NAN
    units = element.magnitudes[magnitude]
    binade = max(units.bit_length() - 1 - element.mantissa, 0)
    exponent = element.unit + element.mantissa + binade
    return negative, exponent if units else ZERO_EXPONENT, units >> binade, FINITE


def check_align(point: int) -> Outcome:
    """Prove the statement `ALIGNED` for terms with `point` fraction bits."""
    significand, exponent, largest, kept = (z3.BitVec(n, WORD) for n in ("significand", "exponent", "largest", "kept"))
    sign = z3.BitVec("sign", WORD)
    zero = z3.BitVecVal(0, WORD)
    left, right = (z3.If(x > 0, x, zero) for x in (kept - point, point - kept))
    got, safe = run(align, sign, exponent, significand, largest, left, right)
    given = [
        sign >= 0, sign <= 1, significand >= 0, significand < 1 << (point + 14), kept >= 1, kept <= MOST_BITS,
        exponent >= -FARTHEST, exponent <= largest, largest <= FARTHEST,
    ]  # fmt: skip
    # The term is significand * 2**(exponent - point). `align` returns the term in units of
    # 2**(largest - kept).
    magnitude = z3.LShR(_wide(significand) << WORD, _wide(WORD - (kept - point) + (largest - exponent)))
    want = z3.If(sign == 0, magnitude, -magnitude)
    show = sign, exponent, significand, largest, kept
    return prove(given, z3.And(z3.SignExt(WIDE - WORD, got) == want, *safe), engines=("bitwuzla",), show=show)


def _wide(value: z3.BitVecRef) -> z3.BitVecRef:
    return z3.ZeroExt(WIDE - value.size(), value)


def check_sum(name: str, kept: int) -> Outcome:
    """Prove the statement `SUMS` for two products of element values and a float32 addend."""
    element = tables.ELEMENTS[name]
    codes, c = [z3.BitVec(f"x{i}", element.bits) for i in range(4)], z3.BitVec("c", 32)
    parts, given, safe = make_parts(ELEMENTS[name]), [], []
    terms: list[tuple[Any, Any, Any, int]] = []
    for a, b in (codes[:2], codes[2:]):
        (sign_a, e_a, m_a, kind_a), of_a = run(parts, z3.ZeroExt(WORD - element.bits, a))
        (sign_b, e_b, m_b, kind_b), of_b = run(parts, z3.ZeroExt(WORD - element.bits, b))
        terms.append((sign_a ^ sign_b, e_a + e_b, m_a * m_b, 2 * element.mantissa))
        given += [kind_a == FINITE, kind_b == FINITE]
        safe += [*of_a, *of_b]
    (sign, e, m, kind), of_c = run(make_parts(FLOATS["float32"]), z3.ZeroExt(WORD - 32, c))
    terms.append((sign, e, m, 23))
    given += [kind == FINITE, e >= -12, e <= 16]
    largest = terms[0][1]
    for term in terms[1:]:
        largest = z3.If(term[1] > largest, term[1], largest)
    got, want = z3.BitVecVal(0, WORD), z3.BitVecVal(0, WIDE)
    values = [_product(element, *codes[:2]), _product(element, *codes[2:]), _float32(c)]
    for (sign, e, m, point), (negative, magnitude) in zip(terms, values, strict=True):
        shifts = (z3.BitVecVal(max(x, 0), WORD) for x in (kept - point, point - kept))
        aligned, of_term = run(align, sign, e, m, largest, *shifts)
        safe += [*of_term, z3.BVAddNoOverflow(got, aligned, True), z3.BVAddNoUnderflow(got, aligned)]
        got = got + aligned
        # `magnitude` is in units of 2**-UNIT. The fused sum truncates each term to a multiple of
        # 2**(largest - kept).
        truncated = z3.LShR(magnitude, _wide(largest - kept + UNIT))
        want = want + z3.If(negative == 1, -truncated, truncated)
    goal = z3.And(z3.SignExt(WIDE - WORD, got) == want, *safe, *of_c)
    return prove(given, goal, engines=("bitwuzla",), show=(*codes, c))


def _product(element: tables.Element, a: z3.BitVecRef, b: z3.BitVecRef) -> tuple[Any, Any]:
    """Return the sign of a product of two values, and its magnitude in units of 2**-UNIT."""
    significands, shifts = [], []
    for code in (a, b):
        field = z3.Extract(element.bits - 2, element.mantissa, code)
        fraction = z3.ZeroExt(8 - element.mantissa, z3.Extract(element.mantissa - 1, 0, code))
        significands.append(z3.If(field == 0, fraction, fraction + (1 << element.mantissa)))
        shifts.append(z3.If(field == 0, z3.BitVecVal(0, WIDE), _wide(field) - 1))
    value = _wide(significands[0] * significands[1]) << (shifts[0] + shifts[1] + UNIT + 2 * element.unit)
    return z3.Extract(element.bits - 1, element.bits - 1, a ^ b), value


def _float32(c: z3.BitVecRef) -> tuple[Any, Any]:
    """Return the sign of a float32 number, and its magnitude in units of 2**-UNIT.

    The exponent of the number must be at least -12.
    """
    significand = _wide(z3.Extract(22, 0, c)) + (1 << 23)
    return z3.Extract(31, 31, c), significand << (_wide(z3.Extract(30, 23, c)) - 150 + UNIT)


def check_round(name: str, rounding: Rounding, bits: int) -> Outcome:
    """Prove the statement `ROUNDED` for results with `bits` fraction bits."""
    accumulator = tables.FLOATS[name]
    below = accumulator.precision - 1 - bits
    total, largest, kept = (z3.BitVec(n, WORD) for n in ("total", "largest", "kept"))
    constants = z3.BitVecVal(below, WORD), z3.BitVecVal(0, WORD)
    got, safe = run(make_finish(FLOATS[name], rounding), total, largest, kept, *constants)
    limit = 1 << SUM_BITS
    given = [
        total > -limit, total < limit, largest >= -FARTHEST, largest <= FARTHEST, kept >= 1, kept <= MOST_BITS,
    ]  # fmt: skip
    half = 1 << (accumulator.bits - 1)
    magnitude, sign = got & (half - 1), z3.LShR(got, accumulator.bits - 1)
    size = z3.If(total < 0, -total, total)
    exponent = largest - kept
    step = 1 << below
    infinite = magnitude == accumulator.infinity

    def at_least(code: z3.BitVecRef, doubled: bool = False) -> tuple[Any, Any]:
        """Return (sum >= v, sum == v), where v is the value of a code or the midpoint after it."""
        field = z3.LShR(code, accumulator.precision - 1)
        fraction = code & ((1 << (accumulator.precision - 1)) - 1)
        significand = z3.If(field == 0, fraction, fraction | 1 << (accumulator.precision - 1))
        own = z3.If(field == 0, 1, field) + (accumulator.emin - accumulator.precision)
        if doubled:
            significand, own = (significand << 1) + 1, own - 1
        return _compared(size, exponent, significand, own)

    if rounding == Rounding.RTZ:
        not_above = at_least(magnitude)[0]
        not_below = z3.Or(infinite, z3.Not(at_least(magnitude + step)[0]))
        right = z3.And(not_above, not_below, magnitude & (step - 1) == 0)
    else:
        above, tie_above = at_least(magnitude, True)
        reached, tie_below = at_least(magnitude - 1, True)
        even = magnitude & 1 == 0
        upper = z3.Or(infinite, z3.Not(above), z3.And(tie_above, even))
        lower = z3.Or(magnitude == 0, z3.And(reached, z3.Or(z3.Not(tie_below), even)))
        right = z3.And(upper, lower)
    signed = sign == z3.If(z3.And(total < 0, magnitude != 0), z3.BitVecVal(1, WORD), z3.BitVecVal(0, WORD))
    goal = z3.And(right, signed, z3.ULE(magnitude, accumulator.infinity), *safe)
    return prove(
        given, goal, engines=("bitwuzla",), show=(total, largest, kept), example=((total, 1), (largest, 0), (kept, 1))
    )


def _compared(m: z3.BitVecRef, x: z3.BitVecRef, s: z3.BitVecRef, e: z3.BitVecRef) -> tuple[Any, Any]:
    """Return (m * 2**x >= s * 2**e, m * 2**x == s * 2**e).

    The arguments must satisfy m < 2**61 and s < 2**26.
    """
    distance = x - e
    far = z3.BitVecVal(64, WORD)
    up = z3.If(distance > far, far, z3.If(distance > 0, distance, z3.BitVecVal(0, WORD)))
    down = z3.If(distance < -far, far, z3.If(distance < 0, -distance, z3.BitVecVal(0, WORD)))
    left, right = _wide(m) << _wide(up), _wide(s) << _wide(down)
    return z3.UGE(left, right), left == right


def theorems() -> list[Theorem]:
    return list(_theorems())


def _theorems() -> Iterator[Theorem]:
    units = [get(name) for name in names()]
    operands = sorted({name for unit in units for name in unit.operands} - {"tf32"})
    for name in operands:
        parts = make_parts(FLOATS.get(name) or ELEMENTS[name])
        yield Theorem(
            f"fused/parts/{name}", PARTS, ("parts",), partial(check_parts, name), ("code is any code",),
            functions=(parts,),
        )  # fmt: skip
    for point in (6, 8, 14, 20, 23):
        yield Theorem(
            f"fused/align/{point}", ALIGNED, ("align",), partial(check_align, point),
            (f"a significand has {point} fraction bits, and at most 14 bits above these",
             f"F is 1 to {MOST_BITS}", f"exponents are within {FARTHEST}"),
            functions=(align,),
        )  # fmt: skip
    for name, kept in product(("e2m1", "e2m3"), (13, 25)):
        yield Theorem(
            f"fused/sum/{name}/{kept}", SUMS, ("parts", "align"), partial(check_sum, name, kept),
            ("codes are any finite codes", "the addend is any float32 number with an exponent from -12 to 16"),
            functions=(align, make_parts(ELEMENTS[name]), make_parts(FLOATS["float32"])),
        )  # fmt: skip
    rules = sorted({(unit.accumulator, unit.rounding, unit.result_bits) for unit in units})
    for name, rounding, bits in rules:
        finish = make_finish(FLOATS[name], Rounding(rounding))
        yield Theorem(
            f"fused/round/{name}/{rounding}/{bits}", ROUNDED, ("finish",),
            partial(check_round, name, Rounding(rounding), bits),
            (f"the sum is any integer whose magnitude is below 2**{SUM_BITS}", f"F is 1 to {MOST_BITS}",
             f"exponents are within {FARTHEST}"),
            functions=(finish,),
        )  # fmt: skip
