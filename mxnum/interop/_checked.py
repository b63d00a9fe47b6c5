"""Check that other software can hold an MX array, before anything is written.

This module also converts scale codes to arrays of ml_dtypes types, and back.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np

from mxnum import errors
from mxnum.array import MXArray
from mxnum.formats import MXFormat, ScaleFormat
from mxnum.memory.device import on_device
from mxnum.memory.dtypes import Array, known_name

#: The names of 8-bit scale types in ml_dtypes and torch, both of which lack UE5M3. Wider scales are
#: stored as floats.
SCALE_TYPES = {"e8m0": "float8_e8m0fnu", "e4m3": "float8_e4m3fn"}


def in_host_memory(argument: str, q: Any) -> MXArray:
    """Return `q` with numpy arrays that share its memory; raise an error if `q` is on a GPU."""
    errors.require_type(isinstance(q, MXArray), argument, "an MXArray", type(q).__name__)
    if on_device(q.scales):
        raise errors.on_gpu(argument, "call to_host() first")
    made: MXArray = q.to_host()
    return made


def without_offsets(argument: str, q: Any) -> MXArray:
    """Return `q`; raise ValueError if it has offsets, which other software cannot hold."""
    errors.require_type(isinstance(q, MXArray), argument, "an MXArray", type(q).__name__)
    errors.require(q.offsets is None, argument, "without offsets", q)
    checked: MXArray = q
    return checked


def in_rows(argument: str, q: Any, element: str, scale: str, block: int) -> MXArray:
    """Return `q` in host memory; raise ValueError unless it has the given format and blocks.

    The array must have elements of the format `element`, scales of the format `scale`, no offsets,
    and whole blocks of length `block` along the last axis.
    """
    made = in_host_memory(argument, without_offsets(argument, q))
    fmt = made.format
    require_element(argument, fmt, [element])
    errors.require(fmt.scale.name == scale, argument, f"of {scale.upper()} scales", fmt.name)
    require_rows(argument, made, block)
    return made


def require_element(argument: str, fmt: MXFormat, names: Collection[str]) -> None:
    """Raise ValueError unless `fmt.element` is a known element whose name is in `names`."""
    errors.require(known_name(fmt.element) in names, argument, f"of {errors.joined(names)} elements", fmt.notation)


def require_rows(argument: str, q: MXArray, block: int) -> None:
    """Raise ValueError unless `q` has whole blocks of length `block` along the last axis."""
    in_blocks = q.ndim >= 1 and q.blocks == (*(1,) * (q.ndim - 1), block)
    errors.require(in_blocks, argument, f"in whole blocks of {block} along the last axis", q.blocks)
    accepted = f"of a shape whose last axis has a multiple of {block} elements"
    errors.require(q.shape[-1] % block == 0, argument, accepted, q.shape)


def typed_scales(q: MXArray) -> Array:
    """Return the scales of an array in host memory, 8-bit scales with their ml_dtypes type.

    UE5M3 scales are returned as codes, because no library has a UE5M3 type.
    """
    import ml_dtypes

    name = SCALE_TYPES.get(q.format.scale.name)
    return np.asarray(q.scales) if name is None else q.scales.view(getattr(ml_dtypes, name))


def untyped_scales(scales: Array, scale: ScaleFormat) -> Array:
    """Return 8-bit scales as uint8, even if they have an ml_dtypes type; keep wider scales."""
    return scales.view(np.uint8) if scales.dtype.name == SCALE_TYPES.get(scale.name) else scales
