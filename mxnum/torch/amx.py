"""Multiply float32 tensors of bfloat16 numbers by Intel's AMX units, through PyTorch.

An element of at most eight bits times a power of two is a bfloat16 number, so the AMX units
multiply such operands without loss. The units add in float32, in another order than BLAS, and treat
subnormal float32 numbers as zero.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from mxnum import errors


@cache
def check() -> None:
    """Raise ValueError if the processor or this version of torch cannot multiply by AMX."""
    torch = errors.package("torch", "torch")
    ask = getattr(torch.cpu, "_is_amx_tile_supported", None)
    if ask is None or not hasattr(torch.backends.mkldnn, "matmul"):
        raise ValueError(f"Products by AMX need torch 2.9 or newer, not {torch.__version__}.")
    if not ask():
        raise ValueError("Products by AMX need a processor with AMX units.")


def multiply(left: Any, right: Any, out: Any = None) -> Any:
    """Return the product of two tensors, as ``torch.matmul`` does.

    The caller must have called `check`. During the multiplication, torch's global precision setting
    is bfloat16, so products in other threads may also be computed in bfloat16.
    """
    import torch

    settings = torch.backends.mkldnn.matmul
    before, settings.fp32_precision = settings.fp32_precision, "bf16"
    try:
        if left.ndim == right.ndim == 3 and out is not None:  # torch.matmul is slow on stacks of matrices
            for index in range(len(out)):
                torch.mm(left[index], right[index], out=out[index])
            return out
        return torch.matmul(left, right, out=out)
    finally:
        settings.fp32_precision = before
