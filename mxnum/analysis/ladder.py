"""List the scales that a block can have, and the block maximum at which each begins.

For every format and scale rule, only the largest magnitude A of a block decides its scale: the
block has scale number s if begin(s) <= A < begin(s + 1), and unit(s) is the value of this scale. So
one theory covers all formats and rules.
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

#: The end of the last scale: an exact number beyond every interval of integration.
_BEYOND = Fraction(2) ** 512
#: The largest number of bits of a scale whose values are listed one by one.
_MOST_BITS = 16


@dataclass(frozen=True)
class ScaleLadder:
    """The scales of a format, from the lowest to the highest.

    Blocks with a smaller maximum also have the lowest scale, blocks with a larger one the highest.
    """

    #: The largest magnitude of a block at which each scale begins.
    begins: tuple[Fraction, ...]
    #: The value of each scale.
    units: tuple[Fraction, ...]
    #: True if a largest number equal to begin(s) has scale s - 1.
    open_below: tuple[bool, ...]
    #: The factor that bounds quantized values: the quantized values of a block of largest magnitude
    #: A are at most this factor times the larger of A and `least`.
    growth: Fraction
    least: Fraction

    def __len__(self) -> int:
        return len(self.units)

    def end(self, s: int) -> Fraction:
        """Return the block maximum at which scale number s + 1 begins."""
        return self.begins[s + 1] if s + 1 < len(self) else _BEYOND

    def of(self, size: Fraction) -> int:
        """Return the number of the scale of a block whose largest magnitude is `size`."""
        s = last_begun(self, size)
        return s - 1 if s > 0 and self.begins[s] == size and self.open_below[s] else s


def last_begun(ladder: ScaleLadder, size: Fraction) -> int:
    """Return the number of the highest scale that begins at `size` or before, or 0."""
    return max(bisect_right(ladder.begins, size) - 1, 0)


def scale_ladder(
    format: str | MXFormat,
    scale_rule: str | ScaleRule | FloatScaleRule | None = None,
    *,
    tensor_scale: Any = None,
) -> ScaleLadder:
    """Return the scales that a block of a format can have.

    `tensor_scale` is required for formats that have one.

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
    """Return the E8M0 scales of blocks."""
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
    """Return scales that are floats, for a rule that depends only on the largest magnitude A.

    The rule rounds headroom * A / (largest element * tensor scale).
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
        # A tie goes to the even code, so an odd code begins just above the tie.
        tuple(rule.rounds_up or code % 2 == 1 for code in range(len(values))),
        4 * headroom,
        values[1] * per_scale,
    )
