"""The shared scale: from the largest magnitude of a block to an E8M0 code."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mxnum.formats import E8M0, ElementFormat
from mxnum.modes import ScaleRule
from mxnum.scalar.unpack import make_unpack
from mxnum.scalar.word import dialect, select

LAST_SCALE = E8M0.nan_code - 1


def scale_width(source: ElementFormat, element: ElementFormat) -> int:
    """Significand width in which the thresholds of every rule are exact."""
    return max(source.mantissa_bits, element.mantissa_bits + 1, 2)


def make_scale_rule(element: ElementFormat, rule: ScaleRule, width: int) -> Callable[..., Any]:
    """(exponent, significand) of A = significand * 2**(exponent - width), normalized or zero -> E8M0 code.

    With f = significand / 2**width the rules differ in when the exponent is one more than floor's: f > 1 (ceil),
    f >= 2 - 2**-(m+1) (even), f > the leading digits of max (rceil), f >= 7/4 (half_up), always (floor_plus_one).
    """
    MANTISSA = element.mantissa_bits
    BIAS = E8M0.bias - element.emax
    FIRST_BUMPED = {
        ScaleRule.FLOOR: 1 << (width + 1),  # never
        ScaleRule.CEIL: (1 << width) + 1,
        ScaleRule.EVEN: ((1 << (MANTISSA + 2)) - 1) << (width - MANTISSA - 1),
        ScaleRule.RCEIL: (((1 << MANTISSA) | (element.max_code & ((1 << MANTISSA) - 1))) << (width - MANTISSA)) + 1,
        ScaleRule.HALF_UP: 7 << (width - 2),
        ScaleRule.FLOOR_PLUS_ONE: 1 << width,
    }[rule]

    @dialect
    def scale_rule(exponent, significand):
        code = exponent + BIAS + select(significand < FIRST_BUMPED, 0, 1)
        code = select(code < 0, 0, select(code > LAST_SCALE, LAST_SCALE, code))
        return select(significand == 0, 0, code)

    return scale_rule


def make_shared_scale(source: ElementFormat, element: ElementFormat, rule: ScaleRule) -> Callable[..., Any]:
    """amax -> E8M0 code, where amax is the bit pattern of the block's largest finite magnitude in `source`."""
    width = scale_width(source, element)
    unpack = make_unpack(source, width)
    scale_rule = make_scale_rule(element, rule, width)

    @dialect
    def shared_scale(amax):
        _, exponent, significand, _ = unpack(amax)
        return scale_rule(exponent, significand)

    shared_scale.__name__ = f"shared_scale_{source.name}_{element.name}_{rule}"
    return shared_scale
