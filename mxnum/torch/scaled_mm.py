"""Compute torch's `scaled_mm` on the CPU, with the additions of a chosen matrix unit."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

import mxnum as mx
from mxnum import errors
from mxnum.definition.fused_by_numpy import fma
from mxnum.engine.machine.workers import may_use_floats
from mxnum.engine.products.fused_sums import multiply_by_factors
from mxnum.formats import ELEMENTS
from mxnum.interop.swizzle import unswizzle_scales
from mxnum.memory.dtypes import Array
from mxnum.memory.tensors import host_array
from mxnum.units import MatrixUnit

Tensor = Any
#: For each scaling: the format of the scales, and the rows and columns of a block (0 for all).
_SCALINGS = {
    "TensorWise": ("float32", 0, 0),
    "RowWise": ("float32", 1, 0),
    "BlockWise1x16": ("e4m3", 1, 16),
    "BlockWise1x32": ("e8m0", 1, 32),
    "BlockWise1x128": ("float32", 1, 128),
    "BlockWise128x128": ("float32", 128, 128),
}
#: The length of the blocks that have float32 scales.
_PROMOTED = 128
_SWIZZLES = ("NO_SWIZZLE", "SWIZZLE_32_4_4")
_ELEMENTS = {"float8_e4m3fn": "e4m3", "float8_e5m2": "e5m2", "float4_e2m1fn_x2": "e2m1"}


def scaled_mm(
    mat_a: Tensor,
    mat_b: Tensor,
    scale_a: Any,
    scale_recipe_a: Any,
    scale_b: Any,
    scale_recipe_b: Any,
    swizzle_a: Any = None,
    swizzle_b: Any = None,
    bias: Tensor | None = None,
    output_dtype: torch.dtype | None = torch.bfloat16,
    contraction_dim: Any = (),
    use_fast_accum: bool = False,
    *,
    unit: str | MatrixUnit | None = None,
) -> Tensor:
    """Compute `torch.nn.functional.scaled_mm` on the CPU, with the arithmetic of a matrix unit.

    The arguments are those of torch's function. Scalings and swizzles are members of torch's enums
    or the names of these members; the names also work with versions of torch that lack the enums.
    The default `unit` depends on the operands. For float32 scales, the default is
    "hopper_fp8_promoted"; with `use_fast_accum`, it is "hopper_fp8" unless mat_a has blocks of 128.
    For E8M0 scales, the default is "blackwell_mxfp8". For FP4 elements, the default is
    "blackwell_nvfp4".

    The unit applies the scales of blocks. If both operands have blocks of 1 x 128, the sum of each
    block is multiplied by the block's scale in mat_a. A fused multiply-add then multiplies by the
    scale in mat_b and adds to the total. With scales of tensors, a sum is multiplied by the float32
    product of both scales. With scales of rows, a sum is multiplied by the scale of its column and
    then by the scale of its row. The bias is added in float32 before the result is rounded to
    `output_dtype`.

    Without a bias, results equal those of PyTorch 2.11 on an H100, bit for bit, if the scales
    belong to tensors, rows or blocks of 128. With a bias, results are equal if the scales belong to
    tensors. Three cases were not compared with outputs of a GPU: a bias with scales of rows, E8M0
    scales, and FP4 elements. Two operands with blocks of 1 x 128 raise RuntimeError if the
    processor flushes subnormals or does not round to nearest.
    """
    accepted = "() or (1, 0), the summed axes of mat_a and mat_b"
    errors.require(tuple(contraction_dim) in ((), (1, 0), (-1, -2)), "contraction_dim", accepted, contraction_dim)
    a, scaling_a = _operand("a", mat_a, scale_a, scale_recipe_a, swizzle_a)
    b, scaling_b = _operand("b", mat_b.mT, scale_b, scale_recipe_b, swizzle_b)
    if unit is None:
        by_element = {"e2m1": "blackwell_nvfp4"}.get(a.format.element.name, "blackwell_mxfp8")
        of_hopper = "hopper_fp8" if use_fast_accum and a.blocks[-1] != _PROMOTED else "hopper_fp8_promoted"
        unit = of_hopper if a.format.scale.name == "float32" else by_element
    y = torch.from_numpy(_product(a, b, unit, {scaling_a, scaling_b}))
    if bias is not None:
        y = y + bias.to(torch.float32)
    return y if output_dtype in (None, torch.float32) else y.to(output_dtype)


def _product(a: mx.MXArray, b: mx.MXArray, unit: str | MatrixUnit, scalings: set[str]) -> Array:
    """Return the float32 product of the rows of two matrices, scaled in PyTorch's order.

    `scalings` holds the names of both operands' scalings.
    """
    has_results = a.size > 0 and b.size > 0
    if scalings == {"RowWise"} and has_results:
        sums = _sums(a, b, unit, slice(None))
        multiply_by_factors(sums, None, b.scales)
        multiply_by_factors(sums, a.scales, None)
        return sums
    if scalings == {"BlockWise1x128"} and has_results:
        if not may_use_floats():
            raise RuntimeError(
                "scaled_mm with blocks of 1 x 128 needs floats that round to nearest even and keep subnormals."
            )
        total = np.zeros((len(a), len(b)), np.float32)
        for k in range(a.scales.shape[1]):
            part = _sums(a, b, unit, slice(k * _PROMOTED, (k + 1) * _PROMOTED))
            with np.errstate(all="ignore"):
                total = fma(part * a.scales[:, k, None], np.broadcast_to(b.scales[:, k], total.shape), total)
        total.view(np.uint32)[np.isnan(total)] = 0x7FFFFFFF  # the NaN of matrix units
        return total
    return np.asarray(mx.matmul(a, b.T, accumulate=unit, out_dtype="float32"))


def _sums(a: mx.MXArray, b: mx.MXArray, unit: str | MatrixUnit, columns: slice) -> Array:
    """Return the product of both matrices, without scales, summed over the given columns only."""
    codes = [np.ascontiguousarray(x.codes[:, columns]) for x in (a, b)]
    one = np.ones((1, 1), np.float32)
    first, second = (
        mx.MXArray.from_parts(each, one, x.format, blocks=each.shape) for each, x in zip(codes, (a, b), strict=True)
    )
    return np.asarray(mx.matmul(first, second.T, accumulate=unit, out_dtype="float32"))


def _parts(argument: str, value: Any) -> list[Any]:
    """Return an argument as a list: one value, or two for NVFP4 (of blocks, then of the tensor)."""
    parts = list(value) if isinstance(value, list | tuple) else [value]
    errors.require(1 <= len(parts) <= 2, argument, "one value, or a list of two for NVFP4", len(parts))
    return parts


def _name(argument: str, value: Any, accepted: tuple[str, ...]) -> str:
    return errors.choose(argument, getattr(value, "name", value), accepted)


def _operand(side: str, matrix: Tensor, scale: Any, scaling: Any, swizzle: Any) -> tuple[mx.MXArray, str]:
    """Return a matrix and its scales as an MX array, and the name of the scaling.

    The rows of the array lie along the summed axis.
    """
    name = f"mat_{side}"
    errors.require(matrix.ndim == 2, name, "two-dimensional", tuple(matrix.shape))
    kind = errors.choose(f"{name}.dtype", str(matrix.dtype).removeprefix("torch."), tuple(_ELEMENTS))
    codes = host_array(name, matrix.contiguous().view(torch.uint8))
    element = ELEMENTS[_ELEMENTS[kind]]
    if element.bits == 4:  # a byte holds two codes, the first in the low bits
        codes = np.stack([codes & 15, codes >> 4], -1).reshape(len(codes), -1)
    rows, length = codes.shape
    scales, kinds = _parts(f"scale_{side}", scale), _parts(f"scale_recipe_{side}", scaling)
    errors.require(len(scales) == len(kinds), f"scale_recipe_{side}", f"{len(scales)} like the scales", len(kinds))
    scaling = _name(f"scale_recipe_{side}", kinds[0], tuple(_SCALINGS))
    called, height, width = _SCALINGS[scaling]
    order = _parts(f"swizzle_{side}", swizzle)[0]
    is_swizzled = order is not None and _name(f"swizzle_{side}", order, _SWIZZLES) != _SWIZZLES[0]
    blocks = height or max(rows, 1), width or max(length, 1)
    shape = -(-rows // blocks[0]), -(-length // blocks[1])
    values = _scales(f"scale_{side}", scales[0], shape, called, is_swizzled, height == width == _PROMOTED)
    tensor = None if len(scales) == 1 else np.array(scales[1].item(), np.float32)
    fmt = mx.MXFormat(element, called, blocks[1], tensor_scale=None if tensor is None else "float32")
    return mx.MXArray.from_parts(codes, values, fmt, blocks=blocks, tensor_scale=tensor), scaling


def _scales(
    argument: str, scale: Tensor, shape: tuple[int, int], called: str, is_swizzled: bool, is_tile: bool
) -> Array:
    """Return the scales of a matrix in the layout of an MX array: a row for each row of blocks."""
    if called == "float32":
        errors.require_type(scale.dtype == torch.float32, argument, "of float32", scale.dtype)
        array = host_array(argument, scale.contiguous())
        if is_tile:  # tile scales have the summed axis first, padded to a multiple of 4
            padded = -(-shape[1] // 4) * 4
            accepted = f"of shape {(padded, shape[0])} or {(shape[1], shape[0])}"
            errors.require(array.shape in ((padded, shape[0]), (shape[1], shape[0])), argument, accepted, array.shape)
            return np.ascontiguousarray(array[: shape[1]].T)
        errors.require(array.size == shape[0] * shape[1], argument, f"{shape[0] * shape[1]} scales", array.size)
        return np.ascontiguousarray(array.reshape(shape))
    array = host_array(argument, scale.contiguous().view(torch.uint8))
    if is_swizzled:
        return np.asarray(unswizzle_scales(np.ascontiguousarray(array).ravel(), shape))
    errors.require(array.size == shape[0] * shape[1], argument, f"{shape[0] * shape[1]} scales", array.size)
    return np.ascontiguousarray(array.reshape(shape))
