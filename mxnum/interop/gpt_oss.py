"""MXFP4 as the gpt-oss checkpoints hold it: ``blocks`` of 16 bytes and one scale code for each.

Byte i of a block holds elements 2i (low bits) and 2i + 1 (high bits), as `MXArray.pack` does; the last two axes of the
blocks are the groups of 32 along the input features and the bytes. GGUF orders its nibbles differently
(`mxnum.interop.gguf`).
"""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from mxnum import errors
from mxnum.array import MXArray
from mxnum.dtypes import Array
from mxnum.interop.safetensors import File

_FORMAT = "mxfp4_e2m1"


def from_gpt_oss(blocks: Any, scales: Any) -> MXArray:
    """An MX array from blocks (..., groups, 16) and scales (..., groups), both uint8: shape (..., 32 groups)."""
    blocks, scales = np.asarray(blocks), np.asarray(scales)
    for name, array in (("blocks", blocks), ("scales", scales)):
        errors.require_dtype(name, array.dtype, np.dtype(np.uint8))
    fits = blocks.ndim >= 2 and blocks.shape[-1] == 16
    errors.require(fits, "blocks", "of 16 bytes along the last axis", blocks.shape)
    errors.require(scales.shape == blocks.shape[:-1], "scales", f"of shape {blocks.shape[:-1]}", scales.shape)
    groups = blocks.shape[-2]
    packed = np.ascontiguousarray(blocks).reshape(*blocks.shape[:-2], groups * 16)
    return MXArray.from_packed(packed, scales, _FORMAT, length=32 * groups)


def to_gpt_oss(q: MXArray) -> tuple[Array, Array]:
    """Blocks and scales of an MXFP4 array whose last axis is a whole number of blocks of 32."""
    errors.require(q.format.element.name == "e2m1", "q", "of e2m1 elements", q.format.name)
    rows = q.ndim >= 1 and q.blocks == (*(1,) * (q.ndim - 1), 32) and q.shape[-1] % 32 == 0
    errors.require(rows, "q", "in whole blocks of 32 along the last axis", q.blocks)
    return q.pack().reshape(*q.scales.shape, 16), np.ascontiguousarray(q.scales)


def load_tensor(path: str | os.PathLike[str], name: str) -> MXArray:
    """The tensor `name` of a checkpoint shard: stored as ``name.blocks`` and ``name.scales``, or with underscores."""
    file = File(path)
    for joint in (".", "_"):
        if f"{name}{joint}blocks" in file.names() and f"{name}{joint}scales" in file.names():
            return from_gpt_oss(file.tensor(f"{name}{joint}blocks"), file.tensor(f"{name}{joint}scales"))
    found = [each[: -len("_blocks")] for each in file.names() if each.endswith((".blocks", "_blocks"))]
    raise ValueError(f"Argument 'name' must be one of {found}, not {name!r}.")
