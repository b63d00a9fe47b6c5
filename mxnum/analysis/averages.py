"""Derive the average error of a block of equal numbers over a binade, as closed forms in sympy.

If all numbers of a block equal x, the shared scale is a function of x. The relative error Q(x)/x -
1 is then a sawtooth that repeats in every binade, as long as x is not rounded to a subnormal
element. Averages of the sawtooth are sums of elementary integrals over the pieces of the quantizer.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from typing import Any

from mxnum import errors
from mxnum.analysis.piecewise import PiecewiseQuantizer, element_of
from mxnum.analysis.scale_theory import scale_threshold
from mxnum.formats import ElementFormat, MXFormat
from mxnum.modes import Rounding, ScaleRule

DENSITIES = ("log_uniform", "uniform")


@dataclass(frozen=True)
class Tooth:
    """One piece of the sawtooth: if lower < f < upper, f is rounded to `below` or `above`.

    `below` and `above` differ only under stochastic rounding.
    """

    lower: Fraction
    upper: Fraction
    below: Fraction
    above: Fraction
    #: True if f is beyond the largest element value times the scale.
    overflows: bool


@dataclass(frozen=True)
class BinadeAverage:
    """Averages of zeta = Q(f)/f - 1 over f in [1, 2), as exact sympy expressions.

    ``float()`` converts an average to a number.
    """

    #: E[Q/f] - 1.
    bias: Any
    #: E[Q]/E[f] - 1.
    ratio_of_means: Any
    #: E[zeta**2], the relative mean squared error.
    mse: Any
    #: The probability that f is beyond the largest element value times the scale.
    overflow: Any
    #: The part of `bias` that comes from clamping: the mean of max/f - 1 where f > max, and of 0
    #: elsewhere. (max is the largest element value times the scale.) The rest comes from rounding.
    overflow_bias: Any


def sawtooth(
    format: str | MXFormat | ElementFormat,
    *,
    scale_rule: str | ScaleRule = "floor",
    rounding: str | Rounding = "rne",
) -> tuple[Tooth, ...]:
    """Return the pieces of Q(f) for f from 1 to 2, in a block whose numbers all equal f.

    >>> [str(t.below) for t in sawtooth("mxfp4_e2m1")], [str(t.lower) for t in sawtooth("mxfp4_e2m1")]
    (['1', '3/2', '3/2'], ['1', '5/4', '3/2'])
    """
    element = element_of(format, "sawtooth")
    rule = errors.choose_member("scale_rule", scale_rule, ScaleRule)
    return _teeth(element, rule, errors.choose_member("rounding", rounding, Rounding))


@cache
def _teeth(element: ElementFormat, rule: ScaleRule, rounding: Rounding) -> tuple[Tooth, ...]:
    quantizer = PiecewiseQuantizer.of(element, rounding)
    aligned, largest = Fraction(2) ** element.emax, Fraction(element.max)
    # Let m = f * aligned, where f is in [1, 2). A block of numbers m has the scale exponent 0 if
    # m < `change`, and 1 otherwise.
    change = 2 * scale_threshold(element, rule)
    teeth = []
    for exponent, start, stop in ((0, aligned, min(change, 2 * aligned)), (1, max(change, aligned), 2 * aligned)):
        scale = Fraction(2) ** exponent
        inner = [b * scale for b in quantizer.breakpoints if start < b * scale < stop]
        edges = sorted({start, *inner, *([largest * scale] if start < largest * scale < stop else []), stop})
        for lower, upper in itertools.pairwise(edges):
            if lower >= upper:
                continue
            middle = (lower + upper) / 2 / scale
            index = sum(b < middle for b in quantizer.breakpoints)
            below, above = (level[index] * scale / aligned for level in (quantizer.lower, quantizer.upper))
            teeth.append(Tooth(lower / aligned, upper / aligned, below, above, middle > largest))
    return tuple(teeth)


def binade_average(
    format: str | MXFormat | ElementFormat,
    *,
    scale_rule: str | ScaleRule = "floor",
    rounding: str | Rounding = "rne",
    density: str = "log_uniform",
) -> BinadeAverage:
    """Return closed forms of bias, mean squared error and overflow, averaged over a binade.

    The averages hold for blocks of equal numbers. For formats whose scales are floats, call
    `gamma_bias` with sigma = 0 instead.

    `density` names the density of the mantissa f in [1, 2): ``"log_uniform"`` is 1 / (f ln 2), and
    ``"uniform"`` is 1.

    >>> average = binade_average("mxfp8_e4m3")
    >>> round(100 * float(average.bias), 3), round(100 * float(average.overflow_bias), 3)
    (-1.294, -1.231)
    >>> average.overflow
    (-log(7) + 3*log(2))/log(2)
    """
    element = element_of(format, "binade_average")
    rule = errors.choose_member("scale_rule", scale_rule, ScaleRule)
    mode = errors.choose_member("rounding", rounding, Rounding)
    return _average(element, rule, mode, errors.choose("density", density, DENSITIES))


@cache
def _primitives(density: str) -> tuple[Any, dict[int, Any]]:
    """Return the symbol f and the antiderivatives of f**n times the density, for n = -2 ... 1."""
    import sympy

    f = sympy.Symbol("f", positive=True)
    weight = 1 / (f * sympy.log(2)) if density == "log_uniform" else sympy.Integer(1)
    return f, {n: sympy.integrate(f**n * weight, f) for n in (-2, -1, 0, 1)}


@cache
def _average(element: ElementFormat, rule: ScaleRule, rounding: Rounding, density: str) -> BinadeAverage:
    import sympy

    f, primitives = _primitives(density)

    def integral(power: int, tooth: Tooth) -> Any:
        primitive = primitives[power]
        return primitive.subs(f, sympy.Rational(tooth.upper)) - primitive.subs(f, sympy.Rational(tooth.lower))

    ratio = mean = square = overflow = beyond = sympy.Integer(0)
    for tooth in _teeth(element, rule, rounding):
        below, above = sympy.Rational(tooth.below), sympy.Rational(tooth.above)
        mass = integral(0, tooth)
        if below == above:
            error = below * integral(-1, tooth) - mass
            mean += below * mass
            square += below**2 * integral(-2, tooth) - 2 * below * integral(-1, tooth) + mass
        else:  # Q is stochastic, so E[Q] = f and E[Q^2] = (below + above) f - below above
            error = sympy.Integer(0)
            mean += integral(1, tooth)
            square += (below + above) * integral(-1, tooth) - below * above * integral(-2, tooth) - mass
        ratio += error
        if tooth.overflows:
            overflow += mass
            beyond += error
    whole = Tooth(Fraction(1), Fraction(2), Fraction(0), Fraction(0), False)
    tidy = [
        sympy.together(sympy.expand(sympy.expand_log(term, force=True)))
        for term in (ratio, mean / integral(1, whole) - 1, square, overflow, beyond)
    ]
    return BinadeAverage(*tidy)
