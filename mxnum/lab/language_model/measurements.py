"""Measure the rounding errors of all operands, and of the gradient of the logits, during training.

The function `centring` is for control arms: it rounds the gradient of the logits and subtracts its
mean over the vocabulary.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
import torch
from torch import nn

import mxnum as mx
from mxnum.recipe import Operand

Tensor = Any
#: The number of stored quantiles of the target symbols' probabilities.
QUANTILES = 64


def errors_of(rows: Iterable[Mapping[str, Any]], step: int) -> dict[str, np.float64]:
    """Return the operands' relative rounding errors at a step, as root mean squares over layers.

    ``error`` is the error of all operands. ``error_weights``, ``error_gradients`` and so on are the
    errors of one kind of operand.
    """
    squares: dict[str, list[float]] = {}
    for row in rows:
        if row["step"] == step:
            kind = row["operand"].split()[0]
            for name in ("error", f"error_{kind}"):
                squares.setdefault(name, []).append(row["rmse"] ** 2)
    return {name: np.float64(math.sqrt(sum(each) / len(each))) for name, each in squares.items()}


def measured(logits: Tensor, targets: Tensor, head: Any, operand: Operand) -> dict[str, Any]:
    """Return the measurements at one step, after a backward pass that retained `logits.grad`.

    The *target component* of a token is the component of the gradient of the logits at the target
    symbol. All measurements of the gradient round to nearest, ties to even.

    ``probability``
        Quantiles of the probabilities that the model gives the target symbols.
    ``gradient_bias``
        E[Q]/E[A] - 1, where A is the target component of a token, and Q is A rounded in blocks
        along the vocabulary.
    ``gradient_sum``
        The sum of the rounded gradient over the vocabulary, as a mean over the tokens. This mean is
        divided by the mean magnitude of the target components.
    ``beyond_max``, ``beyond_max_tokens``
        The share of the target components that exceed the largest value that their block can
        represent. Blocks lie along the vocabulary for ``beyond_max``, and along the tokens for
        ``beyond_max_tokens``.
    ``overflowing_blocks``
        The share of the blocks along the vocabulary in which an element exceeds the largest value
        that the block can represent.
    ``common_weight``
        The norm of the mean row of the last layer's weight. This norm is divided by the root mean
        square of the norms of the rows, after the mean row is subtracted from each row.
    """
    gradient = logits.grad.flatten(0, 1)
    probability = torch.softmax(logits.detach().flatten(0, 1).double(), -1).gather(1, targets[:, None])[:, 0]
    shares = torch.linspace(0, 1, 2 * QUANTILES + 1, dtype=torch.float64, device=probability.device)[1::2]
    weights = head.weight.detach().double()
    common = weights.mean(0)
    seen: dict[str, Any] = {
        "probability": torch.quantile(probability, shares).cpu().numpy(),
        "common_weight": np.float64((common.norm() / (weights - common).square().sum(1).mean().sqrt()).item()),
    }
    if not operand.is_mx:
        return seen
    target = gradient.gather(1, targets[:, None])[:, 0].double()
    for name, axis in (("beyond_max", 1), ("beyond_max_tokens", 0)):
        q = mx.quantize(gradient, operand.mx_format, **{**operand.keywords(axis), "rounding": "rne"})
        beyond = gradient.abs() > _largest(q)
        seen[name] = np.float64(beyond.gather(1, targets[:, None]).double().mean().item())
        if axis == 1:
            rounded: Tensor = q.dequantize(torch.float64)
            size = -target.mean()
            seen["gradient_bias"] = np.float64((rounded.gather(1, targets[:, None]).mean() / target.mean() - 1).item())
            seen["gradient_sum"] = np.float64((rounded.sum(1).mean() / size).item())
            seen["overflowing_blocks"] = np.float64(_any_of_block(beyond, operand).double().mean().item())
    return seen


def operands_of(model: nn.Module, loss: Callable[[], Tensor]) -> dict[str, Any]:
    """Return the operands of a model's linear layers in a forward and a backward pass.

    Each operand is a matrix. The names of operands, with their shapes, are "weights/LAYER"
    (outputs, inputs), "activations/LAYER" (tokens, inputs) and "gradients/LAYER" (tokens, outputs).
    The operands are not rounded.
    """
    found: dict[str, Any] = {}

    def keep(name: str, x: Tensor) -> None:
        found[name] = x.detach().flatten(0, -2).cpu().numpy().copy()

    def see(name: str, x: Tensor, y: Tensor) -> None:
        keep(f"activations/{name}", x)
        y.register_hook(lambda gradient: keep(f"gradients/{name}", gradient))

    layers = {name: module for name, module in model.named_modules() if isinstance(module, nn.Linear)}
    hooks = [m.register_forward_hook(lambda _, x, y, name=name: see(name, x[0], y)) for name, m in layers.items()]
    try:
        loss().backward()
    finally:
        for hook in hooks:
            hook.remove()
        model.zero_grad()
    for name, module in layers.items():
        keep(f"weights/{name}", module.weight)
    return found


def _largest(q: mx.MXArray) -> Tensor:
    """Return, for each element, the largest value that its block can represent."""
    codes = torch.full_like(q.codes, q.format.element.max_code)
    full = mx.MXArray.from_parts(codes, q.scales, q.format, blocks=q.blocks, tensor_scale=q.tensor_scale)
    largest: Tensor = full.dequantize(torch.float64)
    return largest


def _any_of_block(marks: Tensor, operand: Operand) -> Tensor:
    """Return, for each block along the last axis, True if any of its `marks` is True."""
    size = operand.block_size or operand.mx_format.block
    missing = -marks.shape[1] % size
    return nn.functional.pad(marks, (0, missing)).unflatten(1, (-1, size)).any(-1)


def centring(x: Tensor, operand: Operand, axis: int, **drawn: Any) -> Tensor:
    """Return the rounded tensor minus its mean over the last axis, which is the vocabulary."""
    rounded: Tensor = mx.fake_quantize(x, operand.mx_format, **operand.keywords(axis), **drawn)
    return rounded.sub_(rounded.mean(-1, keepdim=True))
