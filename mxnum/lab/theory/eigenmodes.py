"""Compute how noise in each element of a gradient affects a mode, and how high a mode's loss rises.

Suppose the elements of a gradient are multiplied by factors 1 + zeta_i, where the zeta_i are
independent. A mode v is a unit eigenvector of the preconditioned Hessian. The noise multiplies the
gradient along v by 1 + xi, where xi = sum v_i^2 zeta_i. The variance of xi is the variance of the
zeta_i times sum v_i^4. The factor sum v_i^4 is 1 for a mode of one element and 1/n for a mode with
n equal elements.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from mxnum import errors
from mxnum.lab.theory.stability import stability_limit

#: `arrest` computes the median loss before a rise from steps whose curvature is below `QUIET` times
#: the stability limit.
QUIET = 0.8


def inverse_participation(mode: Any) -> Any:
    """Return sum v_i^4 / (sum v_i^2)^2 along the last axis: 1/n for n equal elements.

    >>> float(inverse_participation([0.0, 3.0])), float(inverse_participation([1.0, -1.0, 1.0, 1.0]))
    (1.0, 0.25)
    """
    squares = np.square(np.asarray(mode, np.float64))
    return (np.square(squares).sum(axis=-1) / np.square(squares.sum(axis=-1)))[()]


def mode_limit(bias: Any = 0.0, deviation: Any = 0.0, participation: Any = 1.0, *, momentum: float = 0.0) -> Any:
    """Return the product of learning rate and curvature below which a mode is stable.

    Each element of the gradient has its own noise, with the standard deviation `deviation`. The
    function calls `stability_limit` with the variance deviation**2 * participation. Here
    `participation` is the inverse participation ratio of the mode. If one noise is common to all
    elements, use a `participation` of 1.

    >>> round(float(mode_limit(deviation=0.5, momentum=0.9) / mode_limit(momentum=0.9)), 3)
    0.174
    >>> round(float(mode_limit(deviation=0.5, participation=0.01, momentum=0.9) / mode_limit(momentum=0.9)), 3)
    0.955
    """
    share = np.asarray(participation, float)
    errors.require(bool(((share > 0) & (share <= 1)).all()), "participation", "above 0 and at most 1", participation)
    return stability_limit(bias, np.square(np.asarray(deviation, float)) * share, momentum=momentum)


@dataclass(frozen=True)
class Arrest:
    """The height of a rise: the largest loss divided by the median loss before the rise."""

    #: The median, the smallest and the largest height among the copies of the run.
    height: float
    lowest: float
    highest: float


def arrest(
    beta2: float, *, momentum: float = 0.9, sharpening: float = 1e-3, start: float = 0.3, ceiling: float = 1.2,
    after: int = 4000, copies: int = 16, seed: int = 0,
) -> Arrest:  # fmt: skip
    """Return how high the loss lambda x^2 / 2 rises under Adam while the curvature lambda grows.

    The noise in the gradient has standard deviation 1. The curvature lambda starts at `start` times
    Adam's stability limit and grows by a factor of 1 + `sharpening` in each step. Lambda stops
    growing at `ceiling` times this limit, and Adam then makes `after` more steps. Above the
    stability limit, abs(x) grows. After about 1 / (1 - beta2) steps the growing gradient has
    increased Adam's second moment, which makes Adam's steps smaller. In this way Adam itself stops
    the rise of the loss.
    """
    errors.require(0 < beta2 < 1, "beta2", "between 0 and 1", beta2)
    errors.require(0 < start < QUIET, "start", f"above 0 and below {QUIET}", start)
    errors.require(1 < ceiling < math.inf, "ceiling", "above 1", ceiling)
    errors.require(sharpening > 0, "sharpening", "positive", sharpening)
    errors.integer("after", after, 0, 2**40)
    errors.positive_integer("copies", copies)
    rng, limit = np.random.default_rng(seed), float(stability_limit(momentum=momentum))
    quiet, crossing = (math.ceil(math.log(share / start) / sharpening) for share in (QUIET, ceiling))
    accepted = f"so small that lambda takes at least two steps to grow to {QUIET} times the limit"
    errors.require(quiet > 1, "sharpening", accepted, sharpening)
    x, first, second = np.zeros(copies), np.zeros(copies), np.ones(copies)
    losses, curvature = np.empty((crossing + after, copies)), start * limit
    for loss in losses:
        loss[...] = curvature * x * x / 2
        gradient = curvature * x + rng.standard_normal(copies)
        first = momentum * first + (1 - momentum) * gradient
        second = beta2 * second + (1 - beta2) * gradient**2
        x = x - first / np.sqrt(second)
        curvature = min(curvature * (1 + sharpening), ceiling * limit)
    heights = losses.max(axis=0) / np.median(losses[quiet // 2 : quiet], axis=0)
    return Arrest(float(np.median(heights)), float(heights.min()), float(heights.max()))
