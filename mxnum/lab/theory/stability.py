"""Compute how multiplicative noise in gradients moves the stability boundary on a quadratic.

The loss is lambda theta**2 / 2. The optimizer sees the gradient (1 + zeta) lambda theta with
E[zeta] = b and Var[zeta] = v, independent from step to step. Momentum is an average, as in Adam: m
<- beta m + (1 - beta) gradient, then theta <- theta - eta m. Let a = eta lambda and u = eta m,
where eta is the learning rate. The second moments (E theta^2, E theta u, E u^2) obey a linear
recurrence. The recurrence maps covariance matrices to covariance matrices. By the theorem of Krein
and Rutman, its spectral radius is therefore an eigenvalue, and the eigenvector is a covariance
matrix. So the recurrence becomes unstable exactly when 1 becomes an eigenvalue of its matrix.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from mxnum import errors


def moment_matrix(rate: Any, gain: Any, variance: Any, momentum: Any) -> list[list[Any]]:
    """Return the 3 x 3 matrix of the recurrence of second moments, for numbers or sympy symbols.

    `rate` is a = eta lambda (learning rate times curvature), and `gain` is 1 + b. With r = (1 -
    beta) a (1 + zeta), a step computes theta' = (1 - r) theta - beta u and u' = r theta + beta u.
    """
    beta = momentum
    first = (1 - beta) * rate * gain
    second = first**2 + ((1 - beta) * rate) ** 2 * variance
    return [
        [1 - 2 * first + second, -2 * beta * (1 - first), beta**2],
        [first - second, beta * (1 - 2 * first), -(beta**2)],
        [second, 2 * beta * first, beta**2],
    ]


@cache
def stability_expression() -> Any:
    """Return the largest stable a = eta lambda as a sympy expression in bias, variance and beta.

    The expression solves det(I - M) = 0, where M is the `moment_matrix`.

    >>> import sympy
    >>> sympy.simplify(stability_expression().subs(sympy.Symbol("beta", positive=True), 0))
    2*(bias + 1)/(variance + (bias + 1)**2)
    """
    import sympy

    rate, gain, variance, beta = sympy.symbols("a gain variance beta", positive=True)
    matrix = sympy.Matrix(moment_matrix(rate, gain, variance, beta))
    determinant = sympy.factor((sympy.eye(3) - matrix).det())
    (limit,) = (root for root in sympy.solve(determinant, rate) if root != 0)
    return sympy.factor(limit).subs(gain, 1 + sympy.Symbol("bias", real=True))


def stability_limit(bias: Any = 0.0, variance: Any = 0.0, *, momentum: float = 0.0) -> Any:
    """Return the learning rate times curvature (eta lambda) below which E[theta**2] decays.

    The limit is 0 if 1 + bias is not positive. Without momentum the limit is 2 (1 + b) / ((1 +
    b)**2 + v). With momentum beta the limit is 2 (1 + b) (1 + beta) / ((1 - beta) (1 + b)**2 + (1 +
    beta) v). So momentum increases the weight of v relative to (1 + b)**2, by the factor (1 + beta)
    / (1 - beta).

    >>> float(stability_limit()), float(stability_limit(-0.125)), round(float(stability_limit(momentum=0.9)), 9)
    (2.0, 2.2857142857142856, 38.0)
    """
    errors.require(0 <= momentum < 1, "momentum", "at least 0 and below 1", momentum)
    gain, v = np.broadcast_arrays(1 + np.asarray(bias, float), np.asarray(variance, float))
    errors.require(bool(np.isfinite(gain).all()), "bias", "finite", bias)
    errors.require(bool(((v >= 0) & np.isfinite(v)).all()), "variance", "at least 0 and finite", variance)
    with np.errstate(divide="ignore", invalid="ignore"):
        limit = 2 * gain * (1 + momentum) / ((1 - momentum) * gain**2 + (1 + momentum) * v)
    return np.where(gain > 0, limit, 0.0)[()]


def adam_limit(bias: Any = 0.0, variance: Any = 0.0, *, momentum: float = 0.9) -> Any:
    """Return the stability limit of Adam for a second moment that averages over many steps.

    The limit applies to eta lambda, where lambda is the curvature divided by the root of E[g**2]
    without noise. Adam divides by the root of E[g**2], which noise multiplies by
    sqrt((1 + b)**2 + v). A bias without variance does not change the limit. Variance always lowers
    the limit.

    >>> round(float(adam_limit(-0.125)), 3), round(float(adam_limit(0.0, 0.1)), 3)
    (38.0, 13.743)
    """
    gain = 1 + np.asarray(bias, float)
    return stability_limit(bias, variance, momentum=momentum) * np.sqrt(gain**2 + np.asarray(variance, float))
