"""Measure gradients and rounding errors during a run, without changing the run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from mxnum.lab.mlp.model import KINDS, Network
from mxnum.lab.mlp.operands import affine, in_last_bin
from mxnum.recipe import Operand, Recipe

if TYPE_CHECKING:
    from mxnum.lab.mlp.by_torch import TorchNetwork

Array = Any

#: The format that `in_last_bin` assumes for gamma or activations if the recipe does not round them
#: to an MX format.
_REFERENCE = Operand("mxfp8_e4m3")


def measurements(network: Network | TorchNetwork, x: Array, y: Array, step: int) -> dict[str, Array]:
    """Return measurements of each run on one batch, at the current parameters of the run.

    ``zeta``
        ||g~ - g|| / ||g||, where g~ is the gradient in the run's precision, and g the gradient in
        float32 at the same parameters and batch. The paper writes g~ = (I + zeta) g; the quotient
        is a lower bound of the operator norm of zeta. The paper's released code logs the square of
        the quotient.
    ``zeta_gamma``, ``zeta_beta``, ``zeta_bias``, ``zeta_w1``, ``zeta_w2``
        The same quotient for the gradients of one kind of parameter.
    ``cosine``
        The cosine of the angle between the gradients in the run's precision and in float32.
    ``gradient_norm``
        The norm of the gradient in the run's precision; `float32_gradient_norm` is the norm in
        float32.
    ``gamma_in_last_bin``, ``activations_in_last_bin``
        For each layer, the share of the numbers that exceed the largest value that their block can
        represent under the floor rule.
    ``gamma_error``, ``beta_error``
        For each layer, the root mean square of the rounding errors of gamma and of beta. Like the
        next two, it is absolute: `mxnum.analysis.gamma_bias` divides errors by gamma.
    ``gamma_bias``, ``beta_bias``
        For each layer, the mean of the rounding errors of gamma and of beta.
    """
    runs, p = len(network.seeds), network.experiment.precision
    network.loss_and_gradients(x, y, step)
    reduced = [network.gradients.run(r).astype(np.float64) for r in range(runs)]
    by_kind = {k: getattr(network.gradients, k).astype(np.float64) for k in KINDS}
    hidden = np.stack([layer.h for layer in network.saved])
    result: dict[str, Array] = {}
    gamma_bins = p.gamma if p.gamma.is_mx else _REFERENCE
    h_bins = p.activations if p.activations.is_mx else _REFERENCE
    result["gamma_in_last_bin"] = in_last_bin(network.parameters.gamma, gamma_bins).mean(axis=-1).T
    result["activations_in_last_bin"] = in_last_bin(hidden, h_bins).mean(axis=(-1, -2)).T
    result["hidden_largest"] = np.abs(hidden).max(axis=(-1, -2)).T
    for name, index in (("gamma", 0), ("beta", 1)):
        x_master, operand = getattr(network.parameters, name), getattr(p, name)
        error = affine(x_master, operand, network.seeds, step, index) - x_master
        result[f"{name}_error"] = np.sqrt(np.square(error, dtype=np.float64).mean(axis=-1)).T
        result[f"{name}_bias"] = error.mean(axis=-1, dtype=np.float64).T
    for kind in ("gamma", "beta", "w1", "w2"):
        values = getattr(network.parameters, kind).astype(np.float64)
        result[f"{kind}_rms"] = np.sqrt(np.square(values).mean(axis=_inner(kind, 2))).T
    for kind, gradient in by_kind.items():
        result[f"gradient_norm_{kind}"] = _norm(gradient, kind)
    norm = np.array([np.linalg.norm(g) for g in reduced])
    result["gradient_norm"] = norm
    if p == Recipe():
        exact = reduced
    else:
        network.loss_and_gradients(x, y, step, Recipe())
        exact = [network.gradients.run(r).astype(np.float64) for r in range(runs)]
    plain = np.array([np.linalg.norm(g) for g in exact])
    with np.errstate(all="ignore"):
        result["float32_gradient_norm"] = plain
        for kind, gradient in by_kind.items():
            plain_gradient = getattr(network.gradients, kind).astype(np.float64)
            result[f"zeta_{kind}"] = _norm(gradient - plain_gradient, kind) / _norm(plain_gradient, kind)
        result["zeta"] = np.array([np.linalg.norm(a - b) for a, b in zip(reduced, exact, strict=True)]) / plain
        result["cosine"] = np.array([a @ b for a, b in zip(reduced, exact, strict=True)]) / (norm * plain)
    return {name: np.asarray(value, np.float32) for name, value in result.items()}


def _norm(gradient: Array, kind: str) -> Array:
    """Return the norm of a gradient over all layers, for each run."""
    return np.sqrt(np.square(gradient).sum(axis=(0, *_inner(kind))))


def _inner(kind: str, start: int = 2) -> tuple[int, ...]:
    return tuple(range(start, 4)) if kind in ("w1", "w2") else (start,)
