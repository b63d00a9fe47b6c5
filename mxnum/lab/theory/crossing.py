"""Compute how far weights of a clamped block move without effect, and how they jump afterwards.

A weight is trained through its quantized value Q, with straight-through gradients. While a weight
moves without a change of Q, the loss does not change. The last interval of constant Q below a
change of the shared scale is the *dead zone*. Clamping makes the dead zone wider. The dead zone
ends at the *crossing*, where the shared scale changes and every element of the block is quantized
anew.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from fractions import Fraction

from mxnum import ElementFormat, MXFormat, Rounding, ScaleRule, errors
from mxnum.analysis import PiecewiseQuantizer, scale_threshold


@dataclass(frozen=True)
class Jump:
    """Elements from `lower` to `upper`, whose quantized value jumps from `before` to `after`."""

    lower: Fraction
    upper: Fraction
    before: Fraction
    after: Fraction

    @property
    def relative(self) -> Fraction:
        return self.after / self.before - 1


@dataclass(frozen=True)
class DeadZone:
    """The dead zone, in units of the block maximum at which the shared scale changes."""

    #: The lower end of the dead zone. The upper end is the crossing, which is 1 in these units.
    lower: Fraction
    #: The constant value Q of weights in the dead zone.
    level: Fraction
    #: How the elements between 1/2 and 1 times the block maximum jump at the crossing.
    jumps: tuple[Jump, ...]

    @property
    def width(self) -> Fraction:
        return 1 - self.lower

    @property
    def largest_jump(self) -> Fraction:
        """The largest relative jump, in magnitude."""
        return max((abs(jump.relative) for jump in self.jumps), default=Fraction(0))


def dead_zone(
    format: str | MXFormat | ElementFormat,
    *,
    scale_rule: str | ScaleRule = "floor",
    rounding: str | Rounding = "rne",
) -> DeadZone:
    """Return the dead zone below a change of the shared scale, with the jumps of elements.

    >>> zone = dead_zone("mxfp8_e4m3")
    >>> zone.lower, zone.level, zone.largest_jump
    (Fraction(27, 32), Fraction(7, 8), Fraction(1, 7))
    >>> dead_zone("mxfp8_e4m3", scale_rule="rceil").largest_jump
    Fraction(0, 1)
    """
    mode = errors.choose_member("rounding", rounding, Rounding)
    errors.require(not mode.is_stochastic, "rounding", "deterministic", str(mode))
    quantizer = PiecewiseQuantizer.of(format, mode)
    crossing = 2 * scale_threshold(format, scale_rule)
    # `crossing` is the block maximum at which the scale doubles, in units of the smaller scale. Let
    # x be an element divided by this maximum. The smaller scale changes x to
    # Q(x * crossing) / crossing, and the larger scale to Q(x * crossing / 2) / (crossing / 2).
    edges = {Fraction(1, 2), Fraction(1)}
    edges |= {b / unit for b in quantizer.breakpoints for unit in (crossing, crossing / 2)}
    inside = sorted(edge for edge in edges if Fraction(1, 2) <= edge <= 1)

    def value(x: Fraction, unit: Fraction) -> Fraction:
        return quantizer.mean(x * unit) / unit

    jumps = []
    for lower, upper in itertools.pairwise(inside):
        middle = (lower + upper) / 2
        before, after = value(middle, crossing), value(middle, crossing / 2)
        if before != after and before != 0:
            jumps.append(Jump(lower, upper, before, after))
    below = [b / crossing for b in quantizer.breakpoints if b < crossing]
    lower = below[-1]
    return DeadZone(lower, value((lower + 1) / 2, crossing), tuple(jumps))


@dataclass(frozen=True)
class LimitCycle:
    """The limit cycle of gradient descent if the minimum of the loss lies between two values of Q.

    The loss is quadratic.
    """

    #: The share of steps in which Q has the upper value.
    duty: Fraction
    #: The mean number of steps from one upward jump to the next.
    period: Fraction
    #: The mean of (Q - target)**2 over the cycle, which a smaller learning rate does not reduce.
    mean_square: Fraction


def limit_cycle(target: float | Fraction, level_below: float | Fraction, level_above: float | Fraction) -> LimitCycle:
    """Return the limit cycle of the iteration gamma <- gamma - eta lambda (Q(gamma) - target).

    At the crossing Q(gamma) changes from `level_below` to `level_above`. Below the crossing each
    step moves gamma up by a = eta lambda (target - level_below). Above the crossing each step moves
    gamma down by d = eta lambda (level_above - target). A step up by a and a step down by d are
    equal modulo a + d, so gamma rotates on a circle of length a + d. Therefore the share of steps
    above the crossing, `duty`, is a / (a + d), whatever the learning rate eta is. The mean of Q
    over the steps is `target`. On average, Q jumps up every 1 / min(duty, 1 - duty) steps.

    >>> limit_cycle(Fraction(29, 32), Fraction(7, 8), 1)
    LimitCycle(duty=Fraction(1, 4), period=Fraction(4, 1), mean_square=Fraction(3, 1024))
    """
    named = {"target": target, "level_below": level_below, "level_above": level_above}
    w, below, above = (errors.fraction(name, value) for name, value in named.items())
    errors.require(below < w < above, "target", "between level_below and level_above", target)
    duty = (w - below) / (above - below)
    return LimitCycle(duty, 1 / min(duty, 1 - duty), (w - below) * (above - w))


def dwell(start: float, crossing: float, drift: float) -> int:
    """Return how many steps take a weight from `start` to `crossing` if each step adds `drift`.

    With gradient descent, the drift in the dead zone is eta times the gradient, which is constant
    there. With Adam, the drift is eta, however small the gradient is.

    >>> dwell(0.9, 1.0, 0.001)
    100
    """
    start, crossing, drift = float(start), float(crossing), float(drift)
    errors.require(drift > 0, "drift", "positive", drift)
    errors.require(-math.inf < start < crossing, "start", "below the crossing", start)
    errors.require(crossing < math.inf, "crossing", "finite", crossing)
    # If the exact quotient is an integer, the rounded quotient may be slightly larger, and `ceil`
    # would then return one step too many. Subtracting `lost` prevents this.
    lost = 1e-15 * max(abs(start), crossing)
    return max(1, math.ceil((crossing - start - lost) / drift))
