"""Exact numbers as text for users."""

from __future__ import annotations

import math
from fractions import Fraction


def number(x: float | Fraction) -> str:
    """Return a number as text: exact decimals if they are short, else a significand times a power of two.

    Digits that are cut off are marked by "...".
    """
    if isinstance(x, float) and not math.isfinite(x):
        return str(x)
    exact = Fraction(x)
    if exact == 0:
        return "-0" if isinstance(x, float) and math.copysign(1, x) < 0 else "0"
    e = reference_exponent(abs(exact))
    short = f"{float(exact):.10g}" if abs(e) < 1000 else ""
    if short and len(short) <= 14 and (Fraction(short) == exact or -30 <= e <= 40):
        return short if Fraction(short) == exact else f"{short}..."
    significand = exact / Fraction(2) ** e
    text = f"{float(significand):.10g}"
    return f"{text}{'' if Fraction(text) == significand else '...'} * 2^{e}"


def fraction_text(f: Fraction) -> str:
    """Return a fraction of a gap as text; as a quotient if that is short."""
    if f.denominator == 1:
        return str(f.numerator)
    if f.denominator <= 64:
        return f"{f.numerator}/{f.denominator}"
    near = f"{float(f):.9g}"
    if Fraction(near) == f:
        return near
    half = Fraction(1, 2)
    if abs(f - half) < Fraction(1, 10**6):
        return f"1/2 {'+' if f > half else '-'} {float(abs(f - half)):.3g}"
    return near if 0 < float(near) < 1 else ("just above 0" if f < half else "just below 1")


def reference_exponent(x: Fraction) -> int:
    """Return the E with 2**E <= x < 2**(E+1)."""
    e = x.numerator.bit_length() - x.denominator.bit_length()
    return e if Fraction(2) ** e <= x else e - 1
