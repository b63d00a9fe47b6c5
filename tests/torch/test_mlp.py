"""Tests that a torch model has the same loss as mxnum's residual MLP in each training step.

Both models use numpy's BLAS (``accumulate="blas"``) and the same loops, but only the torch model
uses autograd. Equal losses show that both models round the same operands at the same points.
"""

from __future__ import annotations

import numpy as np
import pytest

from mxnum.recipe import Recipe

torch = pytest.importorskip("torch", reason="the extra torch is not installed")
mxt = pytest.importorskip("mxnum.torch")
pytest.importorskip("scipy", reason="the extra experiments is not installed")
from mxnum.lab.mlp import Experiment, Training, kernels  # noqa: E402
from mxnum.lab.mlp.config import vector_code  # noqa: E402
from mxnum.lab.mlp.data import Batches  # noqa: E402
from mxnum.lab.mlp.loop import one_blas_thread  # noqa: E402
from mxnum.lab.mlp.model import initial_parameters  # noqa: E402

STEPS = 50


def flat(tensor):
    return tensor.detach().numpy().reshape(-1)


class LayerNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, gamma, beta, bf16):
        normalized, out, inverse = torch.empty_like(x), torch.empty_like(x), torch.empty(x.shape[:1])
        arrays = [part.detach().numpy()[None] for part in (x, gamma, beta, normalized, inverse, out)]
        kernels.layer_norm(*arrays, np.float32(1e-5), bf16)
        ctx.save_for_backward(normalized, inverse, gamma)
        ctx.bf16 = bf16
        return out

    @staticmethod
    def backward(ctx, grad):
        normalized, inverse, gamma = ctx.saved_tensors
        made = torch.empty_like(gamma), torch.empty_like(gamma), torch.zeros_like(grad)
        arrays = [part.detach().contiguous().numpy()[None] for part in (grad, normalized, inverse, gamma, *made)]
        kernels.layer_norm_backward(*arrays, ctx.bf16)
        return made[2], made[0], made[1], None


class Gelu(torch.autograd.Function):
    @staticmethod
    def forward(ctx, u, bf16):
        slope, out = torch.empty_like(u), torch.empty_like(u)
        kernels.gelu_exact(flat(u), flat(slope), flat(out), bf16)
        ctx.save_for_backward(slope)
        ctx.bf16 = bf16
        return out

    @staticmethod
    def backward(ctx, grad):
        made = torch.empty_like(grad)
        kernels.scaled_backward(flat(ctx.saved_tensors[0]), flat(grad.clone()), flat(made), ctx.bf16)
        return made, None


class Loss(torch.autograd.Function):
    @staticmethod
    def forward(ctx, prediction, target):
        loss, grad = np.empty(1), torch.empty_like(prediction)
        kernels.residual_gradient(prediction.detach().numpy()[None], target.numpy()[None], loss, grad.numpy()[None])
        ctx.save_for_backward(grad)
        return torch.from_numpy(loss)

    @staticmethod
    def backward(ctx, grad):
        return ctx.saved_tensors[0], None


class Layer(torch.nn.Module):
    def __init__(self, width, hidden):
        super().__init__()
        self.gamma, self.beta = (torch.nn.Parameter(torch.zeros(width)) for _ in range(2))
        self.one, self.two = torch.nn.Linear(width, hidden, bias=False), torch.nn.Linear(hidden, width)

    def forward(self, x, recipe):
        gamma, beta = (mxt.fake_quantize(p, how) for p, how in ((self.gamma, recipe.gamma), (self.beta, recipe.beta)))
        code = vector_code(recipe)
        h = Gelu.apply(self.one(LayerNorm.apply(x, gamma, beta, code)), code)
        return x + self.two(h)


def losses_in_torch(experiment, accumulate):
    """Return the losses of an experiment, trained by torch."""
    model = torch.nn.ModuleList([Layer(experiment.width, experiment.hidden) for _ in range(experiment.layers)])
    start = initial_parameters(experiment, (3,))
    recipe = experiment.precision
    with torch.no_grad():
        for index, layer in enumerate(model):
            own = (layer.gamma, layer.beta, layer.two.bias, layer.one.weight, layer.two.weight)
            for parameter, kind in zip(own, ("gamma", "beta", "bias", "w1", "w2"), strict=True):
                parameter.copy_(torch.from_numpy(getattr(start, kind)[index, 0]))
    mxt.emulate(model, recipe, accumulate=accumulate)
    moments = [(np.zeros(p.numel(), np.float32), np.zeros(p.numel(), np.float32)) for p in model.parameters()]
    batches, losses, f = Batches(experiment, (3,)), [], np.float32
    b1, b2 = experiment.betas
    for step in range(STEPS):
        x, y = (torch.from_numpy(part[0].copy()) for part in batches(step, None))
        for layer in model:
            x = layer(x, recipe)
        loss = Loss.apply(x, y)
        model.zero_grad()
        loss.backward()
        losses.append(loss.item())
        for p, (first, second) in zip(model.parameters(), moments, strict=True):
            grad = flat(p.grad).copy()
            kernels.round_in_place(grad, vector_code(recipe))
            betas, corrections = (f(b1), f(b2)), (f(1 - b1 ** (step + 1)), f(1 - b2 ** (step + 1)))
            rate, epsilon = f(experiment.rate), f(experiment.epsilon)
            kernels.adam(flat(p), grad, (first, second), rate, betas, corrections, epsilon)
    return losses


@pytest.mark.parametrize("accumulate", ["blas", None])
@pytest.mark.parametrize("vector", ["float32", "bfloat16"])
def test_fifty_steps(vector, accumulate):
    recipe = Recipe.uniform("mxfp8_e4m3", vector=vector)
    if vector == "float32":
        recipe = recipe.but(gradients="mxfp8_e5m2", gradients_for_weights="mxfp6_e3m2", weights_backward="mxint8")
    experiment = Experiment(width=64, layers=2, batch=96, rate=1e-3, precision=recipe)
    with one_blas_thread():
        training = Training(experiment, (3,))
        want = [float(training.advance()[0]) for _ in range(STEPS)]
        got = losses_in_torch(experiment, accumulate)
    if accumulate == "blas":
        assert got == want
    else:
        assert got == pytest.approx(want, rel=1e-2)
    assert want[-1] < 0.5 * want[0]
