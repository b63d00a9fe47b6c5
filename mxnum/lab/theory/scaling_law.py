"""Fit scaling laws L = A/N^alpha + B/D^beta + E of the loss, with intervals of the parameters.

    fit = fit_scaling_law(parameters, tokens, losses)
    fit.law, fit.loss, fit.bootstrap(), fit.profile()

The fit minimizes the mean Huber loss of log L. The Huber loss is quadratic for residuals up to
`delta` and linear beyond, so outliers among the runs hardly change the law. Newton's method
(`huber_law`) searches for the minimum from a grid of starting points.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import NormalDist
from typing import Any

import numpy as np

from mxnum import errors
from mxnum.lab.theory import huber_law
from mxnum.lab.theory.loss_tables import LossTable, loss_table
from mxnum.memory.dtypes import Array

#: The names of the parameters. Vectors of parameters for `huber_law` consist of ln A, ln B, ln E,
#: alpha and beta, in this order.
NAMES = ("A", "B", "E", "alpha", "beta")
#: The grid of starting points: the values for ln A and ln B, for ln E, and for alpha = beta.
STARTS = ((5, 10, 15, 20), (0.5,), (0.4,))
#: Two minima count as the same if their losses differ by at most this share.
_SAME = 1e-6

#: The two ends of an interval.
Interval = tuple[float, float]


@dataclass(frozen=True)
class ScalingLaw:
    """The law L = A/N^alpha + B/D^beta + E."""

    A: float
    B: float
    E: float
    alpha: float
    beta: float

    @classmethod
    def of(cls, parameters: Array) -> ScalingLaw:
        """Return the law with the given ln A, ln B, ln E, alpha and beta."""
        return cls(*np.exp(parameters[:3]).tolist(), *parameters[3:].tolist())

    @property
    def as_parameters(self) -> Array:
        """The vector (ln A, ln B, ln E, alpha, beta), from which `of` makes the law."""
        with np.errstate(divide="ignore"):
            return np.array([*np.log([self.A, self.B, self.E]), self.alpha, self.beta])

    def __call__(self, parameters: Any, tokens: Any) -> Any:
        """Return the loss of `parameters` parameters trained on `tokens` tokens."""
        n, d = (np.asarray(v, np.float64) for v in (parameters, tokens))
        return self.A * n**-self.alpha + self.B * d**-self.beta + self.E

    @property
    def falls(self) -> bool:
        """True if more parameters and more tokens both make the loss smaller."""
        return self.alpha > 0 and self.beta > 0

    @property
    def compute_exponent(self) -> float:
        """The exponent a = beta / (alpha + beta) of compute.

        The optimal number of parameters is proportional to compute^a.
        """
        return self.beta / (self.alpha + self.beta)

    def optimal(self, flops: float) -> tuple[float, float]:
        """Return the numbers of parameters N and tokens D with the least loss at 6 N D = flops."""
        errors.require(self.falls, "law", "a law whose loss falls with parameters and tokens", self)
        errors.require(flops > 0, "flops", "positive", flops)
        factor = (self.alpha * self.A / (self.beta * self.B)) ** (1 / (self.alpha + self.beta))
        best = factor * (flops / 6) ** self.compute_exponent
        return best, flops / 6 / best


@dataclass(frozen=True)
class ScalingFit:
    """The law that fits a table best."""

    law: ScalingLaw
    #: The mean Huber loss of log L at the minimum.
    loss: float
    table: LossTable
    delta: float
    #: `starts` is the number of starting points; `agreeing` counts the points that led to the
    #: lowest minimum.
    starts: int
    agreeing: int

    @cached_property
    def residuals(self) -> Array:
        """The log of each run's loss minus the log of the loss that the law predicts."""
        x, y = np.log(self.table.parameters), np.log(self.table.tokens)
        result: Array = np.log(self.table.losses) - huber_law.predict(self._centred(), *self._offset(x, y))[0]
        return result

    @property
    def typical_miss(self) -> float:
        """The median magnitude of the residuals."""
        return float(np.median(np.abs(self.residuals)))

    def draws(self, weights: Array) -> Array:
        """Fit the law anew for each row of `weights`, and return the parameters, as rows x 5.

        A row of `weights` has one weight for each run. The columns of the result are the parameters
        in `NAMES`. Every fit starts from `law`.
        """
        start = np.repeat(self._centred(), len(weights), axis=0)
        found = _minimize(self.table, start, weights, self.delta, huber_law.ENOUGH)
        parameters = _moved(found.parameters, self.table, back=True)
        return np.concatenate([np.exp(parameters[:, :3]), parameters[:, 3:]], axis=1)

    def bootstrap(self, *, level: float = 0.9, draws: int = 400, seed: int = 0) -> dict[str, Interval]:
        """Return a bootstrap interval for each parameter and for `compute_exponent`.

        An interval contains the share `level` of the values from fits to resampled runs. The
        intervals show how much the law depends on the choice of runs. The intervals do not show
        effects that are common to all runs, such as the effect of a shared seed.
        """
        values = self.draws(self._resampled(draws, seed))
        named = dict(zip(NAMES, values.T, strict=True))
        named["compute_exponent"] = named["beta"] / (named["alpha"] + named["beta"])
        return {name: middle(column, level) for name, column in named.items()}

    def forecast(
        self, parameters: float, tokens: float, *, level: float = 0.9, draws: int = 400, seed: int = 0
    ) -> tuple[float, float, float]:
        """Return the loss that the law predicts for a model, and its bootstrap interval.

        The interval does not include the noise of a single run.
        """
        n, d = _one("parameters", parameters), _one("tokens", tokens)
        values = self.draws(self._resampled(draws, seed)).T
        found = values[0] * n ** -values[3] + values[1] * d ** -values[4] + values[2]
        return float(self.law(n, d)), *middle(found, level)

    def profile(self, *, level: float = 0.9) -> dict[str, Interval]:
        """Return, for each parameter, the interval in which a fit is not significantly worse.

        For each value of one parameter, the other parameters are fitted anew. The test quantity is
        twice the increase of the summed Huber loss over its minimum, divided by a scale that is
        estimated from the residuals. A fit is significantly worse if this quantity exceeds the
        chi-squared quantile at `level`. If no larger value makes the fit significantly worse, the
        upper end is infinite. If no smaller value makes the fit significantly worse, the lower end
        is 0 for A, B and E, and minus infinity for alpha and beta.
        """
        _check_level(level)
        size = np.abs(self.residuals)
        # If `delta` is near 0, a fit passes through five of the runs, so `others` omits the five
        # smallest residuals. `inside` estimates the share of `others` that is at most `delta`. If
        # the median of `others` is above `delta`, only a few residuals are that small. The estimate
        # is then the share that is at most the median, times delta / median.
        others = np.sort(size)[5:]
        usual = float(np.median(others))
        inside = np.mean(others <= max(usual, self.delta)) * (1 if usual <= self.delta else self.delta / usual)
        scale = np.square(np.minimum(size, self.delta)).sum() / len(others) / inside
        rise = NormalDist().inv_cdf((1 + level) / 2) ** 2 * scale / (2 * len(size))
        ends = _profile_ends(self.table, self.law.as_parameters, self.delta, self.loss + rise)
        ends[:, :3] = np.exp(ends[:, :3])
        return {name: (float(ends[0, i]), float(ends[1, i])) for i, name in enumerate(NAMES)}

    def _centred(self) -> Array:
        return _moved(self.law.as_parameters[None], self.table)

    def _offset(self, x: Array, y: Array) -> tuple[Array, Array]:
        return x - np.log(self.table.parameters).mean(), y - np.log(self.table.tokens).mean()

    def _resampled(self, draws: int, seed: int) -> Array:
        draws, n = errors.positive_integer("draws", draws), len(self.table)
        return np.random.default_rng(seed).multinomial(n, np.full(n, 1 / n), size=draws) / n


def fit_scaling_law(
    parameters: Any, tokens: Any = None, losses: Any = None, *, delta: float = 1e-3, starts: Sequence[Any] | None = None
) -> ScalingFit:
    """Fit the scaling law that minimizes the mean Huber loss of log L.

    `parameters` may be a `LossTable` instead of three sequences. If `delta` is infinite, the result
    is a least-squares fit. `starts` is a sequence of starting points (ln A, ln B, ln E, alpha,
    beta); the default is a grid of 16 points. The fit keeps the lowest minimum, and its field
    `agreeing` counts the starting points that led to this minimum. If `agreeing` is small, pass
    more starting points.
    """
    if isinstance(parameters, LossTable):
        errors.require(tokens is None and losses is None, "tokens", "left out if 'parameters' is a table", tokens)
        table = parameters
    else:
        table = loss_table(parameters, tokens, losses)
    errors.require(delta > 0, "delta", "positive", delta)
    grid = _grid() if starts is None else np.array(starts, np.float64)
    fits = grid.ndim == 2 and grid.shape[1:] == (5,) and len(grid) > 0 and bool(np.isfinite(grid).all())
    errors.require(fits, "starts", "a sequence of rows of five finite numbers", starts)
    weights = np.full(len(table), 1 / len(table))
    found = _minimize(table, _moved(grid, table), weights, delta)
    best = int(np.argmin(found.loss))
    agreeing = int(np.count_nonzero(found.loss <= found.loss[best] * (1 + _SAME) + 1e-30))
    law = ScalingLaw.of(_moved(found.parameters[best : best + 1], table, back=True)[0])
    return ScalingFit(law, float(found.loss[best]), table, delta, len(grid), agreeing)


def middle(values: Array, level: float) -> Interval:
    """Return the central interval that contains the share `level` of a sample."""
    _check_level(level)
    low, high = np.quantile(values, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


def _check_level(level: float) -> None:
    errors.require(0 < level < 1, "level", "between 0 and 1", level)


def _one(name: str, value: float) -> float:
    errors.require(bool(np.isfinite(value) and value > 0), name, "a positive number", value)
    return float(value)


def _grid() -> Array:
    heights, floors, powers = STARTS
    return np.array([(a, b, e, p, p) for a in heights for b in heights for e in floors for p in powers], np.float64)


def _moved(parameters: Array, table: LossTable, back: bool = False) -> Array:
    """Convert parameters of a law to those of the same law with N and D in other units.

    The units are the geometric means of N and D in `table`. With `back`, the function converts from
    these units. At the geometric mean, N is 1 in these units, so the term A/N^alpha equals A for
    every alpha.
    """
    sign = 1 if back else -1
    moved: Array = np.array(parameters, np.float64)
    moved[:, 0] += sign * moved[:, 3] * np.log(table.parameters).mean()
    moved[:, 1] += sign * moved[:, 4] * np.log(table.tokens).mean()
    return moved


def _minimize(
    table: LossTable, start: Array, weights: Array, delta: float, tolerance: float = huber_law.EXACT
) -> huber_law.Minimum:
    x, y = np.log(table.parameters), np.log(table.tokens)
    target = np.log(table.losses)
    return huber_law.minimize(start, x - x.mean(), y - y.mean(), target, weights, delta, tolerance=tolerance)


def _profile_ends(table: LossTable, best: Array, delta: float, limit: float) -> Array:
    """Return the lower and the upper end of an interval for each parameter, as 2 x 5.

    If a parameter is fixed at a value in its interval, a fit of the other parameters reaches a loss
    of at most `limit`.
    """
    x, y, target = np.log(table.parameters), np.log(table.tokens), np.log(table.losses)
    which = np.tile(np.arange(5), 2)
    sign = np.repeat([-1.0, 1.0], 5)
    free = ~np.eye(5, dtype=bool)[which]
    rows = np.arange(10)

    def held(at: Array, start: Array) -> tuple[Array, Array]:
        start = start.copy()
        start[rows, which] = at
        found = huber_law.minimize(start, x, y, target, np.full(len(x), 1 / len(x)), delta, free=free, tolerance=1e-9)
        return found.parameters, found.loss

    inner, reach = best[which], np.full(10, 1e-3)
    nearest, outside = np.repeat(best[None], 10, axis=0), np.zeros(10, bool)
    outer = inner
    for _ in range(18):  # move outward, at most by 1e-3 * 2^17 = 131, until the loss exceeds `limit`
        outer = np.where(outside, outer, best[which] + sign * reach)
        found, loss = held(outer, nearest)
        outside = loss > limit
        inner = np.where(outside, inner, outer)
        nearest = np.where(outside[:, None], nearest, found)
        if outside.all():
            break
        reach = np.where(outside, reach, 2 * reach)
    for _ in range(24):
        between = (inner + outer) / 2
        found, loss = held(between, nearest)
        beyond = loss > limit
        inner, outer = np.where(beyond, inner, between), np.where(beyond, between, outer)
        nearest = np.where(beyond[:, None], nearest, found)
    ends = np.where(outside, (inner + outer) / 2, sign * np.inf)
    return ends.reshape(2, 5)
