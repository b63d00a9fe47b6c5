"""Convert MX arrays to ONNX tensors for DequantizeLinear with a block size, and back.

Elements have one of ONNX's float8, float6, float4 and int8 types. DequantizeLinear takes E8M0,
float32, bfloat16 and float16 scales. `to_onnx` raises ValueError for NVFP4, which has E4M3 scales
and a tensor scale. In ONNX, NVFP4 needs a second DequantizeLinear, which multiplies the scales by
the tensor scale and rounds the products to float32.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mxnum import errors, formats
from mxnum.array import MXArray
from mxnum.array.arguments import first_index
from mxnum.formats import MXFormat
from mxnum.interop._checked import in_host_memory, require_element, typed_scales, untyped_scales, without_offsets
from mxnum.memory.dtypes import Array

#: The ONNX types of elements.
TYPES = {
    "e4m3": "FLOAT8E4M3FN", "e5m2": "FLOAT8E5M2", "e3m2": "FLOAT6E3M2", "e2m3": "FLOAT6E2M3", "e2m1": "FLOAT4E2M1",
    "int8": "INT8",
}  # fmt: skip
#: The ONNX types of scales.
SCALES = {"e8m0": "FLOAT8E8M0", "float32": "FLOAT", "bfloat16": "BFLOAT16", "float16": "FLOAT16"}


def _onnx() -> Any:
    return errors.package("onnx", "onnx")


def to_onnx(q: MXArray, name: str) -> tuple[Any, Any]:
    """Return the inputs of DequantizeLinear: two TensorProtos named ``name`` and ``name_scale``.

    ``name`` holds the elements.

    DequantizeLinear has blocks along one axis, so tiles raise ValueError. Scales may be E8M0,
    float32, bfloat16 or float16.

    An INT8 element with the integer n has the value n * 2**-6 in MX and n in ONNX. For INT8, the
    scales are therefore multiplied by 2**-6, which reduces E8M0 codes by 6. A scale that cannot be
    reduced, such as an E8M0 code below 6, raises ValueError.
    """
    onnx = _onnx()
    q = in_host_memory("q", without_offsets("q", q))
    element = q.format.element
    require_element("q", q.format, TYPES)
    kind = getattr(onnx.TensorProto, TYPES[element.name], None)
    if kind is None:
        raise ValueError(
            f"Elements of {element.name} need a version of onnx that has {TYPES[element.name]}, not {onnx.__version__}."
        )
    blocked = sum(of_scales != length for of_scales, length in zip(q.scales.shape, q.shape, strict=True))
    errors.require(blocked <= 1, "q", "in blocks along one axis, because DequantizeLinear has no tiles", q.blocks)
    codes = np.ascontiguousarray(q.codes)
    scale = q.format.scale
    known = scale.name in SCALES and q.format.tensor_scale is None
    errors.require(known, "q", f"an array with {errors.joined(SCALES)} scales and no tensor scale", q.format.notation)
    scales = np.ascontiguousarray(typed_scales(q))
    if element.integer and scale.power_of_two:
        scales = scales.view(np.uint8)
        usable = bool(((scales >= element.mantissa_bits) | (scales == 255)).all())
        errors.require(
            usable,
            "q",
            f"an array whose scale codes are at least {element.mantissa_bits}",
            int(scales.min(initial=255)),
        )
        scales = np.where(scales == 255, scales, scales - element.mantissa_bits).astype(np.uint8)
    elif element.integer:
        scales = _times("q", scales, -element.mantissa_bits)
    # ONNX packs all elements into one stream of bits, but pack() starts a new byte for each row.
    if element.bits < 8:
        rows_end_on_bytes = q.ndim > 0 and q.shape[-1] * element.bits % 8 == 0
        codes = q.pack() if rows_end_on_bytes else _stream(codes, element.bits)
    elements = onnx.TensorProto(name=name, data_type=kind, dims=q.shape, raw_data=codes.tobytes())
    of_scales = getattr(onnx.TensorProto, SCALES[scale.name])
    return elements, onnx.TensorProto(
        name=f"{name}_scale", data_type=of_scales, dims=q.scales.shape, raw_data=scales.tobytes()
    )


def _times(argument: str, scales: Array, exponent: int) -> Array:
    """Return float scales times a power of two; raise ValueError unless the products are exact."""
    number = scales.dtype.type
    with np.errstate(all="ignore"):
        made = scales * number(2.0**exponent)
        wrong = (made * number(2.0**-exponent) != scales) & (scales == scales)
    if wrong.any():
        accepted = f"an array whose scales times 2**{exponent} are exact in {scales.dtype.name}"
        raise errors.outside(argument, first_index(wrong), accepted, float(scales[wrong].flat[0]))
    return np.asarray(made)


def from_onnx(
    elements: Any, scales: Any, *, format: str | MXFormat | None = None, axis: int = -1, block_size: int | None = None
) -> MXArray:
    """Return the MX array that two TensorProtos hold.

    By default `format` is derived from the ONNX types of elements and scales.
    """
    onnx = _onnx()
    known = {getattr(onnx.TensorProto, kind, None): element for element, kind in TYPES.items()}
    if elements.data_type not in known:
        raise ValueError(f"Argument 'elements' must be of {errors.joined(TYPES.values())}, not {elements.data_type}.")
    scale_types = {getattr(onnx.TensorProto, kind, None): scale for scale, kind in SCALES.items()}
    errors.require(scales.data_type in scale_types, "scales", f"of {errors.joined(SCALES.values())}", scales.data_type)
    name, scale = known[elements.data_type], scale_types[scales.data_type]
    if format is None:
        fmt = formats.of_element(name) if scale == "e8m0" else MXFormat(name, scale, block_size or 32)
    else:
        fmt = formats.get(format)
    require_element("format", fmt, [name])
    errors.require(fmt.scale.name == scale, "format", f"a format with {scale} scales", fmt.name)
    codes = onnx.numpy_helper.to_array(elements).view(np.uint8)
    scale_codes = untyped_scales(onnx.numpy_helper.to_array(scales), fmt.scale)
    if fmt.element.integer and not fmt.scale.power_of_two:
        scale_codes = _times("scales", scale_codes, fmt.element.mantissa_bits)
    elif fmt.element.integer:
        is_nan, most = scale_codes == 255, 254 - fmt.element.mantissa_bits
        usable = bool((is_nan | (scale_codes <= most)).all())
        errors.require(
            usable, "scales", f"codes of at most {most} for {fmt.name}", int(scale_codes[~is_nan].max(initial=0))
        )
        scale_codes = np.where(is_nan, scale_codes, scale_codes + fmt.element.mantissa_bits).astype(np.uint8)
    return MXArray.from_parts(codes, scale_codes, fmt, axis=axis, block_size=block_size)


def _stream(codes: Array, width: int) -> Array:
    bits = np.unpackbits(codes.reshape(-1, 1), axis=1, count=width, bitorder="little")
    return np.packbits(bits, bitorder="little")
