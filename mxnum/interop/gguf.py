"""MXFP4 as GGUF files (llama.cpp) hold it: 17 bytes a block, the scale code first.

Byte i of the 16 that follow holds element i (low bits) and element i + 16 (high bits). gpt-oss checkpoints pair 2i with
2i + 1 instead (`mxnum.interop.gpt_oss`): mixed up, the values are silently permuted.
"""

from __future__ import annotations

import math
import os
from functools import cache
from typing import Any

import numpy as np

from mxnum import errors
from mxnum.array import MXArray
from mxnum.dtypes import Array, as_array
from mxnum.files import reading
from mxnum.interop._checked import in_host_memory, without_offsets
from mxnum.tensors import in_kind

_FORMAT = "mxfp4_e2m1"


def from_gguf_blocks(blocks: Any, shape: tuple[int, ...] | None = None) -> MXArray:
    """An MX array from bytes (..., 17 a block), as GGUF stores them; `shape` is the elements', if it is not clear."""
    array = as_array("blocks", blocks, anywhere=False)
    errors.require_dtype("blocks", array.dtype, np.dtype(np.uint8))
    fits = array.ndim >= 1 and array.shape[-1] % 17 == 0
    errors.require(fits, "blocks", "of 17 bytes a block along the last axis", array.shape)
    if shape is None:
        shape = (*array.shape[:-1], array.shape[-1] // 17 * 32)
    shape = tuple(errors.integer("shape", length, 0, 1 << 62) for length in shape)
    whole = bool(shape) and shape[-1] % 32 == 0 and math.prod(shape) // 32 * 17 == array.size
    errors.require(whole, "shape", f"of {array.size // 17} blocks of 32 along the last axis", shape)
    rows = np.ascontiguousarray(array).reshape(-1, 17)
    codes = np.concatenate([rows[:, 1:] & 0x0F, rows[:, 1:] >> 4], axis=1).reshape(shape)
    scales = rows[:, 0].reshape(*shape[:-1], shape[-1] // 32)
    return MXArray.from_parts(in_kind(codes, blocks), scales.copy(), _FORMAT)


def to_gguf_blocks(q: MXArray) -> Array:
    """The bytes of an MXFP4 array in whole blocks of 32 along the last axis: (..., 17 a block)."""
    q = in_host_memory("q", without_offsets("q", q))
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
    with reading(path, "must be a whole GGUF file"), np.errstate(over="raise"):  # (it adds numpy's integers)
        every = _reader(gguf)(path).tensors
    tensors = {tensor.name: tensor for tensor in every if tensor.tensor_type == gguf.GGMLQuantizationType.MXFP4}
    if not tensors:
        raise ValueError(f"File {str(path)!r} must hold tensors of MXFP4, and has none.")
    tensor = tensors[errors.choose("name", name, list(tensors))]
    with reading(path, "must be a whole GGUF file"):
        shape = tuple(int(length) for length in reversed(tensor.shape))
        return from_gguf_blocks(np.asarray(tensor.data).view(np.uint8).reshape(*shape[:-1], -1), shape)


@cache
def _reader(gguf: Any) -> Any:
    """The reader of the package, which does not read beyond the end: it takes what is missing there for nothing."""

    class Reader(gguf.GGUFReader):  # type: ignore[misc]
        def _get(self, offset: int, dtype: Any, count: Any = 1, *rest: Any, **options: Any) -> Any:
            if offset + int(count) * np.dtype(dtype).itemsize > len(self.data):
                raise ValueError("it is cut off, or counts more than it holds")
            return super()._get(offset, dtype, count, *rest, **options)

    return Reader
