"""ONNX tensors of the float8, float6, float4, int8 and E8M0 types, for DequantizeLinear with a block size."""

from __future__ import annotations

from typing import Any

import numpy as np

from mxnum import errors, formats
from mxnum.array import MXArray
from mxnum.dtypes import Array
from mxnum.formats import MXFormat
from mxnum.interop._checked import in_host_memory, without_offsets

#: ONNX's name for the elements it has a type for.
TYPES = {
    "e4m3": "FLOAT8E4M3FN", "e5m2": "FLOAT8E5M2", "e3m2": "FLOAT6E3M2", "e2m3": "FLOAT6E2M3", "e2m1": "FLOAT4E2M1",
    "int8": "INT8",
}  # fmt: skip


def _onnx() -> Any:
    return errors.package("onnx", "onnx")


def to_onnx(q: MXArray, name: str) -> tuple[Any, Any]:
    """Two TensorProtos, ``name`` (elements) and ``name_scale``: the inputs of DequantizeLinear.

    MXINT8 elements are n * 2**-6 while ONNX's INT8 are n, so the factor goes into its scales: the E8M0 code is 6 less.
    A scale code below 6 has no place there and is refused.
    """
    onnx = _onnx()
    q = in_host_memory("q", without_offsets("q", q))
    element = q.format.element
    if element.name not in TYPES:
        raise ValueError(f"Argument 'q' must have elements of {errors.joined(TYPES)}, not {element.name}.")
    kind = getattr(onnx.TensorProto, TYPES[element.name], None)
    if kind is None:
        raise ValueError(f"Elements of {element.name} need an onnx with {TYPES[element.name]}, not {onnx.__version__}.")
    codes = np.ascontiguousarray(q.codes)
    scales = np.ascontiguousarray(q.scales)
    if element.integer:
        usable = bool(((scales >= element.mantissa_bits) | (scales == 255)).all())
        errors.require(usable, "q", f"of scale codes from {element.mantissa_bits} up", int(scales.min(initial=255)))
        scales = np.where(scales == 255, scales, scales - element.mantissa_bits).astype(np.uint8)
    if element.bits < 8:  # one stream of bits, which does not begin anew with each row as that of pack() does
        rows_end_on_bytes = q.ndim > 0 and q.shape[-1] * element.bits % 8 == 0
        codes = q.pack() if rows_end_on_bytes else _stream(codes, element.bits)
    elements = onnx.TensorProto(name=name, data_type=kind, dims=q.shape, raw_data=codes.tobytes())
    e8m0 = onnx.TensorProto.FLOAT8E8M0
    return elements, onnx.TensorProto(
        name=f"{name}_scale", data_type=e8m0, dims=q.scales.shape, raw_data=scales.tobytes()
    )


def from_onnx(
    elements: Any, scales: Any, *, format: str | MXFormat | None = None, axis: int = -1, block_size: int | None = None
) -> MXArray:
    """The MX array that two TensorProtos hold."""
    onnx = _onnx()
    known = {getattr(onnx.TensorProto, kind, None): element for element, kind in TYPES.items()}
    if elements.data_type not in known:
        raise ValueError(f"Argument 'elements' must be of {errors.joined(TYPES.values())}, not {elements.data_type}.")
    fits = scales.data_type == onnx.TensorProto.FLOAT8E8M0
    errors.require(fits, "scales", "of FLOAT8E8M0", scales.data_type)
    name = known[elements.data_type]
    fmt = formats.of_element(name) if format is None else formats.get_e8m0(format, "mxnum.interop.onnx")
    errors.require(fmt.element.name == name, "format", f"one of {name} elements", fmt.name)
    codes = onnx.numpy_helper.to_array(elements).view(np.uint8)
    scale_codes = onnx.numpy_helper.to_array(scales).view(np.uint8)
    if fmt.element.integer:
        is_nan, most = scale_codes == 255, 254 - fmt.element.mantissa_bits
        usable = bool((is_nan | (scale_codes <= most)).all())
        errors.require(
            usable, "scales", f"of codes up to {most} for {fmt.name}", int(scale_codes[~is_nan].max(initial=0))
        )
        scale_codes = np.where(is_nan, scale_codes, scale_codes + fmt.element.mantissa_bits).astype(np.uint8)
    return MXArray.from_parts(codes, scale_codes, fmt, axis=axis, block_size=block_size)


def _stream(codes: Array, width: int) -> Array:
    bits = np.unpackbits(codes.reshape(-1, 1), axis=1, count=width, bitorder="little")
    return np.packbits(bits, bitorder="little")
