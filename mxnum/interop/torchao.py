"""Convert NVFP4 arrays to tensors of torchao, and back (extra ``torchao``).

An `NVFP4Tensor` of torchao holds the same bytes, scales and tensor scale as an `MXArray`.
"""

from __future__ import annotations

from typing import Any

from mxnum import errors
from mxnum.array import MXArray
from mxnum.formats import MXFormat, get
from mxnum.interop._checked import in_rows
from mxnum.interop.torch import to_torch

_ONE_LEVEL = MXFormat("e2m1", "e4m3", 16)


def to_torchao(q: MXArray, dtype: Any = None) -> Any:
    """Return a CPU array of E2M1 with E4M3 scales as an `NVFP4Tensor`.

    The array must have two or three axes, with whole blocks of 16 along the last axis. The tensor
    scale must be None or one number. If the array has three axes, the tensor scale may also hold
    one number for each index of the first axis. `dtype` is the type that torchao reports for the
    tensor (default: torch.float32). When torchao decodes the tensor, it computes element * (tensor
    scale * scale) and rounds twice (see `mxnum.stacks`). `MXArray.dequantize` rounds once.
    """
    module = errors.package("torchao.prototype.mx_formats.nvfp4_tensor", "torchao")
    torch = errors.package("torch", "torchao")
    q = in_rows("q", q, "e2m1", "e4m3", 16)
    errors.require(q.ndim in (2, 3), "q", "of two or three axes", q.shape)
    tensors = to_torch(q)
    tensor = tensors.tensor_scale
    known = tensor is None or tensor.ndim == 0 or tuple(tensor.shape) == (len(q), 1, 1)
    errors.require(
        known, "q", "an array with one tensor scale or, with three axes, one for each index of axis 0", tensor
    )
    dtype = torch.float32 if dtype is None else dtype
    return module.NVFP4Tensor(tensors.elements.view(torch.uint8), tensors.scales, 16, dtype, tensor)


def from_torchao(tensor: Any) -> MXArray:
    """Return an MX array that shares the memory of an `NVFP4Tensor` on the CPU.

    The scales must be in the order of the elements, not swizzled.
    """
    module = errors.package("torchao.prototype.mx_formats.nvfp4_tensor", "torchao")
    torch = errors.package("torch", "torchao")
    is_known = isinstance(tensor, module.NVFP4Tensor)
    errors.require_type(is_known, "tensor", "an NVFP4Tensor", type(tensor).__name__)
    errors.require(
        not tensor.is_swizzled_scales, "tensor", "an NVFP4Tensor without swizzled scales", "one with swizzled scales"
    )
    in_order = tensor.qdata.is_contiguous()
    errors.require(in_order, "tensor", "contiguous, not a transpose", tuple(tensor.qdata.stride()))
    fmt = _ONE_LEVEL if tensor.per_tensor_scale is None else get("nvfp4")
    codes, scales = tensor.qdata.view(torch.uint8), tensor.scale.view(torch.uint8)
    scales = scales.reshape(*codes.shape[:-1], -1)
    number = tensor.per_tensor_scale
    return MXArray.from_packed(codes, scales, fmt, length=2 * codes.shape[-1], tensor_scale=number)
