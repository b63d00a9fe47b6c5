"""Check arguments: arrays, their layout, and the options of each engine."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from mxnum import errors, formats
from mxnum.engine.dispatch import engine as dispatch_engine
from mxnum.engine.dispatch import host_engine
from mxnum.engine.request import memo
from mxnum.formats import E8M0, FLOATS, MXFormat, ScaleFormat
from mxnum.layout import Blocks, packed_length, resolve_blocks, scales_shape
from mxnum.memory.device import DeviceArray, described, on_device
from mxnum.memory.dtypes import as_array, code_dtype, scale_dtype


class Layout(NamedTuple):
    """The format and the blocks of an array of codes, and the shape of the array of scales."""

    format: MXFormat
    blocks: Blocks
    of_scales: tuple[int, ...]


def host_options(engine: Any, **options: Any) -> dict[str, Any]:
    """Return `options` for the host's engine, and {} for a GPU's engine, which takes no options.

    Raise ValueError if the engine is a GPU's and an option is not None.
    """
    if engine is host_engine():
        return options
    for name, value in options.items():
        if value is not None:
            raise ValueError(f"Argument {name!r} must be left out for arrays on a GPU.")
    return {}


def checked_threads(threads: int | None) -> int | None:
    """Return `threads`; raise an error unless it is None or at least 1."""
    return None if threads is None else errors.positive_integer("threads", threads)


def owned(array: Any) -> Any:
    """Return the caller's object that a `DeviceArray` describes; return anything else unchanged."""
    return array.owner if isinstance(array, DeviceArray) else array


def checked_codes(argument: str, value: Any, bits: int) -> Any:
    """Return `value` as an array of codes in the narrowest unsigned type that holds `bits` bits.

    Raise an error if `value` has a different dtype, or holds a code of 2**bits or more.
    """
    codes = as_array(argument, value)
    dtype = code_dtype(bits)
    errors.require_dtype(argument, codes.dtype, dtype)
    if codes.size and bits < 8 * dtype.itemsize:
        largest = dispatch_engine(codes=codes).largest(codes)
        errors.require(largest < 1 << bits, argument, f"below {1 << bits}", largest)
    return codes


def checked_scales(value: Any, shape: tuple[int, ...], scale: ScaleFormat = E8M0) -> Any:
    """Return `value` as an array of scales.

    Raise an error if the shape or the dtype does not fit, or if a sign bit is set.
    """
    scales = as_array("scales", value)
    errors.require_dtype(
        "scales", scales.dtype, scale_dtype(scale), f" of {scale.name.upper()} codes" * (scale.bits == 8)
    )
    # Fast path: avoids formatting the error message, which takes longer than all other checks.
    if scales.shape != shape:
        errors.require(False, "scales", f"of shape {shape}", scales.shape)
    if scale.number is not None and scale.number.bits == scale.bits:
        _refuse_signs("scales", scales)
    return scales


def checked_tensor_scale(
    value: Any, shape: tuple[int, ...], blocks: Blocks, fmt: MXFormat, positive: bool, beside: Any
) -> Any:
    """Return `value` as the tensor scale of an array with the given shape and blocks.

    A tensor scale is float32, without axes or with as many axes as the array. Along an axis with
    block length 1, a tensor scale may be as long as the array; along any other axis, its length is
    1. If `positive` is True, a tensor scale must be positive and finite, because elements are
    divided by it. If `positive` is False, a tensor scale may be any float32 whose sign bit is 0.
    `value` must be None if, and only if, the format has no tensor scale. If `value` is an array, it
    must be in the same memory as the array `beside`: in host memory, or on the same GPU. A Python
    number becomes an array in the memory of `beside`.
    """
    if fmt.tensor_scale is None:
        errors.require(value is None, "tensor_scale", f"left out for {fmt.name}, which has none", value)
        return None
    errors.require(value is not None, "tensor_scale", f"given for {fmt.name}", value)
    if isinstance(value, float | int) and not isinstance(value, bool):
        errors.require(isinstance(value, float) or abs(value) < 1 << 128, "tensor_scale", "a float32 number", value)
        # The code of a subnormal number is value / 2**-149. np.float32(value) might be 0, because
        # the processor may be set to flush subnormal numbers to zero.
        units = value * 2.0**149
        with np.errstate(all="ignore"):
            code = np.uint32(units) if 0 < units < 1 << 23 else np.float32(value).view(np.uint32)
        is_exact = FLOATS["float32"].value(int(code)) == value
        errors.require(is_exact or value != value, "tensor_scale", "a float32 number", value)
        value = np.array(code).view(np.float32)
        value = dispatch_engine(x=beside).beside(value, beside)
    tensor = as_array("tensor_scale", value)
    errors.require_dtype("tensor_scale", tensor.dtype, np.dtype(np.float32))
    fits = tensor.ndim == 0 or (
        tensor.ndim == len(shape)
        and all(
            n == 1 or (n == of_x and block == 1) for n, of_x, block in zip(tensor.shape, shape, blocks, strict=True)
        )
    )
    accepted = (
        f"without axes, or of {len(shape)} axes of length 1 (an axis with block length 1 may also have the array's "
        f"length; the array has shape {shape} and blocks {blocks})"
    )
    errors.require(fits, "tensor_scale", accepted, tensor.shape)
    if positive:
        numbers = on_host(tensor)
        codes = numbers.view(np.uint32)
        wrong = (codes == 0) | (codes > FLOATS["float32"].max_code)
        if wrong.any():
            raise errors.outside(
                "tensor_scale", first_index(wrong), "positive and finite", float(numbers[wrong].flat[0])
            )
    _refuse_signs("tensor_scale", tensor)
    return tensor


def on_host(array: Any) -> Any:
    """Return a numpy array unchanged; return a copy in host memory of an array on a GPU."""
    if not isinstance(array, DeviceArray):
        return array
    from mxnum.engine.cuda import arrays

    return arrays.to_host(array)


def _refuse_signs(argument: str, array: Any) -> None:
    numbers = on_host(array)
    bits = 8 * numbers.itemsize
    signs = numbers.view(code_dtype(bits)) >> (bits - 1) != 0
    if signs.any():
        raise errors.outside(argument, first_index(signs), "without a sign bit", numbers[signs].tolist()[0])


def first_index(wrong: Any) -> tuple[int, ...]:
    """Return the first index in C order at which a boolean array is True."""
    return tuple(int(i) for i in np.unravel_index(int(np.argmax(wrong)), wrong.shape))


def checked_out(out: Any, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
    """Return `out`; raise an error unless it is None or writable with the given shape and dtype."""
    if out is None:
        return None
    if type(out) is np.ndarray:  # fast path: avoids the slower `on_device`
        writable = out.flags.writeable
    elif on_device(out):
        out = described("out", out)
        writable = out.writable
    else:
        errors.require_type(isinstance(out, np.ndarray), "out", "a numpy array", type(out).__name__)
        writable = out.flags.writeable
    # Fast path: avoids formatting the error message, which takes longer than all other checks.
    if out.shape != shape or out.dtype != dtype:
        errors.require(out.shape == shape, "out", f"of shape {shape}", out.shape)
        errors.require(out.dtype == dtype, "out", f"of dtype {dtype}", out.dtype)
    errors.require(writable, "out", "writable", "a read-only array")
    if 0 in out.strides and out.size:
        apart = all(step or length == 1 for step, length in zip(out.strides, shape, strict=True))
        errors.require(apart, "out", "an array whose elements do not share memory", f"one of strides {out.strides}")
    return out


def copied_if_overlapping(read: Any, *written: Any) -> Any:
    """Return the array `read`, or a copy if one of the `written` arrays may share its memory.

    A loop may overwrite the array that it converts, because it reads each element before writing
    the result. It must not overwrite its other inputs, such as random words.
    """
    if isinstance(read, np.ndarray):
        for array in written:
            if isinstance(array, np.ndarray) and np.may_share_memory(read, array):
                return read.copy()
    return read


@memo
def layout_of(
    format: str | MXFormat,
    shape: tuple[int, ...],
    axis: int | None,
    block_size: int | None,
    block_shape: Blocks | None,
    blocks: Blocks | None,
) -> Layout:
    """Return the `Layout` that the caller's arguments describe, for codes of the given shape."""
    fmt = formats.get(format)
    made = resolve_blocks(shape, fmt.block, axis=axis, block_size=block_size, block_shape=block_shape, blocks=blocks)
    return Layout(fmt, made, scales_shape(shape, made))


@memo
def packed_layout(
    format: str | MXFormat, packed_shape: tuple[int, ...], length: int, *rest: Any
) -> tuple[tuple[int, ...], Layout]:
    """Return the shape and the `Layout` of codes that are packed in rows of `length` codes.

    `rest` holds the arguments of `layout_of` that follow the shape.
    """
    fmt = formats.get(format)
    bits = fmt.element.bits
    errors.require(len(packed_shape) >= 1, "packed", "an array of at least one axis", packed_shape)
    length = errors.integer("length", length, 0, 1 << 62)
    row = packed_length(length, bits)
    accepted = f"an array of {row} bytes per row for {length} codes of {bits} bits"
    errors.require(packed_shape[-1] == row, "packed", accepted, packed_shape)
    shape = (*packed_shape[:-1], length)
    return shape, layout_of(fmt, shape, *rest)
