"""Products of float32 tensors whose numbers bfloat16 holds, on the units for it of Intel's processors, by PyTorch.

Elements of at most eight bits times a power of two are such numbers. Nothing of them is lost, and sums are in float32,
in another order than BLAS has them; numbers below the normal ones of float32 count as zero.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from mxnum import errors


@cache
def check() -> None:
    """An error where there are no such units."""
    torch = errors.package("torch", "torch")
    ask = getattr(torch.cpu, "_is_amx_tile_supported", None)
    if ask is None or not hasattr(torch.backends.mkldnn, "matmul"):
        raise ValueError(f"Products by AMX need torch 2.9 or newer, not {torch.__version__}.")
    if not ask():
        raise ValueError("Products by AMX need a processor that has it.")


def multiply(left: Any, right: Any, out: Any = None) -> Any:
    """As ``torch.matmul``; `check` was called. Threads that multiply meanwhile may be given bfloat16 products, too."""
    import torch

    settings = torch.backends.mkldnn.matmul
    before, settings.fp32_precision = settings.fp32_precision, "bf16"
    try:
        if left.ndim == right.ndim == 3 and out is not None:  # stacks of matrices take their time there
            for index in range(len(out)):
                torch.mm(left[index], right[index], out=out[index])
            return out
        return torch.matmul(left, right, out=out)
    finally:
        settings.fp32_precision = before
