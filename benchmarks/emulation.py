"""Emulate MX with tensor operations, by the algorithm published with the microxcaling library.

This emulation is a baseline, written for the comparison with mxnum. The emulation finds the shared
exponent with a float32 logarithm, scales the elements, rounds each element to the step of its own
exponent, and scales back. Each step is a float32 operation on whole tensors.
"""

from __future__ import annotations

from typing import Any

from mxnum import ElementFormat

BLOCK = 32


def fake_quantize(x: Any, element: ElementFormat, rounding: str) -> Any:
    """Return the quantized values of a contiguous torch tensor with whole blocks in its last axis.

    `rounding` says how ties are rounded: "nearest" (away from zero) or "even" (to even).
    """
    import torch

    blocks = x.reshape(-1, BLOCK)
    largest = blocks.abs().amax(dim=1, keepdim=True)
    tiny = torch.finfo(torch.float32).tiny
    shared = torch.floor(torch.log2(largest + tiny * (largest == 0)))
    shared = (shared - element.emax).clamp(min=-127)
    scale = torch.exp2(shared)
    y = blocks / scale

    exponent = torch.floor(torch.log2(y.abs() + (y == 0)))
    exponent = exponent.clamp(min=element.emin)
    step = torch.exp2(exponent - element.mantissa_bits)
    y = _rounded(y / step, rounding) * step
    y = y.clamp(-element.max, element.max)
    return (y * scale).reshape(x.shape)


def _rounded(y: Any, rounding: str) -> Any:
    import torch

    magnitude = y.abs()
    up = torch.floor(magnitude + 0.5)
    if rounding == "even":
        up = up - ((magnitude - 0.5) % 2 == 0).to(up.dtype)
    return torch.sign(y) * up
