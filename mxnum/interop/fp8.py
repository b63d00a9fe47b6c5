"""Convert FP8 weights with a float scale for each tile (DeepSeek), each row, or the whole tensor.

Each value is element * scale. DeepSeek's checkpoints have E4M3 elements. They store a float32 scale
for each tile of 128 x 128 elements in ``weight_scale_inv``; tiles at the edges may be smaller.
DeepSeek calls this scale an inverse because encoding multiplies numbers by the reciprocal of the
scale. Other checkpoints store one float32 or bfloat16 scale for each row, or for the whole tensor,
in ``weight_scale``.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mxnum import errors
from mxnum.array import MXArray
from mxnum.formats import SCALES, MXFormat, of_element
from mxnum.interop._checked import (
    SCALE_TYPES,
    in_host_memory,
    require_element,
    typed_scales,
    untyped_scales,
    without_offsets,
)
from mxnum.layout import Blocks, block_lengths, scales_shape
from mxnum.memory.dtypes import Array, as_array
from mxnum.memory.tensors import in_kind

TILE = 128, 128
_ELEMENTS = {"float8_e4m3fn": "e4m3", "float8_e5m2": "e5m2"}
_SCALES = {
    SCALE_TYPES["e8m0"]: "e8m0",
    "uint8": "e8m0",
    **{name: name for name in ("float32", "bfloat16", "float16")},
}


def from_fp8(weight: Any, scales: Any, *, block_shape: tuple[int, int] | None = None) -> MXArray:
    """Return an MX array from a float8 array and its scales: float32, bfloat16, float16, or E8M0.

    The array must have two or more axes. `block_shape` is the shape of a tile, whose elements share
    a scale. By default the shape of a tile is derived from the shape of the scales. A single scale
    belongs to the whole array. For scales of shape (..., rows, 1), each row has a scale. For E8M0
    scales of shape (..., rows, n / 32), every 32 elements of a row share a scale. Scales of any
    other shape belong to tiles of 128 x 128.
    """
    elements, numbers = (as_array(n, v, anywhere=False) for n, v in (("weight", weight), ("scales", scales)))
    name, kind = _ELEMENTS.get(elements.dtype.name), _SCALES.get(numbers.dtype.name)
    errors.require_type(name is not None, "weight", f"an array of {errors.joined(_ELEMENTS)}", elements.dtype.name)
    errors.require_type(kind is not None, "scales", f"an array of {errors.joined(_SCALES)}", numbers.dtype.name)
    assert name is not None
    assert kind is not None
    errors.require(elements.ndim >= 2, "weight", "of two axes or more", elements.shape)
    blocks = _blocks(elements.shape, numbers, kind, block_lengths("block_shape", block_shape))
    if numbers.size == 1:
        numbers = numbers.reshape((1,) * elements.ndim)
    is_mxfp8 = kind == "e8m0" and blocks[-1] == 32
    fmt = of_element(name) if is_mxfp8 else MXFormat(name, kind, blocks[-1])
    codes = in_kind(elements.view(np.uint8), weight)
    return MXArray.from_parts(codes, untyped_scales(numbers, SCALES[kind]), fmt, blocks=blocks)


def _blocks(shape: tuple[int, ...], scales: Array, kind: str, given: Blocks | None) -> Blocks:
    """Return the lengths of a block: `given`, or lengths derived from the shape of the scales."""
    leading = (1,) * (len(shape) - 2)
    if given is not None:
        errors.require(len(given) == 2, "block_shape", "a tuple of 2 block lengths", given)
        return leading + given
    if scales.size == 1:
        return tuple(max(1, length) for length in shape)
    rows, groups = (*leading, 1, max(1, shape[-1])), (*leading, 1, 32)
    for blocks in (rows, groups) if kind == "e8m0" else (rows,):
        if scales.shape == scales_shape(shape, blocks):
            return blocks
    return leading + TILE


def to_fp8(q: MXArray) -> tuple[Array, Array]:
    """Return the elements (in their float8 type) and the scales of an array of E4M3 or E5M2.

    Blocks may have any shape.
    """
    q = in_host_memory("q", without_offsets("q", q))
    require_element("q", q.format, _ELEMENTS.values())
    known = q.format.scale.name in _SCALES.values() and q.format.tensor_scale is None
    errors.require(
        known,
        "q",
        f"an array with {errors.joined(sorted(set(_SCALES.values())))} scales and no tensor scale",
        q.format.name,
    )
    return np.ascontiguousarray(q.elements), np.ascontiguousarray(typed_scales(q))
