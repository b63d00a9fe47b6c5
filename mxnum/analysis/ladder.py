"""List the scales that a block can have, and the block maximum at which each scale begins.

For every format and most scale rules, the scale of a block depends only on the block's largest
magnitude A. The scale has the index s if A lies between begins[s] and begins[s + 1], and its value
is units[s]. `open_below` says which scale a block has if A equals begins[s]. With these lists,
`mxnum.analysis` uses the same formulas for all these formats and scale rules.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from typing import Any

from mxnum import errors, formats
from mxnum.analysis.scale_theory import scale_threshold
from mxnum.formats import ElementFormat, MXFormat, ScaleFormat
from mxnum.modes import FloatScaleRule, ScaleRule, scale_rule_of

#: The block maximum at which the last scale ends. A finite number can replace infinity here,
#: because no interval of integration reaches it.
_BEYOND = Fraction(2) ** 512
#: The largest number of bits of a scale format whose values are listed.
_MOST_BITS = 16


@dataclass(frozen=True)
class ScaleLadder:
    """The scales of a format, from the lowest to the highest.

    A block whose maximum is below all of `begins` has the lowest scale.
    """

    #: The block maximum at which each scale begins.
    begins: tuple[Fraction, ...]
    #: The value of each scale.
    units: tuple[Fraction, ...]
    #: For each scale s, True if a block whose maximum equals begins[s] has scale s - 1.
    open_below: tuple[bool, ...]
    #: In a block with largest magnitude A, quantized values are at most growth * max(A, least).
    growth: Fraction
    least: Fraction

    def __len__(self) -> int:
        return len(self.units)

    def end(self, s: int) -> Fraction:
        """Return the block maximum at which the scale with the index s + 1 begins."""
        return self.begins[s + 1] if s + 1 < len(self) else _BEYOND

    def of(self, size: Fraction) -> int:
        """Return the index of the scale of a block whose largest magnitude is `size`."""
        s = last_begun(self, size)
        return s - 1 if s > 0 and self.begins[s] == size and self.open_below[s] else s


def last_begun(ladder: ScaleLadder, size: Fraction) -> int:
    """Return the index of the last item of `begins` that is at most `size`; 0 if all exceed it."""
    return max(bisect_right(ladder.begins, size) - 1, 0)


def scale_ladder(
    format: str | MXFormat,
    scale_rule: str | ScaleRule | FloatScaleRule | None = None,
    *,
    tensor_scale: Any = None,
) -> ScaleLadder:
    """Return the scales that a block of a format can have.

    Formats with a tensor scale require `tensor_scale`.

    >>> ladder = scale_ladder("mxfp8_e4m3", "rceil")
    >>> ladder.units[ladder.of(Fraction(449))]
    Fraction(2, 1)
    """
    fmt = formats.get(format)
    rule, has_tensor_scale = scale_rule_of(fmt, scale_rule), fmt.tensor_scale is not None
    accepted = f"{'given' if has_tensor_scale else 'left out'} for {fmt.name}"
    errors.require(has_tensor_scale == (tensor_scale is not None), "tensor_scale", accepted, tensor_scale)
    if isinstance(rule, ScaleRule):
        return powers_of_two(fmt.element, rule)
    factor = errors.fraction("tensor_scale", tensor_scale) if has_tensor_scale else Fraction(1)
    return floats(fmt.element, fmt.scale, rule, factor, Fraction(1))


@cache
def powers_of_two(element: ElementFormat, rule: ScaleRule) -> ScaleLadder:
    """Return the E8M0 scales that a block can have under a scale rule."""
    threshold, units = scale_threshold(element, rule), tuple(Fraction(2) ** s for s in range(-127, 128))
    is_open = {
        ScaleRule.FLOOR: False, ScaleRule.CEIL: True, ScaleRule.EVEN: False, ScaleRule.RCEIL: True,
        ScaleRule.HALF_UP: False, ScaleRule.FLOOR_PLUS_ONE: False,
    }[rule]  # fmt: skip
    begins = tuple(threshold * unit for unit in units)
    return ScaleLadder(begins, units, (is_open,) * len(units), Fraction(4), begins[0])


@cache
def floats(
    element: ElementFormat, scale: ScaleFormat, rule: FloatScaleRule, tensor_scale: Fraction, headroom: Fraction
) -> ScaleLadder:
    """Return the float scales of blocks under a rule that depends only on the block maximum.

    For a block with largest magnitude A, the rule rounds headroom * A / (largest element value *
    tensor scale) to the scale format.
    """
    for name, value in (("tensor_scale", tensor_scale), ("headroom", headroom)):
        errors.require(Fraction(1, 2**150) <= value <= 2**130, name, "between 2**-150 and 2**130", float(value))
    errors.require(scale.bits <= _MOST_BITS, "format", "one whose scales have 16 bits or fewer", scale.name)
    errors.require(
        rule.error_power == 0,
        "scale_rule",
        "'nearest' or 'rceil', because other rules depend on all numbers of a block",
        str(rule),
    )
    values = [Fraction(scale.value(code)) for code in range(scale.max_code + 1)]
    lower = [Fraction(0), *values[:-1]]
    edges = lower if rule.rounds_up else [(a + b) / 2 for a, b in zip(lower, values, strict=True)]
    per_scale = Fraction(element.max) * tensor_scale
    return ScaleLadder(
        tuple(edge * per_scale / headroom for edge in edges),
        tuple(value * tensor_scale for value in values),
        # Ties go to the even code, so the interval of an odd code begins just above the tie.
        tuple(rule.rounds_up or code % 2 == 1 for code in range(len(values))),
        4 * headroom,
        values[1] * per_scale,
    )
