"""Minimize the Huber loss of log L - log(A/N^alpha + B/D^beta + E), for many problems at once.

With a = ln A, b = ln B and e = ln E, the law is exp(z1) + exp(z2) + exp(z3). z1, z2 and z3 are
linear in the five parameters:

    z1 = a - alpha ln N,   z2 = b - beta ln D,   z3 = e.

Let p_k be exp(z_k) divided by the law, and let c_k be the gradient of z_k. The logarithm of the law
has this gradient g and this Hessian:

    gradient  g = sum p_k c_k,      Hessian  sum p_k c_k c_k' - g g'.

The gradient and the Hessian of the Huber loss follow from the gradient and the Hessian of the law's
logarithm. A step s of Newton's method solves (H + lambda M) s = -gradient. H is the exact Hessian
of the Huber loss. M is the Hessian of a quadratic upper bound of the Huber loss; this bound gives a
residual r the weight min(1, delta/abs(r)). Because M comes from an upper bound, a step with a large
damping lambda lowers the loss. All problems (the first axis of arrays) are solved together, so a
bootstrap takes little more time than one fit.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from mxnum.memory.dtypes import Array

#: The number of parameters. The order of parameters is ln A, ln B, ln E, alpha, beta.
PARAMETERS = 5
#: The largest change of a parameter in one step.
_LONGEST = 2.0
_MOST_STEPS = 400
#: Two tolerances for convergence: `EXACT` is the limit of float64, and `ENOUGH` is for resampled
#: fits.
EXACT, ENOUGH = 1e-14, 1e-7
_MOST_TRIES = 12


class Minimum(NamedTuple):
    """The minimum that `minimize` found for each problem."""

    #: problems x 5
    parameters: Array
    loss: Array
    #: True if the last step lowered the loss by at most the fraction `tolerance`, or if even a
    #: strongly damped step did not lower the loss.
    converged: Array


class _Curvature(NamedTuple):
    """For each problem: the Huber loss, the gradient, the Hessian and the upper bound's Hessian."""

    loss: Array
    gradient: Array
    hessian: Array
    above: Array


def predict(parameters: Array, x: Array, y: Array) -> Array:
    """Return the law's logarithm for each problem and point; `x` is ln N, and `y` is ln D."""
    return _parts(parameters, x, y)[1]


def minimize(
    parameters: Array,
    x: Array,
    y: Array,
    target: Array,
    weights: Array,
    delta: float,
    *,
    free: Array | None = None,
    tolerance: float = EXACT,
) -> Minimum:
    """Minimize the Huber loss of each problem, starting from the problem's row of `parameters`.

    A search ends when a step lowers the loss by at most the fraction `tolerance`. `target` is ln L
    of each point, and `weights` are the weights of the points in the loss. `target` and `weights`
    have either one row for all problems or one row for each problem. Parameters stay fixed where
    `free` (problems x 5) is False.
    """
    found = np.array(parameters, np.float64)
    shape = len(found), len(x)
    target, weights = np.broadcast_to(target, shape), np.broadcast_to(weights, shape)
    free = np.ones(found.shape, bool) if free is None else free
    damping, converged = np.ones(len(found)), np.zeros(len(found), bool)
    loss = _loss(found, x, y, target, weights, delta)
    live = np.arange(len(found))
    for _ in range(_MOST_STEPS):
        here = _curvature(found[live], x, y, target[live], weights[live], delta, free[live])
        done = np.zeros(len(live), bool)
        left = np.arange(len(live))
        for _ in range(_MOST_TRIES):
            at, tries = live[left], _Curvature(*(values[left] for values in here))
            step = _step(tries, damping[at])
            tried = found[at] + step
            reached = _loss(tried, x, y, target[at], weights[at], delta)
            better = (reached < tries.loss) & ((step * tries.gradient).sum(axis=1) < 0)
            found[at[better]], loss[at[better]] = tried[better], reached[better]
            damping[at[better]] = np.maximum(damping[at[better]] / 5, 1e-12)
            done[left[better]] = (tries.loss - reached <= tolerance * tries.loss)[better]
            left = left[~better]
            if not left.size:
                break
            damping[live[left]] = np.maximum(damping[live[left]], 1e-6) * 8
        done[left] |= damping[live[left]] > 1e4
        converged[live[done]] = True
        live = live[~done]
        if not live.size:
            break
    return Minimum(found, loss, converged)


def _parts(parameters: Array, x: Array, y: Array) -> tuple[Array, Array]:
    """Return each term's share p_k of the law, and the logarithm of the law."""
    a, b, e, alpha, beta = (parameters[:, i, None] for i in range(PARAMETERS))
    terms = np.empty((3, len(parameters), len(x)))
    terms[0], terms[1], terms[2] = a - alpha * x, b - beta * y, e
    largest = terms.max(axis=0)
    shares = np.exp(terms - largest)
    total = shares.sum(axis=0)
    return shares / total, largest + np.log(total)


def huber(residuals: Array, delta: float) -> Array:
    """Return the Huber loss: r^2 / 2 if abs(r) <= delta, else delta (abs(r) - delta / 2)."""
    size = np.abs(residuals)
    inner = np.minimum(size, delta)
    result: Array = inner * (size - inner / 2)
    return result


def _loss(parameters: Array, x: Array, y: Array, target: Array, weights: Array, delta: float) -> Array:
    result: Array = (weights * huber(predict(parameters, x, y) - target, delta)).sum(axis=1)
    return result


def _curvature(
    parameters: Array, x: Array, y: Array, target: Array, weights: Array, delta: float, free: Array
) -> _Curvature:
    shares, logarithm = _parts(parameters, x, y)
    residuals = logarithm - target
    size = np.abs(residuals)
    slope = weights * np.clip(residuals, -delta, delta)
    g = np.stack([*shares, -x * shares[0], -y * shares[1]], axis=-1)
    above = _outer(weights / np.maximum(size / delta, 1), g)
    hessian = _outer(weights * (size < delta) - slope, g)
    for k, (term, exponent, u) in enumerate(((0, 3, x), (1, 4, y))):
        pull = slope * shares[k]
        cross = -(pull * u).sum(axis=1)
        hessian[:, term, term] += pull.sum(axis=1)
        hessian[:, term, exponent] += cross
        hessian[:, exponent, term] += cross
        hessian[:, exponent, exponent] += (pull * u * u).sum(axis=1)
    hessian[:, 2, 2] += (slope * shares[2]).sum(axis=1)
    both = free[:, :, None] & free[:, None, :]
    gradient = np.where(free, np.einsum("bn,bni->bi", slope, g), 0)
    loss = (weights * huber(residuals, delta)).sum(axis=1)
    return _Curvature(loss, gradient, np.where(both, hessian, 0), np.where(both, above, 0))


def _outer(weights: Array, g: Array) -> Array:
    """Return, for each problem, the weighted sum of the matrices g g' over the points."""
    result: Array = np.swapaxes(g * weights[:, :, None], 1, 2) @ g
    return result


def _step(here: _Curvature, damping: Array) -> Array:
    """Return the damped Newton step of each problem.

    The step is zero for fixed parameters, and along directions in which the loss is constant.
    """
    size = np.einsum("bii->b", here.above) / PARAMETERS
    ridge = (1e-14 + 1e-6 * damping) * size + 1e-300
    matrix = here.hessian + damping[:, None, None] * here.above + ridge[:, None, None] * np.eye(PARAMETERS)
    step = -np.linalg.solve(matrix, here.gradient[:, :, None])[:, :, 0]
    longest = np.abs(step).max(axis=1, keepdims=True)
    result: Array = step * np.minimum(1, _LONGEST / np.maximum(longest, _LONGEST))
    return result
