"""The Hadamard transform of operands, with the bits of `mxnum.hadamard` on every device."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import torch

import mxnum as mx

Tensor = Any
#: The signs and the size of the Hadamard transform that TransformerEngine applies to weight
#: gradients.
_SIGNS, _SIZE = "transformer_engine", 16


def hadamard(x: Tensor, axis: int, inverse: bool = False) -> Tensor:
    """Multiply each group of 16 elements along the axis by a 16 x 16 matrix with entries ±1/4.

    The matrix is orthogonal. If both operands of a product are transformed along the summed axis,
    the product does not change, except for rounding.
    """
    length = x.shape[axis]
    if length % _SIZE:
        raise ValueError(
            f"Transform 'hadamard' needs a multiple of 16 elements along the summed axis, not {length}. In the product "
            "for a weight's gradient, the summed axis is the axis of the samples in the batch; in products of "
            "attention, it may be the axis of the positions."
        )
    x = x.detach()
    made = None if x.is_cpu else by_products(x, axis, inverse)
    if made is None:
        made = torch.as_tensor(mx.hadamard(x.cpu(), axis, size=_SIZE, signs=_SIGNS, inverse=inverse), device=x.device)
    return made


def by_products(x: Tensor, axis: int, inverse: bool = False) -> Tensor | None:
    """Return the transform as a matrix product in float64, or None if that may be inexact.

    If all terms of a sum are multiples of one power of two u, and no partial sum exceeds 2**53 u,
    the float64 additions are exact in any order (see `engine.rotations.by_floats`).
    """
    rows = x.movedim(axis, -1)
    wide = rows.reshape(*rows.shape[:-1], -1, _SIZE).double() if x.numel() else rows.new_empty(0, _SIZE).double()
    limit = 4 * _SIZE * (wide.abs().amax(-1, keepdim=True) if wide.numel() else wide)
    if not bool((wide + limit - limit == wide).all()):
        return None
    matrix = _matrix().to(x.device)
    sums = wide @ (matrix.T if inverse else matrix) + 0.0  # adding 0.0 makes every zero +0, as in `mxnum.hadamard`
    return narrowed(sums, x.dtype).reshape(rows.shape).movedim(-1, axis)


def narrowed(x: Tensor, dtype: torch.dtype, rounding: str = "rne") -> Tensor:
    """Return x in another type, rounded once. torch would round float64 twice, first to float32.

    Overflow in a 16-bit type follows IEEE 754: with rounding to nearest, a magnitude beyond the
    range becomes infinite. Every NaN becomes the canonical NaN.
    """
    if dtype in (torch.float64, torch.float32):
        return x.to(dtype)
    codes: Any = mx.encode(x, str(dtype).removeprefix("torch."), rounding=rounding, overflow="ieee")
    return codes.view(dtype)


@lru_cache(maxsize=1)
def _matrix() -> Tensor:
    unit: Tensor = torch.eye(_SIZE, dtype=torch.float64)
    return torch.as_tensor(mx.hadamard(unit, size=_SIZE, signs=_SIGNS))
