"""Layer norm with every elementary step rounded to bfloat16, in microxcaling's order of steps."""

from __future__ import annotations

from typing import Any

import torch

from mxnum.torch.library import bfloat16

Tensor = Any


class LayerNorm(torch.autograd.Function):
    """Layer norm over the last axis, called with (x, gamma, beta, eps, rounding).

    The caller must round gamma and beta. The forward pass rounds x.
    """

    @staticmethod
    def forward(x: Tensor, gamma: Tensor, beta: Tensor, eps: float, rounding: str) -> tuple[Tensor, ...]:
        """Return the result, and the tensors that the backward pass needs."""

        def r(value: Tensor) -> Tensor:
            return bfloat16(value, rounding)

        x = r(x)
        shifted = r(x - _mean(x, r))
        variance = r(_mean(r(shifted * shifted), r) + eps)
        normal = r(shifted * r(1.0 / r(torch.sqrt(variance))))
        return r(r(gamma * normal) + beta), normal, variance

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Any, ...]) -> None:
        """Keep the tensors that the backward pass needs."""
        ctx.save_for_backward(inputs[1], output[1], output[2])
        ctx.mark_non_differentiable(output[1], output[2])
        ctx.rounding = inputs[4]

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor, *_: Any) -> tuple[Any, ...]:
        """Return the gradients of x, gamma and beta, with each step rounded."""
        gamma, normal, variance = ctx.saved_tensors

        def r(value: Tensor) -> Tensor:
            return bfloat16(value, ctx.rounding)

        grad = r(grad)
        leading = list(range(grad.ndim - 1))
        grad_beta, grad_gamma = r(grad.sum(leading)), r(r(grad * normal).sum(leading))
        d_normal = r(grad * gamma)
        deviation = r(torch.sqrt(variance))
        shift = r(d_normal * r(1.0 / deviation))
        along = r(_mean(r(r(d_normal * normal) * deviation), r) * r(1.0 / variance))
        grad_x = r(shift + r(-along * normal))
        return r(grad_x - _mean(grad_x, r)), grad_gamma, grad_beta, None, None


def _mean(x: Tensor, r: Any) -> Tensor:
    """Return the mean along the last axis, with the sum rounded before the division."""
    return r(r(x.sum([-1], keepdim=True)) / x.shape[-1])
