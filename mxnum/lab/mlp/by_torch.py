"""Train the MLP (the student) with PyTorch, on the CPU or a GPU.

The network has the same initial parameters and inputs as `model.Network`, rounds the same operands,
and is trained by the same loop. PyTorch adds in another order and has its own activation functions,
so its labels and losses differ in the last bits from those of `model.Network`. Small differences
grow during training, so the losses of the two networks diverge from each other. Operands that
`mxnum.torch` does not support raise ValueError.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import Tensor

import mxnum.torch as mxt
from mxnum import errors
from mxnum.lab.mlp import kernels
from mxnum.lab.mlp.config import Experiment, vector_code
from mxnum.lab.mlp.data import Teacher
from mxnum.lab.mlp.model import KINDS, Parameters, initial_parameters
from mxnum.lab.torch_threads import one_thread
from mxnum.recipe import OPERANDS, Operand, Recipe

Array = Any


class TorchNetwork:
    """The networks of several runs, computed one after another; parameters are numpy arrays."""

    def __init__(self, experiment: Experiment, seeds: tuple[int, ...], device: str = "cpu"):
        for name in OPERANDS:
            operand = getattr(experiment.precision, name)
            is_known = operand is None or (operand.error == "quantize" and not operand.matched)
            is_known &= operand is None or operand.scale_rule != "released_bump"
            errors.require(is_known, name, "an operand that mxnum.torch supports (machine 'cpu' supports all)", operand)
        rounds = experiment.precision.round_activation
        errors.require(
            rounds, "round_activation", "True (the layers of mxnum.torch always round the activation)", rounds
        )
        self.experiment, self.seeds, self.device = experiment, seeds, device
        self.parameters = Parameters(experiment, len(seeds))
        self.parameters.flat[...] = initial_parameters(experiment, seeds).flat
        self.gradients = Parameters(experiment, len(seeds))
        if device == "cuda":  # with pinned memory, copies between host and GPU are several times faster
            for each in (self.parameters, self.gradients):
                each.use(torch.from_numpy(each.flat).pin_memory().numpy())
        self._hidden: list[list[Tensor]] = []

    @property
    def saved(self) -> list[SimpleNamespace]:
        """The activations of each layer in the last step."""
        return [
            SimpleNamespace(h=np.stack([part.cpu().numpy() for part in of_runs]))
            for of_runs in zip(*self._hidden, strict=True)
        ]

    def loss_and_gradients(self, x: Array, y: Array, step: int, precision: Recipe | None = None) -> Array:
        """Return the mean squared error of each run; write the gradients to `self.gradients`."""
        recipe = self.experiment.precision if precision is None else precision
        losses, self._hidden = np.empty(len(self.seeds)), []
        with one_thread():
            for run, seed in enumerate(self.seeds):
                leaves = {kind: self._tensors(self.parameters, kind, run) for kind in KINDS}
                made, h = self._forward(self._here(x[run]), leaves, recipe, seed, step)
                loss = torch.nn.functional.mse_loss(made, self._here(y[run]))
                each = [leaf for kind in KINDS for leaf in leaves[kind]]
                gradients = iter(torch.autograd.grad(loss, each, allow_unused=True, materialize_grads=True))
                for kind in KINDS:
                    for layer in self.gradients.by_layer[kind]:
                        torch.from_numpy(layer[run]).copy_(next(gradients), non_blocking=True)
                losses[run] = loss.item()  # waits until the gradients are copied
                self._hidden.append([part.detach() for part in h])
        if recipe.vector == "bfloat16":
            kernels.round_in_place(self.gradients.flat, vector_code(recipe))
        return losses

    def _here(self, array: Array) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(array)).to(self.device, non_blocking=True)

    def _tensors(self, parameters: Parameters, kind: str, run: int) -> list[Tensor]:
        return [self._here(layer[run]).requires_grad_() for layer in parameters.by_layer[kind]]

    def _forward(
        self, x: Tensor, leaves: dict[str, list[Tensor]], recipe: Recipe, seed: int, step: int
    ) -> tuple[Tensor, list[Tensor]]:
        """Return the prediction and the activations of each layer."""
        e, hidden = self.experiment, []
        draws = any(getattr(getattr(recipe, name), "rounding", None) == "sr" for name in OPERANDS)
        for k, (gamma, beta, bias, w1, w2) in enumerate(zip(*(leaves[kind] for kind in KINDS), strict=True)):
            keys: Any = iter({"seed": seed, "stream": step << 8 | 3 * k + i} if draws else {} for i in range(3))
            if e.layer_norm:
                z = mxt.layer_norm(x, (e.width,), gamma, beta, recipe, **next(keys))
            else:
                z = _rounded(x, recipe)
            u = mxt.linear(z, w1, None, recipe, **next(keys))
            h = _rounded(_activation(e, _rounded(u, recipe)), recipe)
            x = x + mxt.linear(h, w2, bias, recipe, **next(keys))
            hidden.append(h)
        return x, hidden


class TorchTeacher:
    """A teacher that computes labels with PyTorch. On a GPU this is faster than on the host."""

    def __init__(self, teacher: Teacher, device: str):
        self.teacher, self.device = teacher, device
        self.weights = [torch.from_numpy(weight).to(device) for weight in teacher.weights]

    def __call__(self, x: Array, multiply: Any = None) -> Array:
        """Return the labels without noise; a quantized teacher computes them on the host."""
        if multiply is not None:
            return self.teacher(x, multiply)
        with one_thread(), torch.no_grad():
            h = torch.from_numpy(x).to(self.device)
            for first, second in zip(self.weights[::2], self.weights[1::2], strict=True):
                h = _activation(self.teacher.experiment, h @ first.T) @ second.T
            return h.cpu().numpy()


def _activation(e: Experiment, u: Tensor) -> Tensor:
    if e.activation == "relu":
        return u.relu()
    if e.activation == "gelu":
        return torch.nn.functional.gelu(u, approximate="none" if e.gelu == "exact" else "tanh")
    a, b = u.chunk(2, dim=-1)
    return a * torch.nn.functional.silu(b)


class _Rounded(torch.autograd.Function):
    """A function that rounds to bfloat16 in the forward and in the backward pass."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, operand: Operand) -> Tensor:
        ctx.operand = operand
        return mxt.fake_quantize(x, operand)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return mxt.fake_quantize(gradients[0], ctx.operand), None


def _rounded(x: Tensor, recipe: Recipe) -> Tensor:
    if recipe.vector == "float32":
        return x
    made: Tensor = _Rounded.apply(x, Operand("bfloat16", rounding=recipe.vector_rounding))
    return made
