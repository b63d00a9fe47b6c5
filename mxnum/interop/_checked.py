"""MX arrays as other software can take them: checked before anything is written; scales as numbers."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np

from mxnum import errors
from mxnum.array import MXArray
from mxnum.formats import MXFormat, ScaleFormat
from mxnum.memory.device import on_device
from mxnum.memory.dtypes import Array, known_name

#: The name that ml_dtypes and torch have for scales of eight bits; UE5M3 has none. Others are floats as they are.
SCALE_TYPES = {"e8m0": "float8_e8m0fnu", "e4m3": "float8_e4m3fn"}


def in_host_memory(argument: str, q: Any) -> MXArray:
    """An MX array made of arrays of numpy, on the same memory."""
    errors.require_type(isinstance(q, MXArray), argument, "an MXArray", type(q).__name__)
    if on_device(q.scales):
        raise errors.on_gpu(argument, "call to_host() first")
    made: MXArray = q.to_host()
    return made


def without_offsets(argument: str, q: Any) -> MXArray:
    """An MX array whose codes and scales say everything, which is all that other software knows."""
    errors.require_type(isinstance(q, MXArray), argument, "an MXArray", type(q).__name__)
    errors.require(q.offsets is None, argument, "without offsets", q)
    checked: MXArray = q
    return checked


def in_rows(argument: str, q: Any, element: str, scale: str, block: int) -> MXArray:
    """The same in host memory, of these elements and scales, in whole blocks of that length along the last axis."""
    made = in_host_memory(argument, without_offsets(argument, q))
    fmt = made.format
    require_element(argument, fmt, [element])
    errors.require(fmt.scale.name == scale, argument, f"of {scale.upper()} scales", fmt.name)
    require_rows(argument, made, block)
    return made


def require_element(argument: str, fmt: MXFormat, names: Collection[str]) -> None:
    """An error unless the elements are those that are known by one of the names."""
    errors.require(known_name(fmt.element) in names, argument, f"of {errors.joined(names)} elements", fmt.notation)


def require_rows(argument: str, q: MXArray, block: int) -> None:
    """An error unless the last axis is a whole number of blocks of that length, and no other axis is blocked."""
    in_blocks = q.ndim >= 1 and q.blocks == (*(1,) * (q.ndim - 1), block)
    errors.require(in_blocks, argument, f"in whole blocks of {block} along the last axis", q.blocks)
    accepted = f"of a shape in whole blocks of {block} along the last axis"
    errors.require(q.shape[-1] % block == 0, argument, accepted, q.shape)


def typed_scales(q: MXArray) -> Array:
    """Scales in host memory as numbers of the type of ml_dtypes or numpy that they are; codes of UE5M3."""
    import ml_dtypes

    name = SCALE_TYPES.get(q.format.scale.name)
    return np.asarray(q.scales) if name is None else q.scales.view(getattr(ml_dtypes, name))


def untyped_scales(scales: Array, scale: ScaleFormat) -> Array:
    """The other way: codes of the scales' own type as bytes, and anything else as it is."""
    return scales.view(np.uint8) if scales.dtype.name == SCALE_TYPES.get(scale.name) else scales
