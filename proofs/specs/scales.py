"""Specify the shared scale: the exact result of each rule for the largest magnitude A of a block.

A = f * 2**E with 1 <= f < 2.
"""

from __future__ import annotations

from fractions import Fraction

import z3

from proofs.specs.conversions import Exact
from proofs.specs.tables import EVEN_BUMP, HALF_UP_BUMP, LARGEST_SIGNIFICAND, SCALE_BIAS, Element

RULES = ("floor", "ceil", "even", "rceil", "half_up", "floor_plus_one")
LAST = 254


def significand(bound: Fraction, exact: Exact) -> z3.BitVecRef:
    """Return the fraction field of the significand `bound`, which lies between one and two."""
    scaled = (bound - 1) * (1 << exact.fraction_bits)
    if scaled.denominator != 1:
        raise ValueError(f"{bound} does not fit in {exact.fraction_bits} fraction bits")
    return z3.BitVecVal(int(scaled), exact.fraction_bits)


def exceeds_largest_significand(amax: Exact, element: Element) -> z3.BoolRef:
    """Return the condition that A's significand exceeds the largest element's significand."""
    return z3.UGT(amax.fraction, significand(LARGEST_SIGNIFICAND[element.name], amax))


def bumps(amax: Exact, element: Element, rule: str) -> z3.BoolRef:
    """Return the condition that a rule's exponent is one above the exponent of the rule `floor`."""
    match rule:
        case "floor":
            return z3.BoolVal(False)
        case "ceil":
            return amax.fraction != 0
        case "even":
            return z3.UGE(amax.fraction, significand(EVEN_BUMP[element.name], amax))
        case "rceil":
            return exceeds_largest_significand(amax, element)
        case "half_up":
            return z3.UGE(amax.fraction, significand(HALF_UP_BUMP, amax))
        case "floor_plus_one":
            return z3.BoolVal(True)
    raise ValueError(f"no scale rule called {rule!r}")


def unclamped(amax: Exact, element: Element, rule: str) -> z3.BitVecRef:
    """Return the scale code before clamping: E - emax + 127, plus one where `bumps` is true."""
    exponent = amax.exponent
    one, zero = z3.BitVecVal(1, exponent.size()), z3.BitVecVal(0, exponent.size())
    return exponent - element.emax + SCALE_BIAS + z3.If(bumps(amax, element, rule), one, zero)


def clamped(exponent: z3.BitVecRef) -> z3.BitVecRef:
    """Return the exponent limited to the range of scale codes."""
    low, high = z3.BitVecVal(0, exponent.size()), z3.BitVecVal(LAST, exponent.size())
    return z3.If(exponent < 0, low, z3.If(exponent > LAST, high, exponent))


def shared_code(amax: Exact, element: Element, rule: str, width: int) -> z3.BitVecRef:
    """Return the scale code for a largest magnitude A, in a word of `width` bits."""
    code = z3.If(z3.fpIsZero(amax.base), z3.BitVecVal(0, amax.exponent_bits), clamped(unclamped(amax, element, rule)))
    return z3.ZeroExt(width - code.size(), code)
