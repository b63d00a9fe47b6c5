"""Convert MX arrays to torch tensors of the float8, float4 and E8M0 types, and back.

The functions of `mxnum` accept tensors too, and then return tensors. CPU tensors are not copied.
CUDA tensors stay on their device (extra ``cuda``). Tensors on other devices raise ValueError,
because the caller must decide where to quantize (``tensor.cpu()``).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from mxnum import errors, formats
from mxnum.array import MXArray
from mxnum.formats import MXFormat
from mxnum.interop._checked import SCALE_TYPES, without_offsets
from mxnum.memory import tensors
from mxnum.memory.device import on_device
from mxnum.memory.dtypes import known_name

__all__ = ["MXTensors", "fake_quantize", "from_torch", "quantize", "to_torch"]

#: The torch types of elements.
DTYPES = {"e4m3": "float8_e4m3fn", "e5m2": "float8_e5m2", "e2m1": "float4_e2m1fn_x2", "int8": "int8"}
_LARGEST = (1 << 32) - 1


class MXTensors(NamedTuple):
    """The parts of an MX array as tensors.

    If torch lacks the type of the elements (6 bits, int4, e4m3:bias=8), `elements` are the bytes
    that `MXArray.pack` returns. Scales have the type float8_e8m0fnu, float8_e4m3fn or a wider float
    type. UE5M3 scales are bytes, because torch lacks this type.
    """

    elements: Any
    scales: Any
    format: MXFormat
    blocks: tuple[int, ...]
    #: A float32 tensor, or None if the format has no tensor scale.
    tensor_scale: Any = None


def _torch() -> Any:
    return errors.package("torch", "torch")


def _checked(name: str, tensor: Any) -> Any:
    """Return the tensor, detached from autograd; raise an error if mxnum cannot read it."""
    torch = _torch()
    errors.require_type(isinstance(tensor, torch.Tensor), name, "a torch tensor", type(tensor).__name__)
    known = tensor.is_cuda or tensor.device.type == "cpu"
    errors.require(known, name, "on the CPU or a CUDA device (tensor.cpu())", str(tensor.device))
    return tensors.readable(name, tensor)


def as_tensor(array: Any) -> Any:
    """Return a tensor that shares the memory of a numpy array.

    The array may hold bfloat16 or 8-bit floats.
    """
    _torch()
    array = np.asarray(array)
    errors.require(array.dtype.isnative, "array", "in native byte order", array.dtype.str)
    shareable = array.flags.writeable and all(step >= 0 for step in array.strides)
    errors.require(shareable, "array", "writable and without negative strides (array.copy())", array.strides)
    return tensors.as_tensor(array)


def quantize(tensor: Any, format: str | MXFormat, **options: Any) -> MXArray:
    """Quantize a tensor as `mxnum.quantize` does, with two more sources of random bits.

    `random_bits` may be a tensor of any integer type with values from 0 to 2**32 - 1. `seed` may be
    a `torch.Generator`. Each call advances the generator, so the next call uses other random bits.

    The seed from a generator is the number in an int64 tensor of shape (), modulo 2**64. The tensor
    is on the generator's device, and ``random_(-(2**63), None, generator=generator)`` fills it.
    """
    import mxnum as mx

    return mx.quantize(_checked("tensor", tensor), format, **_with_words(options))


def fake_quantize(tensor: Any, format: str | MXFormat, **options: Any) -> Any:
    """Quantize and dequantize a tensor as `mxnum.fake_quantize` does, in the tensor's dtype.

    This function takes the keywords of `quantize`. The result has no gradient, so a tensor that
    requires a gradient raises an error. There is no error if torch records no gradients (under
    `torch.no_grad`, or in the forward pass of your own `torch.autograd.Function`).
    """
    import mxnum as mx

    return mx.fake_quantize(_checked("tensor", tensor), format, **_with_words(options))


def _with_words(options: dict[str, Any]) -> dict[str, Any]:
    """Return the options, with `random_bits` and `seed` converted for `mxnum.quantize`."""
    options, words, seed = dict(options), options.get("random_bits"), options.get("seed")
    if words is not None and not isinstance(words, np.ndarray):
        options["random_bits"] = _words("random_bits", _checked("random_bits", words))
    if isinstance(seed, _torch().Generator):
        options["seed"] = drawn(seed)
    return options


def _words(name: str, words: Any) -> Any:
    """Return a tensor of integers as torch.uint32; raise an error for values out of range."""
    torch = _torch()
    dtype = tensors.dtype_of(words)
    errors.require_type(dtype.kind in "iu" and dtype.isbuiltin == 1, name, "a tensor of integers", words.dtype)
    if words.dtype == torch.uint32:
        return words
    wide = words.view(torch.int64) if words.dtype == torch.uint64 else words.to(torch.int64)
    wrong = (wide < 0) | (wide > _LARGEST)
    if wrong.any():
        index = tuple(wrong.nonzero()[0].tolist())
        raise errors.outside(name, index, f"between 0 and {_LARGEST}", words[index].item())
    return torch.where(wide > _LARGEST // 2, wide - _LARGEST - 1, wide).to(torch.int32).view(torch.uint32)


def drawn(generator: Any) -> int:
    """Draw a seed of 64 bits from a `torch.Generator`, as the docstring of `quantize` describes."""
    torch = _torch()
    word = torch.empty((), dtype=torch.int64, device=generator.device).random_(-(1 << 63), None, generator=generator)
    return int(word.item()) % (1 << 64)


def to_torch(q: MXArray) -> MXTensors:
    """Return the parts of an MX array as tensors.

    Eight-bit codes and all scales share the memory of the array, unless this memory is read-only.
    Narrower codes are packed. A byte of the type float4_e2m1fn_x2 holds two elements of the last
    axis, the first in the low bits. So the last axis of E2M1 elements must have even length, and
    becomes half as long.
    """
    torch = _torch()
    without_offsets("q", q)
    element = q.format.element
    theirs = on_device(q.scales) and not tensors.is_tensor(q.scales)
    errors.require(not theirs, "q", "in host memory or made of tensors", f"of {type(q.scales).__module__} arrays")
    scales, kind = _tensor_of(q.scales), SCALE_TYPES.get(q.format.scale.name)
    scales = scales if kind is None else scales.view(getattr(torch, kind))
    name = known_name(element)
    odd = name == "e2m1" and q.ndim > 0 and q.shape[-1] % 2
    errors.require(not odd, "q", "of even length along the last axis for float4_e2m1fn_x2", q.shape)
    codes = _tensor_of(q.codes if element.bits == 8 else q.pack())
    if name in DTYPES:
        codes = codes.view(getattr(torch, DTYPES[name]))
    return MXTensors(codes, scales, q.format, q.blocks, _tensor_of(q.tensor_scale))


def _tensor_of(part: Any) -> Any:
    return tensors.as_tensor(part) if isinstance(part, np.ndarray) else part


def from_torch(
    elements: Any,
    scales: Any,
    tensor_scale: Any = None,
    *,
    format: str | MXFormat | None = None,
    axis: int | None = None,
    block_size: int | None = None,
    block_shape: tuple[int, int] | None = None,
    blocks: tuple[int, ...] | None = None,
    length: int | None = None,
) -> MXArray:
    """Return an MX array from tensors of elements and scales.

    A tensor of elements or of 8-bit scales has the torch type of the format, or holds the codes as
    uint8. Eight-bit codes are not copied. By default, `format` has E8M0 scales, and its element
    format follows from the dtype of `elements`. `length` is the number of elements in a row of the
    last axis. Packed elements of 6 bits need `length`, because the number of bytes does not
    determine the number of elements.
    """
    torch = _torch()
    elements, scales = _checked("elements", elements), _checked("scales", scales)
    known = {getattr(torch, name): element for element, name in DTYPES.items()}
    if format is None and elements.dtype not in known:
        listed = errors.joined(DTYPES.values())
        raise TypeError(f"Argument 'format' must be given for {elements.dtype} elements; only {listed} have a default.")
    of_type = formats.of_element(known[elements.dtype]) if format is None else format
    fmt = formats.get(of_type)
    own = elements.dtype in known and known[elements.dtype] == known_name(fmt.element)
    accepted = f"torch.uint8 or the type of {fmt.element.name} for {fmt.name}"
    errors.require_type(own or elements.dtype == torch.uint8, "elements", accepted, elements.dtype)
    scale_types = (
        [*filter(None, [SCALE_TYPES.get(fmt.scale.name)]), "uint8"] if fmt.scale.bits == 8 else [fmt.scale.name]
    )
    is_scale = scales.dtype in [getattr(torch, name) for name in scale_types]
    accepted = "of " + " or ".join(f"torch.{name}" for name in scale_types)
    errors.require_type(is_scale, "scales", accepted, scales.dtype)
    codes = elements.view(torch.uint8)
    scale_codes = scales.view(torch.uint8) if fmt.scale.bits == 8 else scales
    layout: dict[str, Any] = {"axis": axis, "block_size": block_size, "block_shape": block_shape, "blocks": blocks}
    layout["tensor_scale"] = None if tensor_scale is None else _checked("tensor_scale", tensor_scale)
    if fmt.element.bits == 8:
        row = codes.shape[-1] if codes.ndim else 1
        errors.require(length in (None, row), "length", f"{row}, the number of codes in a row, or left out", length)
        return MXArray.from_parts(codes, scale_codes, fmt, **layout)
    if length is None:
        errors.require(8 % fmt.element.bits == 0, "length", "given for elements of 6 bits", None)
        length = codes.shape[-1] * 8 // fmt.element.bits if codes.ndim else 0
    return MXArray.from_packed(codes, scale_codes, fmt, length=length, **layout)
