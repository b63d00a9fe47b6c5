"""MXFP4 as GGUF files (llama.cpp) hold it: 17 bytes a block, the scale code first.

Byte i of the 16 that follow holds element i (low bits) and element i + 16 (high bits). gpt-oss checkpoints pair 2i with
2i + 1 instead (`mxnum.interop.gpt_oss`): mixed up, the values are silently permuted.
"""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from mxnum import errors
from mxnum.array import MXArray
from mxnum.dtypes import Array

_FORMAT = "mxfp4_e2m1"


def from_gguf_blocks(blocks: Any, shape: tuple[int, ...] | None = None) -> MXArray:
    """An MX array from bytes (..., 17 a block), as GGUF stores them; `shape` is the elements', if it is not clear."""
    blocks = np.asarray(blocks)
    errors.require_dtype("blocks", blocks.dtype, np.dtype(np.uint8))
    fits = blocks.ndim >= 1 and blocks.shape[-1] % 17 == 0
    errors.require(fits, "blocks", "of 17 bytes a block along the last axis", blocks.shape)
    if shape is None:
        shape = (*blocks.shape[:-1], blocks.shape[-1] // 17 * 32)
    whole = bool(shape) and shape[-1] % 32 == 0 and int(np.prod(shape)) // 32 * 17 == blocks.size
    errors.require(whole, "shape", f"of {blocks.size // 17} blocks of 32 along the last axis", shape)
    rows = np.ascontiguousarray(blocks).reshape(-1, 17)
    codes = np.concatenate([rows[:, 1:] & 0x0F, rows[:, 1:] >> 4], axis=1).reshape(shape)
    scales = rows[:, 0].reshape(*shape[:-1], shape[-1] // 32)
    return MXArray.from_parts(codes, scales.copy(), _FORMAT)


def to_gguf_blocks(q: MXArray) -> Array:
    """The bytes of an MXFP4 array in whole blocks of 32 along the last axis: (..., 17 a block)."""
    errors.require(q.format.element.name == "e2m1", "q", "of e2m1 elements", q.format.name)
    rows = q.ndim >= 1 and q.blocks == (*(1,) * (q.ndim - 1), 32) and q.shape[-1] % 32 == 0
    errors.require(rows, "q", "in whole blocks of 32 along the last axis", q.blocks)
    codes = np.ascontiguousarray(q.codes).reshape(-1, 32)
    result = np.empty((len(codes), 17), np.uint8)
    result[:, 0] = q.scales.ravel()
    result[:, 1:] = codes[:, :16] | codes[:, 16:] << 4
    return result.reshape(*q.shape[:-1], -1)


def load_tensor(path: str | os.PathLike[str], name: str) -> MXArray:
    """The MXFP4 tensor `name` of a GGUF file (extra ``gguf``); axes in numpy order, the input features last."""
    gguf = errors.package("gguf", "gguf")
    tensors = {tensor.name: tensor for tensor in gguf.GGUFReader(path).tensors}
    kind = gguf.GGMLQuantizationType.MXFP4
    known = [each for each, tensor in tensors.items() if tensor.tensor_type == kind]
    tensor = tensors[errors.choose("name", name, known)]
    shape = tuple(int(length) for length in reversed(tensor.shape))
    return from_gguf_blocks(np.asarray(tensor.data).view(np.uint8).reshape(*shape[:-1], -1), shape)
