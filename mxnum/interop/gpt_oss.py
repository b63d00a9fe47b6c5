"""Convert MXFP4 tensors of gpt-oss checkpoints: ``blocks`` of 16 bytes, each with a scale code.

Byte i of a block holds element 2i in the low bits and element 2i + 1 in the high bits, as in
`MXArray.pack`. The shape of ``blocks`` is (..., groups, 16), because each group of 32 input
features is stored in 16 bytes. GGUF orders the elements of a block differently
(`mxnum.interop.gguf`).
"""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from mxnum import errors
from mxnum.array import MXArray
from mxnum.interop._checked import in_rows
from mxnum.interop.safetensors import File
from mxnum.memory.dtypes import Array, as_array
from mxnum.memory.tensors import in_kind
from mxnum.output.files import reading

_FORMAT = "mxfp4_e2m1"


def from_gpt_oss(blocks: Any, scales: Any) -> MXArray:
    """Return an MX array from blocks (..., groups, 16) and scales (..., groups), both of uint8.

    The returned array has shape (..., 32 * groups).
    """
    bytes_, codes = (as_array(n, v, anywhere=False) for n, v in (("blocks", blocks), ("scales", scales)))
    for name, array in (("blocks", bytes_), ("scales", codes)):
        errors.require_dtype(name, array.dtype, np.dtype(np.uint8))
    fits = bytes_.ndim >= 2 and bytes_.shape[-1] == 16
    errors.require(fits, "blocks", "of shape (..., groups, 16)", bytes_.shape)
    errors.require(codes.shape == bytes_.shape[:-1], "scales", f"of shape {bytes_.shape[:-1]}", codes.shape)
    groups = bytes_.shape[-2]
    packed = np.ascontiguousarray(bytes_).reshape(*bytes_.shape[:-2], groups * 16)
    return MXArray.from_packed(in_kind(packed, blocks), codes, _FORMAT, length=32 * groups)


def to_gpt_oss(q: MXArray) -> tuple[Array, Array]:
    """Return the blocks and the scales of an MXFP4 array.

    The array must have whole blocks of 32 along the last axis.
    """
    q = in_rows("q", q, "e2m1", "e8m0", 32)
    return q.pack().reshape(*q.scales.shape, 16), np.ascontiguousarray(q.scales)


def load_tensor(path: str | os.PathLike[str], name: str) -> MXArray:
    """Read the tensor `name` of a checkpoint shard.

    The shard stores the tensor as ``name.blocks`` and ``name.scales``, or as ``name_blocks`` and
    ``name_scales``.
    """
    file = File(path)
    stored = set(file.names())
    blocks = [each for each in file.names() if each.endswith((".blocks", "_blocks"))]
    found = {each[: -len("_blocks")]: each for each in reversed(blocks)}
    if name not in found:
        if not found:
            raise ValueError(f"File {str(path)!r} must hold tensors with gpt-oss names, '*.blocks' and '*.scales'.")
        errors.choose("name", name, list(reversed(found)))
    of_scales = found[name].removesuffix("blocks") + "scales"
    if of_scales not in stored:
        raise ValueError(f"File {str(path)!r} must hold {of_scales!r} as well as {found[name]!r}.")
    with reading(path, f"must hold the tensor {name!r} in the layout of gpt-oss"):
        return from_gpt_oss(file.tensor(found[name]), file.tensor(of_scales))
