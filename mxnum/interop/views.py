"""Convert MX arrays to ml_dtypes arrays, and back, without copying."""

from __future__ import annotations

from typing import Any

import numpy as np

from mxnum import errors, formats
from mxnum.array import MXArray
from mxnum.formats import MXFormat
from mxnum.interop._checked import in_host_memory, require_element, typed_scales, untyped_scales, without_offsets
from mxnum.memory.dtypes import ML_DTYPES, Array, as_array
from mxnum.memory.tensors import in_kind

#: The element formats that `MXArray` and ml_dtypes both store in the low bits of a byte.
ELEMENTS = ("e4m3", "e5m2", "e3m2", "e2m3", "e2m1", "int8")


def to_views(q: MXArray) -> tuple[Array, ...]:
    """Return the codes as an ml_dtypes (or int8) array, the scales, and the tensor scale.

    If `q` has no tensor scale, the tuple has only two arrays. The arrays share the memory of `q`.
    Scales have the type float8_e8m0fnu, float8_e4m3fn or a wider float type. UE5M3 scales are
    bytes.
    """
    q = in_host_memory("q", without_offsets("q", q))
    tensor = () if q.tensor_scale is None else (q.tensor_scale,)
    return q.elements, typed_scales(q), *tensor


def from_views(
    elements: Any,
    scales: Any,
    tensor_scale: Any = None,
    *,
    format: str | MXFormat | None = None,
    axis: int | None = None,
    block_size: int | None = None,
    block_shape: tuple[int, int] | None = None,
    blocks: tuple[int, ...] | None = None,
) -> MXArray:
    """Return an MX array that shares the memory of its elements (an ml_dtypes array) and scales.

    `scales` has the dtype of the scale format, or uint8 if it holds codes. By default `format` is
    the format of the elements' type with E8M0 scales and blocks of 32.

    >>> import ml_dtypes, numpy as np
    >>> from mxnum.interop.views import from_views
    >>> from_views(np.ones((2, 64), ml_dtypes.float8_e4m3fn), np.full((2, 2), 127, np.uint8))
    <MXArray mxfp8_e4m3 (2, 64), blocks (1, 32): 132 bytes packed>
    """
    array, codes = as_array("elements", elements, anywhere=False), as_array("scales", scales, anywhere=False)
    name = array.dtype.name
    known = {ML_DTYPES[element]: element for element in ELEMENTS}
    if name not in known:
        raise TypeError(f"Argument 'elements' must be an array of {errors.joined(known)}, not {name}.")
    fmt = formats.get(format) if format is not None else formats.of_element(known[name])
    require_element("format", fmt, [known[name]])
    stored, given = in_kind(array.view(np.uint8), elements), untyped_scales(codes, fmt.scale)
    layout: dict[str, Any] = {"axis": axis, "block_size": block_size, "block_shape": block_shape, "blocks": blocks}
    return MXArray.from_parts(stored, given, fmt, **layout, tensor_scale=tensor_scale)
