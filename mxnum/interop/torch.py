"""PyTorch tensors: inputs without a copy, and MX arrays as tensors of the float8, float4 and E8M0 types.

Arrays and tensors share memory on the CPU. CUDA tensors stay where they are, and give CUDA tensors (extra ``cuda``).
Tensors on other devices are refused: what is quantized where is the caller's decision (``tensor.cpu()``).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from mxnum import errors, formats
from mxnum.array import MXArray
from mxnum.dtypes import Array
from mxnum.formats import MXFormat

#: torch's name for the elements that it has a type for.
DTYPES = {"e4m3": "float8_e4m3fn", "e5m2": "float8_e5m2", "e2m1": "float4_e2m1fn_x2", "int8": "int8"}


class MXTensors(NamedTuple):
    """An MX array as tensors. Types that torch lacks (6 bits, e3m0, int4) are packed bytes, as from `MXArray.pack`."""

    elements: Any
    scales: Any
    format: MXFormat
    blocks: tuple[int, ...]


def _torch() -> Any:
    return errors.package("torch", "torch")


def _checked(name: str, tensor: Any) -> Any:
    """The tensor without its gradient, if it is one that can be read."""
    torch = _torch()
    errors.require_type(isinstance(tensor, torch.Tensor), name, "a torch tensor", type(tensor).__name__)
    known = tensor.is_cuda or tensor.device.type == "cpu"
    errors.require(known, name, "on the CPU or a CUDA device (tensor.cpu())", str(tensor.device))
    return tensor.detach()


def _readable(tensor: Any) -> Any:
    """What the library's functions take: the array that a CPU tensor is, a CUDA tensor as it is."""
    tensor = _checked("tensor", tensor)
    return tensor if tensor.is_cuda else as_array(tensor)


def as_array(tensor: Any) -> Array:
    """A CPU tensor of floats as a numpy array on the same memory, bfloat16 included."""
    torch = _torch()
    errors.require_type(isinstance(tensor, torch.Tensor), "tensor", "a torch tensor", type(tensor).__name__)
    errors.require(tensor.device.type == "cpu", "tensor", "on the CPU (tensor.cpu())", str(tensor.device))
    tensor = tensor.detach()
    if tensor.dtype == torch.bfloat16:
        import ml_dtypes

        array: Array = tensor.view(torch.int16).numpy().view(ml_dtypes.bfloat16)
    else:
        array = tensor.numpy()
    return array


def as_tensor(array: Any) -> Any:
    """A numpy array of floats as a tensor on the same memory, bfloat16 included."""
    torch = _torch()
    array = np.asarray(array)
    if array.dtype.name == "bfloat16":
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)


def quantize(tensor: Any, format: str | MXFormat, **options: Any) -> MXArray:
    """`mxnum.quantize` of a tensor, with its keywords; `random_bits` may be a tensor of torch.uint32 or int32."""
    import mxnum as mx

    return mx.quantize(_readable(tensor), format, **_with_words(options))


def fake_quantize(tensor: Any, format: str | MXFormat, **options: Any) -> Any:
    """`mxnum.fake_quantize` of a tensor, with its keywords: a new tensor of the same dtype, outside autograd."""
    import mxnum as mx

    values = mx.fake_quantize(_readable(tensor), format, **_with_words(options))
    return values if tensor.is_cuda else as_tensor(values)


def _with_words(options: dict[str, Any]) -> dict[str, Any]:
    """The keywords with random words that are a tensor in the form that the library's functions take."""
    words = options.get("random_bits")
    if words is None or isinstance(words, np.ndarray):
        return options
    words = _checked("random_bits", words).view(_torch().uint32)
    return {**options, "random_bits": words if words.is_cuda else words.numpy()}


def to_torch(q: MXArray) -> MXTensors:
    """The MX array as tensors. Eight-bit codes and all scales share its memory; narrower codes are packed.

    float4_e2m1fn_x2 holds two elements of the last axis a byte, the first in the low bits, so its last axis is half as
    long and has to be even.
    """
    torch = _torch()
    element = q.format.element
    theirs = q.on_device and not isinstance(q.codes, torch.Tensor)
    errors.require(not theirs, "q", "in host memory or made of tensors", f"of {type(q.codes).__module__} arrays")
    scales = _tensor_of(q.scales).view(torch.float8_e8m0fnu)
    if element.bits == 8:
        codes = _tensor_of(q.codes)
    else:
        codes = _tensor_of(q.pack())
        odd = element.name == "e2m1" and q.ndim > 0 and q.shape[-1] % 2
        errors.require(not odd, "q", "of even length along its last axis for float4_e2m1fn_x2", q.shape)
    if element.name in DTYPES:
        codes = codes.view(getattr(torch, DTYPES[element.name]))
    return MXTensors(codes, scales, q.format, q.blocks)


def _tensor_of(part: Any) -> Any:
    return _torch().from_numpy(part) if isinstance(part, np.ndarray) else part


def from_torch(
    elements: Any,
    scales: Any,
    *,
    format: str | MXFormat | None = None,
    axis: int | None = None,
    block_size: int | None = None,
    blocks: tuple[int, ...] | None = None,
    length: int | None = None,
) -> MXArray:
    """An MX array from tensors of elements and scales (float8_e8m0fnu or uint8), eight-bit codes without a copy.

    Without `format` the type of the elements says which one it is. `length` is the number of elements in a row of the
    last axis, needed where packed bytes do not say it (6 bits).
    """
    torch = _torch()
    elements, scales = _checked("elements", elements), _checked("scales", scales)
    known = {getattr(torch, name): element for element, name in DTYPES.items()}
    if format is None:
        if elements.dtype not in known:
            listed = errors.joined(DTYPES.values())
            raise TypeError(f"Argument 'format' must be given unless elements are {listed}, not {elements.dtype}.")
        wanted = known[elements.dtype]
        fmt = formats.of_element(wanted)
    else:
        fmt = formats.get(format)
    codes, scale_codes = (
        part if part.is_cuda else part.numpy() for part in (elements.view(torch.uint8), scales.view(torch.uint8))
    )
    layout: dict[str, Any] = {"axis": axis, "block_size": block_size, "blocks": blocks}
    if fmt.element.bits == 8:
        return MXArray.from_parts(codes, scale_codes, fmt, **layout)
    if length is None:
        errors.require(8 % fmt.element.bits == 0, "length", "given for elements of 6 bits", None)
        length = codes.shape[-1] * 8 // fmt.element.bits
    return MXArray.from_packed(codes, scale_codes, fmt, length=length, **layout)
