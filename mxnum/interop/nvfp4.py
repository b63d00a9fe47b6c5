"""NVFP4 as compressed-tensors and ModelOpt store it: packed bytes, E4M3 scales, and a global scale of either direction.

Both put element 2i of a row into the low bits of byte i and element 2i + 1 into the high bits, as `MXArray.pack` does,
and hold a scale for 16 elements of a row. What differs is what they call things, and the global scale:

- compressed-tensors: ``weight_packed``, ``weight_scale``, ``weight_global_scale``, which multiplies what is *encoded*
  (a value is element * scale / global scale), of one element in an array of one axis;
- ModelOpt: ``weight``, ``weight_scale``, ``weight_scale_2``, which multiplies what is *decoded*, an array of no axes.

An `MXArray` has the factor of decoding, so a global scale of encoding is replaced by its reciprocal in float32, as
compressed-tensors' own converter does it. `MXArray.dequantize` rounds the exact product once. Both packages round
twice, the two scales first: `values_of` gives their values.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mxnum import errors, stacks
from mxnum.array import MXArray
from mxnum.formats import get
from mxnum.interop._checked import in_rows, typed_scales, untyped_scales
from mxnum.memory.dtypes import Array, as_array
from mxnum.memory.tensors import in_kind

#: What a global scale multiplies: what is encoded (compressed-tensors, flashinfer), or decoded (ModelOpt, torchao).
DIRECTIONS = "encode", "decode"
#: The stacks that read these files with what the files have.
READERS = "compressed_tensors", "vllm", "modelopt", "torchao"
_FORMAT = get("nvfp4")
_ONE = np.float32(1)


def from_nvfp4(packed: Any, scales: Any, global_scale: Any, *, direction: str) -> MXArray:
    """An MX array from bytes (..., n / 2), E4M3 scales (..., n / 16) and a float32 global scale of that direction.

    The global scale is one number, or one for each index of the first axis (an expert). Bytes are held as they are.
    """
    errors.choose("direction", direction, DIRECTIONS)
    bytes_, codes = (as_array(n, v, anywhere=False) for n, v in (("packed", packed), ("scales", scales)))
    number = as_array("global_scale", global_scale, anywhere=False)
    errors.require_dtype("packed", bytes_.dtype, np.dtype(np.uint8))
    errors.require_dtype("global_scale", number.dtype, np.dtype(np.float32))
    errors.require(bytes_.ndim >= 1 and bytes_.shape[-1] % 8 == 0, "packed", "of 8 bytes a block", bytes_.shape)
    if number.size == 1:
        number = number.reshape(())
    elif number.ndim == 1 and bytes_.ndim > 1:
        number = number.reshape(-1, *(1,) * (bytes_.ndim - 1))
    tensor = np.asarray(_reciprocal(number) if direction == "encode" else number)
    length, codes = 2 * bytes_.shape[-1], untyped_scales(codes, _FORMAT.scale)
    return MXArray.from_packed(in_kind(bytes_, packed), codes, _FORMAT, length=length, tensor_scale=tensor)


def to_nvfp4(q: MXArray, *, direction: str, global_scale: Any = None) -> tuple[Array, Array, Array]:
    """Bytes, scales (float8_e4m3fn) and global scale of an array of NVFP4 in whole blocks along the last axis.

    There is one tensor scale, or one for each expert, an index of the first of three axes: of those of rows both
    packages would make other values, or none.
    A global scale of encoding is a float32 number whose reciprocal is the tensor scale; give the one that a file had as
    `global_scale`, since several may have the same reciprocal. Not every float32 number is the reciprocal of one: with
    ``tensor_scale=1 / global_scale`` in float32, or ``arithmetic="compressed_tensors"``, `mxnum.quantize` makes one
    that is.
    """
    errors.choose("direction", direction, DIRECTIONS)
    q = in_rows("q", q, "e2m1", "e4m3", 16)
    errors.require(q.tensor_scale is not None, "q", "of a format with a tensor scale", q.format.name)
    tensor = np.asarray(q.tensor_scale)
    own = tensor.size == 1 or (tensor.ndim > 2 and tensor.size == len(tensor))
    errors.require(own, "q", "of one tensor scale, or one for each index of the first of three axes", tensor.shape)
    number = _global_scale(tensor, direction, global_scale)
    return q.pack(), np.ascontiguousarray(typed_scales(q)), number


def values_of(q: MXArray, stack: str, *, global_scale: Any = None) -> Array:
    """The float32 values that other software makes of an array of NVFP4: its own operations, which round twice.

    `stack` is ``compressed_tensors``, ``vllm``, ``modelopt`` or ``torchao`` (see `mxnum.stacks`); the first two have a
    global scale of encoding, as `to_nvfp4` takes it. Of experts with a tensor scale each, ask for one at a time.
    """
    errors.choose("stack", stack, READERS)
    q = in_rows("q", q, "e2m1", "e4m3", 16)
    errors.require(q.tensor_scale is not None, "q", "of a format with a tensor scale", q.format.name)
    tensor = np.asarray(q.tensor_scale)
    errors.require(tensor.size == 1, "q", "of one tensor scale", tensor.shape)
    number = _global_scale(tensor, stacks.of(stack).direction, global_scale).reshape(-1)[0]
    made = stacks.Quantized(q.codes, q.scales, number, tensor.reshape(-1)[0], np.float32(0), q.blocks)
    return stacks.dequantize(made, stack)


def _global_scale(tensor: Array, direction: str, given: Any) -> Array:
    """The global scale of that direction: of the array's tensor scale, or one that was given for it."""
    if direction == "encode":
        return _reciprocals(tensor.reshape(-1), given)
    if given is not None:
        raise ValueError(
            "Argument 'global_scale' must be left out with direction='decode', where it is the tensor scale."
        )
    return tensor.reshape(-1) if tensor.ndim else tensor


def _reciprocal(numbers: Array) -> Array:
    with np.errstate(all="ignore"):
        return np.asarray(_ONE / numbers)


def _reciprocals(tensor: Array, given: Any) -> Array:
    """The global scales that were given, or some whose reciprocals these are."""
    if given is not None:
        number = np.asarray(as_array("global_scale", given, anywhere=False)).reshape(-1)
        errors.require_dtype("global_scale", number.dtype, np.dtype(np.float32))
        fits = number.shape == tensor.shape and np.array_equal(_reciprocal(number), tensor, equal_nan=True)
        errors.require(fits, "global_scale", f"a number whose reciprocal is {tensor.tolist()}", number.tolist())
        return number
    near = _reciprocal(tensor)
    found = near.copy()
    for candidate in (np.nextafter(near, np.float32(0)), np.nextafter(near, np.float32(np.inf)), near):
        np.copyto(found, candidate, where=_reciprocal(candidate) == tensor)
    wrong = (_reciprocal(found) != tensor) & ~np.isnan(tensor)
    if wrong.any():
        raise ValueError(
            "Argument 'q' must have a tensor scale that is the reciprocal of a float32 number, not "
            f"{tensor[wrong][0]}; pass such a reciprocal to quantize as tensor_scale."
        )
    return found
