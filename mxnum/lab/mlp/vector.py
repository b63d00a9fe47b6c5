"""The vector operations as array expressions, for CuPy: every function of `kernels`, with its name and arguments.

They compute the same formulas. Sums run in the order of the library and functions are the library's own, so that the
last bits differ from those of `kernels`.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

Array = Any
_F = np.float32
_GELU_1, _GELU_3 = _F(2 * math.sqrt(2 / math.pi)), _F(2 * math.sqrt(2 / math.pi) * 0.044715)
_SQRT_HALF, _NORMAL = _F(math.sqrt(0.5)), _F(1 / math.sqrt(2 * math.pi))
#: As in `kernels`: Abramowitz and Stegun 7.1.26.
_E0 = _F(0.3275911)
_E1, _E2, _E3, _E4, _E5 = _F(0.254829592), _F(-0.284496736), _F(1.421413741), _F(-1.453152027), _F(1.061405429)


def _rounded_bits(bits: Array, bf16: int) -> Array:
    if bf16 == 0:
        return bits
    odd = (bits >> 16) & 1 if bf16 == 1 else 1
    number, nan = (bits + 0x7FFF + odd) & -65536, (bits | 0x00400000) & -65536
    return np.where((bits & 0x7FFFFFFF) > 0x7F800000, nan, number)


def _rounded(x: Array, bf16: int) -> Array:
    return x if bf16 == 0 else _rounded_bits(x.view(np.int32), bf16).view(np.float32)


def _round(x: Array, bf16: int) -> None:
    if bf16 != 0:
        x[...] = _rounded(x, bf16)


def round_bf16(x: Array, out: Array, bf16: int) -> None:
    """`out` = x rounded to bfloat16 (views of int32)."""
    out[...] = _rounded_bits(x, bf16)


def round_in_place(bits: Array, bf16: int) -> None:
    """x rounded to bfloat16 (a view of int32)."""
    bits[...] = _rounded_bits(bits, bf16)


def largest_of_blocks(bits: Array, largest: Array) -> None:
    """The largest magnitude at each offset of (rows, blocks, offsets), as bits, of which NaN's are the largest."""
    largest[...] = (bits & 0x7FFFFFFF).max(axis=1)


def take_where(x: Array, other: Array, where: Array) -> None:
    """x = other at the chosen offsets of (rows, blocks, offsets)."""
    x[...] = np.where(where[:, None], other, x)


def add_rounded_bias(x: Array, bias: Array, stream: Array, bf16: int) -> None:
    """stream += round(round(x) + bias)."""
    stream += _rounded(_rounded(x, bf16) + bias[:, None], bf16)


def layer_norm(
    x: Array,
    gamma: Array,
    beta: Array,
    normalized: Array,
    inverse_deviation: Array,
    out: Array,
    epsilon: Any,
    bf16: int,
) -> None:
    """out = normalized * gamma + beta; x is first rounded to bfloat16, and so is `out`."""
    row = _rounded(x, bf16)
    row = row - row.mean(axis=-1, keepdims=True)
    inverse_deviation[...] = 1 / np.sqrt((row * row).mean(axis=-1) + epsilon)
    normalized[...] = row * inverse_deviation[..., None]
    out[...] = _rounded(normalized * gamma[:, None] + beta[:, None], bf16)


def layer_norm_backward(
    d_out: Array,
    normalized: Array,
    inverse_deviation: Array,
    gamma: Array,
    d_gamma: Array,
    d_beta: Array,
    d_stream: Array,
    bf16: int,
) -> None:
    """d_stream += the gradient of the input; d_gamma and d_beta are written. d_out is first rounded to bfloat16."""
    d = _rounded(d_out, bf16)
    d_gamma[...] = (d * normalized).sum(axis=1)
    d_beta[...] = d.sum(axis=1)
    d = d * gamma[:, None]
    mean, along = d.mean(axis=-1, keepdims=True), (d * normalized).mean(axis=-1, keepdims=True)
    d_stream += inverse_deviation[..., None] * (d - mean - normalized * along)


def relu(u: Array, out: Array, bf16: int) -> None:
    """out = max(u, 0); u is rounded in place."""
    _round(u, bf16)
    out[...] = np.maximum(u, 0)


def relu_backward(u: Array, d_out: Array, d_in: Array, bf16: int) -> None:
    """d_in = d_out where u > 0; d_out is rounded in place."""
    _round(d_out, bf16)
    d_in[...] = d_out * (u > 0)


def gelu_tanh(u: Array, slope: Array, out: Array, bf16: int) -> None:
    """The tanh form. u is rounded in place; `slope` keeps the derivative for the backward pass."""
    _round(u, bf16)
    q = 1 / (1 + np.exp(np.minimum(-(u * (_GELU_1 + _GELU_3 * u * u)), _F(80))))
    slope[...] = q + u * q * (1 - q) * (_GELU_1 + _F(3) * _GELU_3 * u * u)
    out[...] = _rounded(u * q, bf16)


def gelu_exact(u: Array, slope: Array, out: Array, bf16: int) -> None:
    """x Phi(x), with erf to 1.5e-7. u is rounded in place; `slope` keeps the derivative."""
    _round(u, bf16)
    density = np.exp(_F(-0.5) * u * u)
    t = 1 / (1 + _E0 * _SQRT_HALF * np.abs(u))
    upper = _F(0.5) * density * t * (_E1 + t * (_E2 + t * (_E3 + t * (_E4 + t * _E5))))
    phi = np.where(u >= 0, 1 - upper, upper)
    slope[...] = phi + u * density * _NORMAL
    out[...] = _rounded(u * phi, bf16)


def scaled_backward(slope: Array, d_out: Array, d_in: Array, bf16: int) -> None:
    """d_in = d_out * slope, both rounded; d_out in place."""
    _round(d_out, bf16)
    d_in[...] = _rounded(d_out * slope, bf16)


def swiglu(u: Array, sigmoid: Array, out: Array, bf16: int) -> None:
    """out = a * b * sigmoid(b), u = (a, b) along the last axis. u is rounded in place."""
    _round(u, bf16)
    a, b = u[..., : out.shape[-1]], u[..., out.shape[-1] :]
    sigmoid[...] = 1 / (1 + np.exp(np.minimum(-b, _F(80))))
    out[...] = _rounded(a * b * sigmoid, bf16)


def swiglu_backward(u: Array, sigmoid: Array, d_out: Array, d_in: Array, bf16: int) -> None:
    """The gradient of (a, b); d_out is rounded in place."""
    _round(d_out, bf16)
    hidden = d_out.shape[-1]
    a, b = u[..., :hidden], u[..., hidden:]
    d_in[..., :hidden] = _rounded(d_out * b * sigmoid, bf16)
    d_in[..., hidden:] = _rounded(d_out * a * sigmoid * (1 + b * (1 - sigmoid)), bf16)


def residual_gradient(prediction: Array, target: Array, loss: Array, d_prediction: Array) -> None:
    """loss[run] = mean squared error in float64, d_prediction = its gradient."""
    difference = prediction - target
    loss[...] = (difference * difference).mean(axis=(1, 2), dtype=np.float64)
    d_prediction[...] = difference * _F(2.0 / (prediction.shape[1] * prediction.shape[2]))


def round_and_sum(x: Array, out: Array, total: Array, bf16: int) -> None:
    """`out` = x rounded; total[run] = the sum of `out` over the samples."""
    out[...] = _rounded(x, bf16)
    total[...] = out.sum(axis=1)


def adam(
    parameter: Array,
    gradient: Array,
    first: Array,
    second: Array,
    rate: Any,
    beta1: Any,
    beta2: Any,
    correction1: Any,
    correction2: Any,
    epsilon: Any,
) -> None:
    """One step of Adam (Kingma and Ba, algorithm 1), in place."""
    first[...] = beta1 * first + (1 - beta1) * gradient
    second[...] = beta2 * second + (1 - beta2) * gradient * gradient
    parameter -= rate * (first / correction1) / (np.sqrt(second / correction2) + epsilon)


def sgd(parameter: Array, gradient: Array, velocity: Array, rate: Any, momentum: Any) -> None:
    """One step of gradient descent with heavy-ball momentum, in place."""
    velocity[...] = momentum * velocity + gradient
    parameter -= rate * velocity
