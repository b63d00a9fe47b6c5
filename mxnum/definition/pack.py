"""Round an unpacked number once to a code: the second half of every conversion."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from mxnum.definition.unpack import INFINITE, NAN
from mxnum.definition.word import dialect, select
from mxnum.formats import ElementFormat
from mxnum.modes import Overflow, Rounding, which

#: The number of random bits in stochastic rounding. A caller that has fewer random bits shifts them
#: to the top, with the function that `random.make_align_random` returns.
SR_BITS = 30


@cache
def make_round(target: ElementFormat, rounding: Rounding, width: int, word: int) -> Callable[..., Any]:
    """Return `round_magnitude(sign, exponent, significand, random)`, which finds a magnitude code.

    The arguments describe the number significand * 2**(exponent - width), normalized or zero.
    Magnitude codes number the representable magnitudes in order, from 0 for zero, as if there were
    no largest exponent. The code is k * 2**m + q, where m is the number of mantissa bits. The
    integer q is the rounded significand, and k is the exponent minus emin (0 for subnormal
    numbers). With this formula, rounding up to the next power of two needs no special case. A
    number is called even or odd if its code is even or odd. Numbers that round to a magnitude above
    the largest value get the code max_code + 1.
    """
    MANTISSA = target.mantissa_bits
    EMIN = target.emin
    LAST_STEP = target.emax - target.emin
    BEYOND = target.max_code + 1
    DISCARDED = width - MANTISSA
    # No larger shift is needed, because every significand is below half of 2**SHIFT_LIMIT.
    SHIFT_LIMIT = word - 2
    RNE, RNA, RTP, RTN, SR, RTO, _RTZ = which(
        rounding, Rounding.RNE, Rounding.RNA, Rounding.RTP, Rounding.RTN, Rounding.SR, Rounding.RTO, Rounding.RTZ
    )
    if DISCARDED < 1 or width + 2 > SHIFT_LIMIT:
        raise ValueError(f"significand width {width} is too small for {target.name} or too large for a {word}-bit word")

    @dialect
    def round_magnitude(sign, exponent, significand, random):
        step = exponent - EMIN
        below = select(step < 0, 0 - step, 0)
        above = select(step < 0, 0, select(step > LAST_STEP, LAST_STEP, step))
        shift = DISCARDED + below
        if SR:
            # Keep SR_BITS bits below the quantum, because stochastic rounding reads no more.
            drop = select(shift > SR_BITS, shift - SR_BITS, 0)
            significand = significand >> select(drop > width + 1, width + 1, drop)
            shift = select(shift > SR_BITS, SR_BITS, shift)
        else:
            shift = select(shift > SHIFT_LIMIT, SHIFT_LIMIT, shift)
        rest = (1 << shift) - 1
        base = above << MANTISSA
        kept = base + (significand >> shift)
        if RNE:
            code = base + ((significand + (rest >> 1) + (kept & 1)) >> shift)
        elif RNA:
            code = base + ((significand + (rest >> 1) + 1) >> shift)
        elif RTP:
            code = base + ((significand + select(sign == 0, rest, 0)) >> shift)
        elif RTN:
            code = base + ((significand + select(sign == 0, 0, rest)) >> shift)
        elif SR:
            code = base + ((significand + (random >> (SR_BITS - shift))) >> shift)
        elif RTO:
            code = select((significand & rest) == 0, kept, kept | 1)
        else:
            code = kept
        code = select(code > BEYOND, BEYOND, code)
        return select(step > LAST_STEP, BEYOND, code)

    return round_magnitude


def limits(rounding: Rounding) -> tuple[bool, bool]:
    """Return whether positive overflow gives max, and whether negative overflow gives -max.

    Callers use the results only in overflow modes that do not saturate.
    """
    return {
        Rounding.RNE: (False, False),
        Rounding.RNA: (False, False),
        Rounding.RTZ: (True, True),
        Rounding.RTP: (False, True),
        Rounding.RTN: (True, False),
        Rounding.RTO: (True, True),
        Rounding.SR: (False, False),
    }[rounding]


def make_pack(
    target: ElementFormat, rounding: Rounding, overflow: Overflow, width: int, word: int
) -> Callable[..., Any]:
    """Return `pack(sign, exponent, significand, kind, random)`, which rounds to a `target` code.

    `pack` also handles NaN, infinities and overflow.
    """
    BITS = target.bits
    MAX = target.max_code
    INTEGER = target.integer
    AS_WORD = target.bits == word
    NAN_CODE = MAX if target.nan_code is None else target.nan_code
    KEEPS_NAN_SIGN = target.nan_code is not None and not target.canonical_nan
    # Overflow gives Inf if the target has it, else NaN; a target that has neither saturates.
    IEEE = not overflow.of(target.specials).saturates
    OVER = NAN_CODE if target.infinity_code is None else target.infinity_code
    LIMITS_ABOVE, LIMITS_BELOW = limits(rounding)
    round_magnitude = make_round(target, rounding, width, word)

    @dialect
    def pack(sign, exponent, significand, kind, random):
        code = round_magnitude(sign, exponent, significand, random)
        if IEEE:
            above = MAX if LIMITS_ABOVE else OVER
            below = MAX if LIMITS_BELOW else OVER
            code = select(code > MAX, select(sign == 0, above, below), code)
            code = select(kind == INFINITE, OVER, code)
        else:
            code = select(code > MAX, MAX, code)
            code = select(kind == INFINITE, MAX, code)
        code = select(kind == NAN, NAN_CODE, code)
        if not KEEPS_NAN_SIGN:
            sign = select(kind == NAN, 0, sign)
        if INTEGER:
            return select(sign == 0, code, (1 << BITS) - code) & ((1 << BITS) - 1)
        if AS_WORD:
            return code | ((0 - sign) << (BITS - 1))
        return code | (sign << (BITS - 1))

    return pack
