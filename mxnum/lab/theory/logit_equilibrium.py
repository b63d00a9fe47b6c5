"""Compute where logits come to rest if rounding changes their gradients, and suggest remedies.

Symbol j follows a context with probability q_j, and the model predicts p_j. With N tokens and a
loss multiplied by c, the mean gradient of logit j, in units of c/N, is

    g_j = p_j (1 - q_j) - q_j (1 - p_j) (1 + b(p_j)).

The target of a token is the symbol that follows it. b(p) is the relative change that rounding
causes in the target's component of a token's gradient. The formula assumes that rounding changes no
other component on average. Without rounding, b(p) is zero and the mean gradient of logit j is p_j -
q_j. With rounding, the g_j add up to the drift, -sum q_j (1 - p_j) b(p_j). The drift moves all
logits together, which does not change the loss. The differences of the logits are at rest if all
mean gradients g_j are equal.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from mxnum import ScaleRule, errors, formats
from mxnum.analysis import overflow_region
from mxnum.lab.theory.logit_gradients import Beta, LogitGradientBias, Shrinking, logit_gradient_bias
from mxnum.memory.dtypes import Array

#: The factors on the loss that `logit_advice` tries: 2**(k/8), rounded to float32.
FACTORS = tuple(float(np.float32(2 ** (k / 8))) for k in range(8))
_HALVINGS = 48


@dataclass(frozen=True)
class Equilibrium:
    """The point at which differences of logits come to rest under the mean gradient.

    The model treats each logit as a free parameter.
    """

    #: The predicted probabilities at rest.
    p: Array
    #: The cross-entropy at rest minus the entropy of q, in nats.
    excess: float
    #: The sum of the mean gradient over all symbols, in units of c/N; if the sum is positive, all
    #: logits fall.
    drift: float
    #: The relative change of the mean of the target's component, sum q (1 - p) b(p) / sum q (1 -
    #: p).
    bias: float


def logit_rest(q: Any, bias: LogitGradientBias) -> Equilibrium:
    """Return the equilibrium of the logits if the next symbol has probabilities q.

    The mean gradient g_j increases with p_j, because the rounded value of 1 - p never increases
    with p. So there is exactly one number D for which the solutions p_j of g_j = D sum to 1.
    Bisection finds the number D and all p_j. Where g_j jumps past D, p_j lies at the jump, which is
    a jump of b(p).

    >>> q = np.append(np.full(16, 1 / 16), np.zeros(240))
    >>> round(logit_rest(q, logit_gradient_bias("mxfp8_e4m3", 2048)).excess, 3)
    0.064
    >>> round(logit_rest(q, logit_gradient_bias("mxfp8_e4m3", 2048, scale_rule="rceil")).excess, 3)
    0.0
    """
    wanted = probabilities_of(q)
    errors.require_type(isinstance(bias, LogitGradientBias), "bias", "what logit_gradient_bias returns", bias)

    def resting(common: float) -> Array:
        low, high = np.zeros_like(wanted), np.ones_like(wanted)
        for _ in range(_HALVINGS):
            p = (low + high) / 2
            below = p * (1 - wanted) - wanted * (1 - p) * (1 + bias.at(p)) < common
            low, high = np.where(below, p, low), np.where(below, high, p)
        return high

    least, most = -1.0, 1.0
    for _ in range(_HALVINGS):
        common = (least + most) / 2
        least, most = (common, most) if float(resting(common).sum()) < 1 else (least, common)
    p = resting(common)
    inside, pull = wanted > 0, float((wanted * (1 - p)).sum())
    resolution = 2.0 ** (1 - _HALVINGS)
    count = float((p > resolution).sum())  # p is 0 for a symbol if g_j = D has no positive solution p_j
    drift = common * count
    excess = float((wanted[inside] * np.log(wanted[inside] / p[inside])).sum())
    return Equilibrium(p, excess, drift, -drift / pull if pull > count * resolution else 0.0)


def probabilities_of(q: Any) -> Array:
    """Return q as float64; raise ValueError unless q is a vector of probabilities with sum 1."""
    wanted = np.asarray(q, np.float64)
    fits = wanted.ndim == 1 and bool((wanted >= 0).all()) and abs(float(wanted.sum()) - 1) < 1e-9
    errors.require(fits, "q", "a vector of probabilities that sum to 1", q)
    return wanted


@dataclass(frozen=True)
class LogitAdvice:
    """The effect of rounding on the targets' components, and advice on how to reduce the effect."""

    now: Shrinking
    #: The effect on the targets' components for each factor on the loss: c times each entry of
    #: `FACTORS`.
    factors: Mapping[float, Shrinking]
    #: The effect on the targets' components under each scale rule, with the factor c on the loss.
    rules: Mapping[str, Shrinking]
    #: The factor for which overflow changes the targets' components least; a key of `factors`.
    best_factor: float
    #: The scale rules under which no component overflows, whatever p, the number of tokens and the
    #: factor are.
    never_overflow: tuple[str, ...]
    #: The advice as text.
    text: str

    def __str__(self) -> str:
        return self.text


def logit_advice(
    format: str = "mxfp8_e4m3",
    tokens: int = 1 << 15,
    p: Any = None,
    *,
    factor: Any = 1,
    scale_rule: str | None = None,
    rounding: str = "rne",
) -> LogitAdvice:
    """Return how rounding changes the gradient of the logits, and advice against the change.

    p is the probability that the model gives to target symbols: a number, a sample, or a `Beta`
    (default: Beta(1/2, 8), as in a model that still learns). The other arguments are as in
    `logit_gradient_bias`.

    >>> print(logit_advice("mxfp8_e4m3", 32768, 0.01))
    Rounding changes the targets' components by -11.6 % (overflow alone: -11.6 %); 100 % of the tokens overflow.
    Multiply the loss by 1.5422 (Adam's steps stay the same). Then 0 % of the tokens overflow; the change is -1.8 %.
    Or use the scale rule 'ceil', 'rceil' or 'half_up' for the gradient of the logits, so that nothing overflows.
    Or leave the gradients of the last layer in higher precision.
    """
    law = Beta("1/2", 8) if p is None else p
    c = errors.fraction("factor", factor)
    accepted = "between 2**-40 and 2**39, because factors up to twice as large are tried"
    errors.require(Fraction(1, 2**40) <= c <= 2**39, "factor", accepted, factor)

    def at(factor: Fraction, rule: Any) -> Shrinking:
        return logit_gradient_bias(format, tokens, factor, scale_rule=rule, rounding=rounding).shrinking(law)

    now = at(c, scale_rule)
    by_factor = {float(c * Fraction(each)): at(c * Fraction(each), scale_rule) for each in FACTORS}
    best = min(by_factor, key=lambda each: (round(abs(by_factor[each].overflow_bias), 6), abs(by_factor[each].bias)))
    fmt = formats.get(format)
    never: tuple[str, ...] = ("rceil",)
    named = ["nearest", "rceil"]
    if fmt.scale.power_of_two:
        named = [str(rule) for rule in ScaleRule]
        never = tuple(rule for rule in named if overflow_region(fmt, rule).empty and rule != "floor_plus_one")
    rules = {rule: at(c, rule) for rule in named}
    advice = [f"Rounding changes the targets' components by {now.bias:.1%} (overflow alone: "]
    advice[0] += f"{now.overflow_bias:.1%}); {now.overflow:.0%} of the tokens overflow."
    if abs(by_factor[best].overflow_bias) < 0.9 * abs(now.overflow_bias):
        found = by_factor[best]
        words = f"Multiply the loss by {best / float(c):.5g} (Adam's steps stay the same). Then {found.overflow:.0%} "
        advice.append(words + f"of the tokens overflow; the change is {found.bias:.1%}.")
    if now.overflow:
        listed = errors.joined(map(repr, never))
        advice.append(f"Or use the scale rule {listed} for the gradient of the logits, so that nothing overflows.")
        advice.append("Or leave the gradients of the last layer in higher precision.")
    if fmt.element.bits == 4 and rounding != "sr":
        advice.append(
            "In 4 bits, round the gradient of the logits stochastically as well. With rounding to nearest, a scale "
            "rule without overflow can make the loss worse."
        )
    return LogitAdvice(now, by_factor, rules, best, never, "\n".join(advice).replace("%", " %"))
