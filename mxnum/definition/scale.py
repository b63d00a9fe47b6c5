"""Find the E8M0 code of a block's shared scale from the block's largest magnitude."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from mxnum.definition.unpack import make_unpack
from mxnum.definition.word import dialect, select
from mxnum.formats import E8M0, ElementFormat
from mxnum.modes import ScaleRule

LAST_SCALE = E8M0.nan_code - 1


def scale_width(source: ElementFormat, element: ElementFormat) -> int:
    """Return a significand width that holds block maxima and all rules' thresholds exactly."""
    return max(source.mantissa_bits, element.mantissa_bits + 1, 2)


def scale_constants(element: ElementFormat, rule: ScaleRule, width: int) -> tuple[int, int]:
    """Return the arguments `bias` and `first_bumped` of `scale_code`.

    A rule starts from the scale exponent of the rule `floor`, and adds one if the significand is
    at least `first_bumped`. Let f = significand / 2**width, and let m be the number of the
    element's mantissa bits. The rules add one if f > 1 (ceil), f >= 2 - 2**-(m+1) (even),
    f > max / 2**emax (rceil), f >= 7/4 (half_up), or always (floor_plus_one).
    """
    MANTISSA = element.mantissa_bits
    return E8M0.bias - element.emax, {
        ScaleRule.FLOOR: 1 << (width + 1),  # above every significand
        ScaleRule.CEIL: (1 << width) + 1,
        ScaleRule.EVEN: ((1 << (MANTISSA + 2)) - 1) << (width - MANTISSA - 1),
        ScaleRule.RCEIL: (((1 << MANTISSA) | (element.max_code & ((1 << MANTISSA) - 1))) << (width - MANTISSA)) + 1,
        ScaleRule.HALF_UP: 7 << (width - 2),
        ScaleRule.FLOOR_PLUS_ONE: 1 << width,
    }[rule]


@dialect
def scale_code(exponent: Any, significand: Any, bias: Any, first_bumped: Any) -> Any:
    """Return the E8M0 code for the magnitude significand * 2**(exponent - width).

    The significand is normalized or zero. `bias` and `first_bumped` are the rule's
    `scale_constants`.
    """
    code = exponent + bias + select(significand < first_bumped, 0, 1)
    code = select(code < 0, 0, select(code > LAST_SCALE, LAST_SCALE, code))
    return select(significand == 0, 0, code)


def make_scale_rule(element: ElementFormat, rule: ScaleRule, width: int) -> Callable[..., Any]:
    """Return `scale_rule(exponent, significand)`, which is `scale_code` for one rule."""
    BIAS, FIRST_BUMPED = scale_constants(element, rule, width)

    @dialect
    def scale_rule(exponent, significand):
        return scale_code(exponent, significand, BIAS, FIRST_BUMPED)

    return scale_rule


@cache
def make_scale_of(source: ElementFormat, width: int) -> Callable[..., Any]:
    """Return `scale_of(amax, bias, first_bumped)`, which finds the E8M0 code of a block.

    `amax` is the block's largest finite magnitude, as a bit pattern of `source`. `bias` and
    `first_bumped` are the rule's `scale_constants`.
    """
    unpack = make_unpack(source, width)

    @dialect
    def scale_of(amax, bias, first_bumped):
        _, exponent, significand, _ = unpack(amax)
        return scale_code(exponent, significand, bias, first_bumped)

    return scale_of


def make_shared_scale(source: ElementFormat, element: ElementFormat, rule: ScaleRule) -> Callable[..., Any]:
    """Return `shared_scale(amax)`, which finds the E8M0 code of a block by a rule.

    `amax` is the block's largest finite magnitude, as a bit pattern of `source`.
    """
    width = scale_width(source, element)
    scale_of = make_scale_of(source, width)
    BIAS, FIRST_BUMPED = scale_constants(element, rule, width)

    @dialect
    def shared_scale(amax):
        return scale_of(amax, BIAS, FIRST_BUMPED)

    shared_scale.__name__ = f"shared_scale_{source.name}_{element.name}_{rule}"
    return shared_scale
