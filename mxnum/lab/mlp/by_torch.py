"""Train the MLP (the student) with PyTorch, on the CPU or a GPU.

The network has the same initial parameters and batches as `model.Network`, rounds the same
operands, and is trained by the same loop. PyTorch adds in another order and has its own activation
functions, so its losses differ in the last bits from the losses of `model.Network`. Small
differences grow during training, so the trajectories of the PyTorch network and of `model.Network`
diverge. Operands that `mxnum.torch` does not support raise ValueError.
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
        #: The activations of each layer, which the measurements read.
        self.saved: list[SimpleNamespace] = []

    def loss_and_gradients(self, x: Array, y: Array, step: int, precision: Recipe | None = None) -> Array:
        """Return the mean squared error of each run; write the gradients to `self.gradients`."""
        recipe = self.experiment.precision if precision is None else precision
        losses, hidden = np.empty(len(self.seeds)), []
        with one_thread():
            for run, seed in enumerate(self.seeds):
                leaves = {kind: self._tensors(self.parameters, kind, run) for kind in KINDS}
                made, h = self._forward(self._here(x[run]), leaves, recipe, seed, step)
                loss = torch.nn.functional.mse_loss(made, self._here(y[run]))
                each = [leaf for kind in KINDS for leaf in leaves[kind]]
                gradients = iter(torch.autograd.grad(loss, each, allow_unused=True, materialize_grads=True))
                for kind in KINDS:
                    for layer in self.gradients.by_layer[kind]:
                        layer[run] = next(gradients).cpu().numpy()
                losses[run] = loss.item()
                hidden.append([part.detach().cpu().numpy() for part in h])
        self.saved = [SimpleNamespace(h=np.stack(of_runs)) for of_runs in zip(*hidden, strict=True)]
        if recipe.vector == "bfloat16":
            kernels.round_in_place(self.gradients.flat, vector_code(recipe))
        return losses

    def _here(self, array: Array) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(array)).to(self.device)

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
            h = _rounded(self._activation(_rounded(u, recipe)), recipe)
            x = x + mxt.linear(h, w2, bias, recipe, **next(keys))
            hidden.append(h)
        return x, hidden

    def _activation(self, u: Tensor) -> Tensor:
        e = self.experiment
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
