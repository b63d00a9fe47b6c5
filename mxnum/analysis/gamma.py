"""Compute the expected error of a block of independent numbers.

`gamma_bias` computes relative errors, which matter for a multiplicative weight such as the gamma of
a layer norm. `block_error` computes absolute errors, which matter for the operands of a product.
The results (`GammaBias` and `BlockError`) hold the errors as numbers. For the main errors, their
methods also return a formula and a proved interval.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np

from mxnum import errors, formats
from mxnum.analysis import cluster
from mxnum.analysis.arithmetics import ArbArithmetic, Enclosure, IntervalArithmetic, SympyArithmetic
from mxnum.analysis.closed_form import NEVER_AWAY_FROM_ZERO, Cut, Normal, Uniform, closed_form, enclose
from mxnum.analysis.cluster import Model, Moments
from mxnum.analysis.ladder import last_begun
from mxnum.analysis.piecewise import PiecewiseQuantizer, second_moment
from mxnum.formats import MXFormat
from mxnum.memory.dtypes import Array
from mxnum.modes import FloatScaleRule, Rounding, ScaleRule, scale_rule_of

DISTRIBUTIONS = ("normal", "uniform")
BACKENDS = ("arb", "iv")


@dataclass(frozen=True, eq=False)
class _Result:
    """The base class of `GammaBias` and `BlockError`, which returns formulas and intervals."""

    model: Model = field(repr=False)
    mu: Any
    sigma: Any

    _default = ""

    def formula(self, of: str | None = None) -> Any:
        """Return the closed form as a sympy expression in the symbols mu and sigma.

        `of` names the quantity; the default is "bias" for a `GammaBias`, and "gain" for a
        `BlockError`. The formula includes only the pieces of the quantizer within 10 standard
        deviations of mu, so mu and sigma must be single numbers. For a normal distribution,
        relative quantities contain an Integral of density / x, which has no elementary form.
        ``sympy.lambdify(..., "mpmath")`` evaluates such a formula faster than ``evalf``.
        """
        import sympy

        mu, sigma = self._point()
        name = of or self._default
        self._finite(name)
        arithmetic = SympyArithmetic()
        law: Any
        if self.model.distribution == "normal":
            law = Normal(arithmetic, sympy.Symbol("mu", real=True), sympy.Symbol("sigma", positive=True))
        else:
            # The ends of the interval are rounded to float64, which keeps the formula readable.
            law = Uniform(arithmetic, *(Fraction(float(end)) for end in _uniform_ends(mu, sigma)))
        return closed_form(arithmetic, law, self.model, _cut(self.model, mu, sigma, cluster.REACH), name)

    def enclosure(self, prec: int = 100, of: str | None = None, *, backend: str = "arb") -> Enclosure:
        """Return a proved interval around the exact value, for a single mu and sigma.

        mu and sigma are taken as exact binary numbers. `prec` is the working precision in bits.
        `backend` is ``"arb"`` (needs the extra `proofs`) or ``"iv"``, the intervals of mpmath.
        Intervals of mpmath are independent of arb and can check its result, but are slow unless
        sigma is small.
        """
        prec = errors.integer("prec", prec, 20, 10_000)
        mu, sigma = self._point()
        name = of or self._default
        self._finite(name)
        errors.choose("backend", backend, BACKENDS)
        # The omitted tails of a normal distribution must have a probability below 2**-2prec,
        # because the bound contains the square root of this probability.
        cut = _cut(self.model, mu, sigma, math.sqrt(4 * math.log(2) * prec) + 2)
        # Differences and recurrences lose bits, so they are computed with more bits than `prec`.
        arithmetic = ArbArithmetic(2 * prec + 40) if backend == "arb" else IntervalArithmetic(3 * prec + 60)
        with arithmetic.precision():
            law = (
                Normal(arithmetic, arithmetic.number(mu), arithmetic.number(sigma))
                if self.model.distribution == "normal"
                else Uniform(arithmetic, *_uniform_ends(mu, sigma))
            )
            return enclose(arithmetic, law, self.model, cut, name)

    def _point(self) -> tuple[Fraction, Fraction]:
        errors.require(np.ndim(self.mu) == 0, "mu", "a single number to get a formula or enclosure", np.shape(self.mu))
        errors.require(self.sigma > 0, "sigma", "positive for a formula or an enclosure", self.sigma)
        return Fraction(float(self.mu)), Fraction(float(self.sigma))

    def _finite(self, name: str) -> None:
        """Raise ValueError if the result called `name` is not finite.

        A ratio of means is not finite if mu is 0. E[Q/x] is not finite if small x are rounded away
        from zero.
        """
        if name == "ratio_of_means":
            errors.require(self.mu != 0, "mu", "different from 0 for the ratio of means", float(self.mu))
        model, rounding = self.model, self.model.rounding
        relative = name == "variance" or (name == "bias" and not rounding.is_stochastic)
        if relative and rounding not in NEVER_AWAY_FROM_ZERO:
            low, high = cluster.window(model, np.float64(self.mu), np.float64(self.sigma))
            bounded = model.distribution == "uniform" and not low <= 0 <= high
            accepted = f"one of {[str(r) for r in NEVER_AWAY_FROM_ZERO]}, because the {name} of this cluster diverges"
            errors.require(bounded, "rounding", accepted, str(rounding))


@dataclass(frozen=True, eq=False, repr=False)
class GammaBias(_Result):
    """The relative errors zeta = Q/gamma - 1 of a block of numbers gamma clustered around mu.

    Q is the quantized value of gamma. The fields have the shape of mu and sigma.
    """

    #: E[Q/gamma] - 1.
    bias: Any
    #: E[Q]/E[gamma] - 1; NaN where E[gamma] = 0.
    ratio_of_means: Any
    #: Var[zeta] of one number.
    variance: Any
    #: Cov[zeta_i, zeta_j] of two different numbers of a block. Averaging over the block does not
    #: remove this part of the variance.
    covariance: Any
    #: P(gamma is beyond the largest element value times the scale).
    overflow: Any
    #: P(Q is the largest element value times the scale).
    on_max: Any

    _default = "bias"

    def __repr__(self) -> str:
        return f"<GammaBias {self.model}: bias {np.round(self.bias, 6)}>"


@dataclass(frozen=True, eq=False, repr=False)
class BlockError(_Result):
    """The absolute errors of a block of independent numbers x.

    Q is the quantized value of x. The fields have the shape of mu and sigma.
    """

    #: E<Q, x> / E<x, x>: the factor by which quantizing x multiplies a long dot product of x with
    #: an independent vector.
    gain: Any
    #: E[(Q - x)^2].
    mse: Any
    #: E[Var(Q | block)], the noise of stochastic rounding; 0 in all other rounding modes.
    noise: Any
    #: E[(Q - gain x)^2]: the error that is uncorrelated with x.
    residual: Any
    #: P(x is beyond the largest element value times the scale).
    overflow: Any
    #: P(abs(Q) is the largest element value times the scale).
    on_max: Any
    #: P(Q = 0).
    zero: Any

    _default = "gain"

    def __repr__(self) -> str:
        return f"<BlockError {self.model}: gain {np.round(self.gain, 6)}>"


def gamma_bias(
    format: str | MXFormat,
    mu: Any,
    sigma: Any,
    *,
    block_size: int | None = None,
    scale_rule: str | ScaleRule | FloatScaleRule | None = None,
    rounding: str | Rounding = "rne",
    distribution: str = "normal",
    prescale: Any = 1,
    tensor_scale: Any = None,
    headroom: Any = 1,
) -> GammaBias:
    """Return the expected relative error of a block of independent N(mu, sigma**2) numbers.

    Parameters
    ----------
    format
        An MX format or its name. `block_size` replaces the format's block length.
    mu, sigma
        Mean and standard deviation of the cluster. The arrays mu and sigma broadcast together. With
        sigma = 0 all numbers of the block are equal. A sigma up to 1e-13 abs(mu) counts as 0. The
        accuracy stated in the notes then holds only if neither the quantized value nor the scale
        jumps within the cluster.
    scale_rule, rounding
        As in `mxnum.quantize`, except that ``"sr"`` has infinitely many random bits.
    distribution
        ``"normal"``, or ``"uniform"`` between mu - sqrt(3) sigma and mu + sqrt(3) sigma.
    prescale
        After the scale is chosen, numbers are multiplied by this factor. At the end, quantized
        values are divided by the factor (Tseng et al. use 3/4).
    tensor_scale
        The tensor scale, for formats such as NVFP4 that have one. In a tensor whose largest
        magnitude is A, the tensor scale of NVFP4 is A / 2688.
    headroom
        For scales that are floats: the factor by which the largest number of a block is multiplied
        before the scale is chosen.

    Notes
    -----
    The shared scale is taken into account exactly, even if the cluster contains a power of two. Let
    r be the root mean square of the relative error. In random comparisons with enclosures, the
    errors of ``bias`` and `ratio_of_means` were always below 1e-13 r + 2e-16. The errors of
    `variance` were always below r (1e-12 r + 2e-16). `GammaBias.enclosure` returns a proved
    interval.

    Two results are infinite if zero is within 10 standard deviations of mu (for a uniform
    distribution: within its interval). One is the bias under a rounding mode that rounds small
    numbers away from zero. The other is the variance under stochastic rounding.

    >>> import mxnum as mx
    >>> mx.analysis.gamma_bias("mxfp8_e4m3", 0.93, 0.01)
    <GammaBias e4m3 x 32 floor rne, normal: bias -0.059031>
    """
    model = _model(format, block_size, scale_rule, rounding, distribution, prescale, tensor_scale, headroom)
    m, d = _cluster(mu, sigma)
    found = _moments(model, m, d)
    single, pair = found.single, found.pair
    bias = single["relative_error"]
    with np.errstate(invalid="ignore", divide="ignore"):
        variance = np.maximum(single["relative_square"] - bias * bias, 0.0)
        ratio = single["error"] / m.ravel()
        covariance = variance if model.block_size == 1 else pair["relative_error"] - bias * bias
    shape = _shaper(m.shape)
    return GammaBias(
        model, m[()], d[()], *map(shape, (bias, ratio, variance, covariance, single["overflow"], single["on_max"]))
    )


def block_error(
    format: str | MXFormat,
    mu: Any = 0.0,
    sigma: Any = 1.0,
    *,
    block_size: int | None = None,
    scale_rule: str | ScaleRule | FloatScaleRule | None = None,
    rounding: str | Rounding = "rne",
    distribution: str = "normal",
    prescale: Any = 1,
    tensor_scale: Any = None,
    headroom: Any = 1,
) -> BlockError:
    """Return the expected absolute error of a block of independent numbers.

    The arguments have the same meaning as in `gamma_bias`.

    >>> import mxnum as mx
    >>> mx.analysis.block_error("mxfp4_e2m1", rounding="sr").gain.round(5)
    np.float64(0.98958)
    >>> mx.analysis.block_error("mxfp4_e2m1", rounding="sr", prescale="3/4").gain.round(5)
    np.float64(1.0)

    This is the gain of NVFP4 with stochastic rounding, in a tensor whose largest magnitude is 5:

    >>> mx.analysis.block_error("nvfp4", rounding="sr", tensor_scale=5 / 2688).gain.round(5)
    np.float64(0.99665)
    """
    model = _model(format, block_size, scale_rule, rounding, distribution, prescale, tensor_scale, headroom)
    m, d = _cluster(mu, sigma)
    single = _moments(model, m, d).single
    power = (m**2 + d**2).ravel()
    extra = single["product"] / power
    residual = np.maximum(single["square_error"] - extra**2 * power, 0.0)
    rest = (single[name] for name in ("overflow", "on_max", "zero"))
    shape = _shaper(m.shape)
    return BlockError(
        model, m[()], d[()], *map(shape, (1 + extra, single["square_error"], single["noise"], residual, *rest))
    )


def _shaper(shape: tuple[int, ...]) -> Any:
    return lambda values: values.reshape(shape)[()]


def _model(
    format: str | MXFormat,
    block_size: int | None,
    scale_rule: str | ScaleRule | FloatScaleRule | None,
    rounding: str | Rounding,
    distribution: str,
    prescale: Any,
    tensor_scale: Any,
    headroom: Any,
) -> Model:
    """Check the arguments and return them as a `Model`."""
    fmt = formats.get(format)
    factor = errors.fraction("prescale", prescale)
    errors.require(0 < factor <= 1, "prescale", "above 0 and at most 1", prescale)
    model = Model(
        fmt.element,
        scale_rule_of(fmt, scale_rule),
        errors.choose_member("rounding", rounding, Rounding),
        fmt.block if block_size is None else errors.positive_integer("block_size", block_size),
        errors.choose("distribution", distribution, DISTRIBUTIONS),
        factor,
        fmt.scale,
        *_factors(fmt, tensor_scale, headroom),
    )
    _ = model.ladder  # raises an error if the scales cannot be listed
    return model


def _cluster(mu: Any, sigma: Any) -> tuple[Array, Array]:
    """Check mu and sigma, and return them as arrays of one shape."""
    m, d = (np.array(v, float) for v in np.broadcast_arrays(np.asarray(mu, float), np.asarray(sigma, float)))
    for name, values in (("mu", m), ("sigma", d)):
        errors.require(bool(np.isfinite(values).all()), name, "finite", "NaN or infinite")
    errors.require(bool((d >= 0).all()), "sigma", "at least 0", d.min() if d.size else None)
    # If abs(mu) + sigma is below 2**-400, moments could underflow in float64.
    accepted = "large enough that abs(mu) + sigma is above 2**-400"
    errors.require(bool((abs(m) + d > 2.0**-400).all()), "sigma", accepted, (abs(m) + d).min(initial=1))
    reach = abs(m) + cluster.REACH * d
    errors.require(bool((reach < 2.0**120).all()), "mu", "small enough, below 2**120", reach.max(initial=0))
    return m, d


def _factors(fmt: MXFormat, tensor_scale: Any, headroom: Any) -> tuple[Fraction, Fraction]:
    """Check the tensor scale and the headroom, and return both."""
    has_tensor_scale, given = fmt.tensor_scale is not None, tensor_scale is not None
    accepted = "given" if has_tensor_scale else "left out"
    errors.require(has_tensor_scale == given, "tensor_scale", f"{accepted} for {fmt.name}", tensor_scale)
    made = errors.fraction("tensor_scale", tensor_scale if given else 1), errors.fraction("headroom", headroom)
    errors.require(made[1] == 1 or not fmt.scale.power_of_two, "headroom", f"left out for {fmt.name}", headroom)
    return made


def _moments(model: Model, mu: Array, sigma: Array) -> Moments:
    """Return the moments for flat arrays of mu and sigma.

    Where sigma is 0, or too small to distinguish from 0, the numbers of a block count as equal.
    """
    m, d = mu.ravel(), sigma.ravel()
    spread = d > abs(m) * 1e-13
    single = {name: np.zeros(m.size) for name in cluster.QUANTITIES}
    pair = {name: np.zeros(m.size) for name in ("relative_error", "error")}
    if spread.any():
        found = cluster.moments(model, m[spread], d[spread])
        for into, values in ((single, found.single), (pair, found.pair)):
            for name in into:
                into[name][spread] = values[name]
    for index in np.nonzero(~spread)[0]:
        _equal_numbers(model, Fraction(float(m[index])), int(index), single, pair)
    low, high = cluster.window(model, m, d)
    reaches_zero = (low <= 0) & (high >= 0)
    if model.rounding not in NEVER_AWAY_FROM_ZERO and reaches_zero.any():
        single["relative_square"][reaches_zero] = np.inf
        if not model.rounding.is_stochastic:
            single["relative_error"][reaches_zero] = np.inf
            pair["relative_error"][reaches_zero] = np.inf
    return Moments(single, pair)


def _equal_numbers(model: Model, x: Fraction, index: int, single: dict[str, Array], pair: dict[str, Array]) -> None:
    """Store the exact moments, rounded once to float64, of a block whose numbers all equal x."""
    factor = model.ladder.units[model.ladder.of(abs(x))] / model.prescale
    quantizer = PiecewiseQuantizer.of(model.element, model.rounding)
    # If the scale is zero, the quantized value is 0. Rounding x toward zero at a scale far above x
    # gives the same result.
    if factor == 0:
        factor, quantizer = abs(x) * 2**20, PiecewiseQuantizer.of(model.element, Rounding.RTZ)
    y, largest = x / factor, Fraction(model.element.max)
    mean, square = quantizer.mean(y), second_moment(quantizer, y)
    error = mean - y
    values: dict[str, Fraction | int] = {
        "mass": 1,
        "error": error * factor,
        "square_error": (square - 2 * mean * y + y**2) * factor**2,
        "product": error * y * factor**2,
        "noise": (square - mean**2) * factor**2,
        "relative_error": error / y,
        "overflow": abs(y) > largest,
        "on_max": _share(quantizer, y, largest),
        "zero": _share(quantizer, y, Fraction(0)),
    }
    for name, value in values.items():
        single[name][index] = float(value)
    # The mean square is computed from the float `bias`, so that subtracting bias * bias gives
    # exactly 0 if the variance is 0.
    bias = float(error / y)
    single["relative_square"][index] = bias * bias + float((square - mean**2) / y**2)
    pair["relative_error"][index] = bias * bias
    pair["error"][index] = float(error * factor) ** 2


def _share(quantizer: PiecewiseQuantizer, y: Fraction, magnitude: Fraction) -> Fraction:
    """Return P(|Q(y)| = magnitude)."""
    mean, square = quantizer.mean(y), second_moment(quantizer, y)
    if square == mean**2:
        return Fraction(abs(mean) == magnitude)
    levels = PiecewiseQuantizer.of(quantizer.element, Rounding.SR).breakpoints
    below, above = max(v for v in levels if v <= y), min(v for v in levels if v > y)
    up = (y - below) / (above - below)
    return (1 - up) * (abs(below) == magnitude) + up * (abs(above) == magnitude)


#: The square root of 3, rounded to 400 bits, for the ends of a uniform cluster in formulas and
#: enclosures.
_SQRT3 = Fraction(math.isqrt(3 << 800), 1 << 400)


def _uniform_ends(mu: Fraction, sigma: Fraction) -> tuple[Fraction, Fraction]:
    return mu - sigma * _SQRT3, mu + sigma * _SQRT3


def _cut(model: Model, mu: Fraction, sigma: Fraction, reach: float) -> Cut:
    """Return the scales and the interval of numbers that together have almost all probability.

    For a normal distribution, the interval extends `reach` standard deviations, rounded up to an
    integer, on each side of mu.
    """
    if model.distribution == "uniform":
        low, high = _uniform_ends(mu, sigma)
    else:
        low, high = (mu + sign * sigma * Fraction(math.ceil(reach)) for sign in (-1, 1))
    ladder = model.ladder
    last = last_begun(ladder, max(abs(low), abs(high)))
    if low <= 0 <= high:
        # P(all |X| < t) is at most (2 t / d)**k, where d is sigma sqrt(2 pi) for a normal
        # distribution, and the width of the interval for a uniform one. At the scale `first`, this
        # bound is negligible.
        bits = reach**2 / (2 * math.log(2))
        first = last_begun(ladder, sigma / 2 ** (math.ceil(bits / model.block_size) + 3))
    else:
        first = last_begun(ladder, min(abs(low), abs(high)))
    return Cut(range(first, last + 1), low, high)
