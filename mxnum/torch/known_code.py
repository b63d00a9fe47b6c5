"""Recognize modules of other libraries by the code of their forward pass.

A module can be emulated if the bytecode of its forward pass equals the bytecode of a pattern. The
patterns are the functions `_conv1d`, `_rms_norm` and `_wide_rms_norm`, which are never called. The
name of a class does not say what the class computes. A list of class names would also never be
complete: over a hundred classes of `transformers` repeat the code of `LlamaRMSNorm`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch


def _conv1d(self: Any, x: Any) -> Any:
    size_out = x.size()[:-1] + (self.nf,)
    x = torch.addmm(self.bias, x.view(-1, x.size(-1)), self.weight)
    x = x.view(size_out)
    return x


def _rms_norm(self: Any, hidden_states: Any) -> Any:
    input_dtype = hidden_states.dtype
    hidden_states = hidden_states.to(torch.float32)
    variance = hidden_states.pow(2).mean(-1, keepdim=True)
    hidden_states = hidden_states * torch.rsqrt(variance + self.variance_epsilon)
    return self.weight * hidden_states.to(input_dtype)


def _wide_rms_norm(self: Any, hidden_states: Any) -> Any:
    input_dtype = hidden_states.dtype
    hidden_states = hidden_states.to(torch.float32)
    variance = hidden_states.pow(2).mean(-1, keepdim=True)
    hidden_states = hidden_states * torch.rsqrt(variance + self.variance_epsilon)
    return (self.weight * hidden_states).to(input_dtype)


def kind_of_code(forward: Callable[..., Any]) -> str | None:
    """Return the kind of emulation for a forward pass, or None if no pattern has its bytecode."""
    is_torch = getattr(forward, "__globals__", {}).get("torch") is torch
    return _KINDS.get(_content(forward)) if is_torch and hasattr(forward, "__code__") else None


def _content(function: Any) -> tuple[Any, ...]:
    code = function.__code__
    return code.co_code, code.co_names, code.co_consts[1:], code.co_argcount  # constant 0 may be a docstring


_KINDS = {_content(_conv1d): "transposed_linear", _content(_rms_norm): "norm", _content(_wide_rms_norm): "norm"}
