"""Compute how a multiplicative error compounds over L layers, in plain and residual chains.

Let the branch of a layer have gain j and relative error zeta. The layer multiplies the signal
(backward: the gradient) by s + j (1 + zeta), where s is 1 with a skip connection and 0 without.
Without error, the layer multiplies the signal by s + j. If the errors of layers are independent,
each moment of the product of all factors is the product of the layers' moments.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from mxnum import errors


@dataclass(frozen=True)
class CompoundedGain:
    """Moments of the gain of several layers.

    The gain is the product of all layers' factors, divided by the product without errors.
    """

    #: E[gain]; 1 without errors.
    mean: Any
    #: E[gain**2].
    second_moment: Any

    @property
    def bias(self) -> Any:
        """E[gain] - 1."""
        return self.mean - 1

    @property
    def relative_spread(self) -> Any:
        """The standard deviation of the gain divided by the mean gain."""
        return np.sqrt(np.maximum(self.second_moment / self.mean**2 - 1, 0.0))


def layer_factor(bias: Any, variance: Any, branch: Any, skip: int) -> tuple[Any, Any]:
    """Return E[r] and E[r**2], where r is a layer's factor divided by its factor without error.

    Arguments are numbers or sympy symbols.
    """
    share = branch / (skip + branch)
    return 1 + share * bias, (1 + share * bias) ** 2 + share**2 * variance


def compounded_gain(
    bias: Any, variance: Any = 0.0, *, layers: int, branch: Any = 1.0, residual: bool = False
) -> CompoundedGain:
    """Return the gain of `layers` layers whose relative errors have the given bias and variance.

    Without skip connections, the mean gain is (1 + bias)**layers, whatever `branch` is. With skip
    connections (`residual`), only the share branch / (1 + branch) of the signal passes through the
    branch, and only this share has the error.

    >>> round(float(compounded_gain(-0.0591, layers=24).bias), 3)
    -0.768
    >>> round(float(compounded_gain(-0.0591, layers=24, branch=0.1, residual=True).bias), 3)
    -0.121
    """
    layers = errors.positive_integer("layers", layers)
    errors.require(bool((np.asarray(bias) >= -1).all()), "bias", "a relative error of at least -1", bias)
    errors.require(bool((np.asarray(variance) >= 0).all()), "variance", "at least 0", variance)
    j = np.asarray(branch, float)
    errors.require(bool((j > 0).all()), "branch", "positive", branch)
    first, second = layer_factor(np.asarray(bias, float), np.asarray(variance, float), j, int(residual))
    return CompoundedGain((first**layers)[()], (second**layers)[()])
