"""Convert NVFP4 tensors of compressed-tensors and ModelOpt: bytes, E4M3 scales and a global scale.

compressed-tensors and ModelOpt store element 2i of a row in the low bits of byte i, and element
2i + 1 in the high bits, as `MXArray.pack` does. Every 16 elements of a row share a scale.
compressed-tensors and ModelOpt differ in the names of the tensors and in the global scale:

- compressed-tensors: ``weight_packed``, ``weight_scale``, ``weight_global_scale``. The global scale
  multiplies numbers when they are *encoded*, so a value is element * scale / global scale. The
  global scale is stored as an array with one axis and one element.
- ModelOpt: ``weight``, ``weight_scale``, ``weight_scale_2``. The global scale multiplies elements
  when they are *decoded*. The global scale is stored as an array without axes.

The tensor scale of an `MXArray` multiplies elements when they are decoded. A global scale for
encoding is therefore replaced by its reciprocal in float32, as in compressed-tensors' own
converter. `MXArray.dequantize` rounds the exact product once. compressed-tensors and ModelOpt round
twice: first the product of the two scales, and then the product with the element. `values_of`
returns the values that these two packages compute.
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

#: A global scale multiplies numbers on encoding (compressed-tensors, flashinfer) or on decoding
#: (ModelOpt, torchao).
DIRECTIONS = "encode", "decode"
#: The stacks that need only packed codes, scales and a global scale to decode values.
READERS = "compressed_tensors", "vllm", "modelopt", "torchao"
_FORMAT = get("nvfp4")
_ONE = np.float32(1)


def from_nvfp4(packed: Any, scales: Any, global_scale: Any, *, direction: str) -> MXArray:
    """Return an MX array from bytes (..., n / 2), E4M3 scales (..., n / 16) and a global scale.

    The global scale is one float32 number, or one float32 number for each expert (index of the
    first axis). `direction` says whether the global scale multiplies numbers on encoding ("encode")
    or on decoding ("decode"). The returned array shares memory with `packed`.
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
    """Return the bytes, the scales (float8_e4m3fn) and the global scale of an array of NVFP4.

    The array must have whole blocks along the last axis. It must have one tensor scale. An array
    with three or more axes may instead have one tensor scale for each expert (index of the first
    axis). An array with a tensor scale for each row raises ValueError: compressed-tensors and
    ModelOpt cannot read it.

    A global scale for encoding is a float32 number whose reciprocal is the tensor scale. Several
    numbers may have the same reciprocal in float32, so pass the global scale of the original file
    as `global_scale`. Some tensor scales are not the reciprocal of any float32 number. To get a
    tensor scale that is the reciprocal of a float32 number, call `mxnum.quantize` with
    ``tensor_scale=1 / global_scale`` in float32, or with ``arithmetic="compressed_tensors"``.
    """
    errors.choose("direction", direction, DIRECTIONS)
    q = in_rows("q", q, "e2m1", "e4m3", 16)
    errors.require(q.tensor_scale is not None, "q", "of a format with a tensor scale", q.format.name)
    tensor = np.asarray(q.tensor_scale)
    own = tensor.size == 1 or (tensor.ndim > 2 and tensor.size == len(tensor))
    accepted = "an array with one tensor scale, or an array of at least three axes with one for each index of the first"
    errors.require(own, "q", accepted, tensor.shape)
    number = _global_scale(tensor, direction, global_scale)
    return q.pack(), np.ascontiguousarray(typed_scales(q)), number


def values_of(q: MXArray, stack: str, *, global_scale: Any = None) -> Array:
    """Return the float32 values that other software decodes from an array of NVFP4.

    This function rounds twice, as the other software does, so that all bits agree. `stack` is
    ``compressed_tensors``, ``vllm``, ``modelopt`` or ``torchao`` (see `mxnum.stacks`). For
    compressed_tensors and vllm, `global_scale` is a global scale for encoding, as in `to_nvfp4`. If
    each expert has a tensor scale, pass one expert at a time.
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
    """Return the caller's global scale, or compute it from the array's tensor scale."""
    if direction == "encode":
        return _reciprocals(tensor.reshape(-1), given)
    if given is not None:
        raise ValueError(
            "Argument 'global_scale' must be left out with direction='decode', because the tensor scale is used."
        )
    return tensor.reshape(-1) if tensor.ndim else tensor


def _reciprocal(numbers: Array) -> Array:
    with np.errstate(all="ignore"):
        return np.asarray(_ONE / numbers)


def _reciprocals(tensor: Array, given: Any) -> Array:
    """Check and return the global scales `given`; if None, return the reciprocals of `tensor`."""
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
            f"{tensor[wrong][0]}; quantize with such a reciprocal as tensor_scale."
        )
    return found
