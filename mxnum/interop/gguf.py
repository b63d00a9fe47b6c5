"""Read and write blocks of GGUF files (llama.cpp): MXFP4, NVFP4, and groups of integers.

Each block begins with its scale. Of 32 elements of four bits, byte i holds element i (low bits) and
element i + 16 (high bits). gpt-oss checkpoints pair 2i with 2i + 1 instead
(`mxnum.interop.gpt_oss`). Reading one order as the other silently permutes the values.

- MXFP4: the E8M0 code and 16 bytes.
- NVFP4: four E4M3 codes, then 8 bytes for the 16 elements of each: ``e2m1:block=16,scale=e4m3``.
  The tensor scale is a separate tensor (`load_tensor`).
- Q8_0: d in float16 and 32 integers n of two's complement; a value is d * n. This is
  ``int8:block=32,scale=float16``, whose elements are n / 64, so that its scales are 64 d.
- Q4_0: d in float16, *with a sign*, and 32 integers n + 8. Scales have no sign here, and 8, which
  -8 becomes with the other sign, does not fit into four bits. Q4_0 is therefore read as
  ``e1m3:bias=-2,block=32,scale=float16``: integers from -15 to 15 by sign and magnitude, zeros with
  a sign too, and the scale abs(d).
"""

from __future__ import annotations

import math
import os
import sys
from functools import cache
from typing import Any

import numpy as np

from mxnum import errors, formats
from mxnum.array import MXArray
from mxnum.array.arguments import first_index
from mxnum.formats import SCALES
from mxnum.interop._checked import in_host_memory, in_rows, require_rows, without_offsets
from mxnum.memory.dtypes import Array, as_array
from mxnum.memory.tensors import in_kind
from mxnum.output.files import as_path, reading

#: The types of GGUF that are read and written. Each has the format that it is read as, and the
#: elements and bytes of a block.
KINDS = {
    "MXFP4": ("mxfp4_e2m1", 32, 17),
    "NVFP4": ("e2m1:block=16,scale=e4m3", 64, 36),
    "Q8_0": ("int8:block=32,scale=float16", 32, 34),
    "Q4_0": ("e1m3:bias=-2,block=32,scale=float16", 32, 18),
}
_SIGN, _E4M3 = np.uint16(0x8000), SCALES["e4m3"]


def from_gguf_blocks(blocks: Any, shape: tuple[int, ...] | None = None, *, kind: str = "MXFP4") -> MXArray:
    """Return an MX array from bytes as GGUF stores them, of shape (..., bytes of a block).

    `shape` is the shape of the elements. `kind` is GGUF's name of their type, one of `KINDS`.
    """
    name, elements, size = KINDS[errors.choose("kind", kind, tuple(KINDS))]
    array = as_array("blocks", blocks, anywhere=False)
    errors.require_dtype("blocks", array.dtype, np.dtype(np.uint8))
    fits = array.ndim >= 1 and array.shape[-1] % size == 0
    errors.require(fits, "blocks", f"of {size} bytes a block along the last axis", array.shape)
    if shape is None:
        shape = (*array.shape[:-1], array.shape[-1] // size * elements)
    shape = tuple(errors.integer("shape", length, 0, 1 << 62) for length in shape)
    whole = bool(shape) and shape[-1] % elements == 0 and math.prod(shape) // elements * size == array.size
    errors.require(whole, "shape", f"of {array.size // size} blocks of {elements} along the last axis", shape)
    rows = np.ascontiguousarray(array).reshape(-1, size)
    codes, scales = _READERS[kind](rows)
    of_scales = (*shape[:-1], shape[-1] // formats.get(name).block)
    return MXArray.from_parts(in_kind(codes.reshape(shape), blocks), scales.reshape(of_scales), name)


def _nibbles(bytes_: Array) -> Array:
    return np.concatenate([bytes_ & 0x0F, bytes_ >> 4], axis=1)


def _halves(codes: Array) -> Array:
    half = codes.shape[1] // 2
    return np.asarray(codes[:, :half] | codes[:, half:] << 4)


def _read_mxfp4(rows: Array) -> tuple[Array, Array]:
    return _nibbles(rows[:, 1:]), rows[:, 0].copy()


def _read_nvfp4(rows: Array) -> tuple[Array, Array]:
    scales = np.ascontiguousarray(rows[:, :4])
    wrong = scales >= _E4M3.nan_code
    if wrong.any():
        raise errors.outside(
            "blocks", first_index(wrong), f"an array of scales below {_E4M3.nan_code}", int(scales[wrong][0])
        )
    return _nibbles(rows[:, 4:].reshape(-1, 8)), scales


def _read_q8_0(rows: Array) -> tuple[Array, Array]:
    d = _numbers_of(rows)
    with np.errstate(all="ignore"):
        scales = d * np.float16(64)
    wrong = (d.view(np.uint16) & _SIGN != 0) | (np.isinf(scales) & ~np.isinf(d))
    if wrong.any():
        raise errors.outside(
            "blocks", first_index(wrong), "an array of blocks whose d is positive and below 1024", float(d[wrong][0])
        )
    return rows[:, 2:].copy(), scales


def _read_q4_0(rows: Array) -> tuple[Array, Array]:
    words = _numbers_of(rows).view(np.uint16)
    n = _nibbles(rows[:, 2:]).astype(np.int8) - np.int8(8)
    negative = (n < 0) ^ (words & _SIGN != 0)[:, None]
    return np.abs(n).view(np.uint8) | (negative.astype(np.uint8) << 4), (words & ~_SIGN).view(np.float16)


_READERS = {"MXFP4": _read_mxfp4, "NVFP4": _read_nvfp4, "Q8_0": _read_q8_0, "Q4_0": _read_q4_0}


def _numbers_of(rows: Array) -> Array:
    """Return the float16 numbers that blocks begin with."""
    return np.ascontiguousarray(rows[:, :2]).view("<f2")[:, 0].astype(np.float16)


def to_gguf_blocks(q: MXArray, *, kind: str = "MXFP4") -> Array:
    """Return the bytes of an array as GGUF stores them, of shape (..., bytes of a block).

    The array must have whole blocks along the last axis. For Q8_0 and Q4_0 its elements must be
    integers (``int8``, ``int4``, or elements from `from_gguf_blocks`), and its scales float16: a
    scale times the step between elements must be a float16 number. If d and -d give the same
    values, d is written. Integers have no -0, so it is written as 0. But if all zeros of a block
    are -0, Q4_0 gets -d.
    """
    errors.choose("kind", kind, tuple(KINDS))
    if kind == "MXFP4":
        q = in_rows("q", q, "e2m1", "e8m0", 32)
        codes = np.ascontiguousarray(q.codes).reshape(-1, 32)
        parts = np.ascontiguousarray(q.scales).reshape(-1, 1), _halves(codes)
    elif kind == "NVFP4":
        q = in_rows("q", q, "e2m1", "e4m3", 16)
        errors.require(q.tensor_scale is None, "q", "an array without a tensor scale", q.format.name)
        errors.require(q.shape[-1] % 64 == 0, "q", "in rows of a multiple of 64", q.shape)
        scales = np.ascontiguousarray(q.scales).reshape(-1, 4)
        wrong = scales == _E4M3.nan_code
        if wrong.any():
            raise errors.outside("q", first_index(wrong), "free of scales that are NaN", "NaN")
        parts = scales, _halves(np.ascontiguousarray(q.codes).reshape(-1, 16)).reshape(-1, 32)
    else:
        q = in_host_memory("q", without_offsets("q", q))
        n, is_negative, d = _integers(q)
        parts = _written_q8_0(n, d) if kind == "Q8_0" else _written_q4_0(n, is_negative, d)
    _, elements, size = KINDS[kind]
    return np.concatenate(parts, axis=1).reshape(*q.shape[:-1], q.shape[-1] // elements * size)


def _integers(q: MXArray) -> tuple[Array, Array, Array]:
    """Return the integers that elements mean, the signs of elements, and each scale times the step.

    A sign is True for a minus. The step is the distance between neighbouring elements.
    """
    element, scale = q.format.element, q.format.scale
    integers = element.exponent_bits == 1 and element.specials == "none" and scale.name == "float16"
    errors.require(integers and not q.format.tensor_scale, "q", "of integers and float16 scales", q.format.name)
    require_rows("q", q, 32)
    step = element.value(1)
    values = np.array(element.values())
    codes = np.ascontiguousarray(q.codes).reshape(-1, 32)
    scales = np.ascontiguousarray(q.scales).reshape(-1)
    wide = scales.astype(np.float64) * step
    with np.errstate(over="ignore"):
        d = wide.astype(np.float16)
    inexact = (d != wide) & ~np.isnan(wide)
    if inexact.any():
        accepted = f"an array whose scales are float16 numbers times {step:g}"
        raise errors.outside("q", first_index(inexact), accepted, float(scales[inexact][0]))
    return (values / step).astype(np.int16)[codes], np.signbit(values)[codes], d


def _bytes_of(d: Array) -> Array:
    return d.astype("<f2").view(np.uint8).reshape(-1, 2)


def _written_q8_0(n: Array, d: Array) -> tuple[Array, Array]:
    return _bytes_of(d), n.astype(np.int8).view(np.uint8)


def _written_q4_0(n: Array, is_negative: Array, d: Array) -> tuple[Array, Array]:
    zeros = n == 0
    turned = (n == 8).any(1) | (zeros.any(1) & (is_negative | ~zeros).all(1) & (n != -8).all(1))
    n = np.where(turned[:, None], -n, n)
    wrong = ((n < -8) | (n > 7)).any(1)
    if wrong.any():
        raise errors.outside("q", first_index(wrong), "an array whose blocks lie in -8..7 or in -7..8", n[wrong][0])
    words = d.view(np.uint16) | np.where(turned, _SIGN, np.uint16(0))
    return _bytes_of(words.view(np.float16)), _halves((n + 8).astype(np.uint8))


def names(path: str | os.PathLike[str]) -> list[str]:
    """Return the names of the tensors of a GGUF file that `load_tensor` reads."""
    return _readable(path, _tensors(path)[0])


def load_tensor(path: str | os.PathLike[str], name: str) -> MXArray:
    """Read the tensor `name` of a GGUF file (extra ``gguf``), of a type in `KINDS`.

    Axes are in numpy order, inputs last. Only the bytes of this tensor are read, from a mapped
    file. llama.cpp stores the tensor scale of an NVFP4 weight, or one for each expert, beside it,
    under ``scale`` in place of ``weight``: then the format is ``nvfp4``.
    """
    tensors, is_big = _tensors(path)
    tensor = tensors[errors.choose("name", name, _readable(path, tensors))]
    kind, beside = tensor.tensor_type.name, f"{name.removesuffix('weight')}scale"
    with reading(path, "must be a whole GGUF file"):
        shape = tuple(int(length) for length in reversed(tensor.shape))
        blocks = np.asarray(tensor.data).view(np.uint8).reshape(*shape[:-1], -1)
        if is_big and kind in ("Q8_0", "Q4_0"):  # the two bytes of d, which come first, are swapped
            rows = blocks.reshape(-1, KINDS[kind][2])
            blocks = np.concatenate([rows[:, 1::-1], rows[:, 2:]], axis=1).reshape(blocks.shape)
        q = from_gguf_blocks(blocks, shape, kind=kind)
    if not name.endswith(".weight") or beside not in tensors:
        return q
    with reading(path, f"must hold {beside!r} as the float32 tensor scale of NVFP4"):
        errors.require(kind == "NVFP4", "kind", "NVFP4", kind)
        number = np.asarray(tensors[beside].data)
        errors.require_dtype(beside, number.dtype.newbyteorder("="), np.dtype(np.float32))
        number = number.astype(np.float32).reshape(() if number.size == 1 else (-1, *(1,) * (q.ndim - 1)))
        return MXArray.from_parts(q.codes, q.scales, "nvfp4", tensor_scale=number)


def _readable(path: str | os.PathLike[str], tensors: dict[str, Any]) -> list[str]:
    """Return the names of the tensors of a type in `KINDS`; raise ValueError if there are none."""
    found = [name for name, tensor in tensors.items() if tensor.tensor_type.name in KINDS]
    if not found:
        raise ValueError(f"File {str(path)!r} must hold tensors of {errors.joined(KINDS)}; it has none.")
    return found


def _tensors(path: str | os.PathLike[str]) -> tuple[dict[str, Any], bool]:
    """Return the reader's record of each tensor, and True if numbers are in big-endian order."""
    gguf, path = errors.package("gguf", "gguf"), as_path(path)
    # The reader adds numpy integers, which would overflow silently in a damaged file.
    with reading(path, "must be a whole GGUF file"), np.errstate(over="raise"):
        reader = _reader(gguf)(path)
    is_other = reader.byte_order == "S"
    return {tensor.name: tensor for tensor in reader.tensors}, is_other == (sys.byteorder == "little")


@cache
def _reader(gguf: Any) -> Any:
    """Return a subclass of the package's reader that raises ValueError beyond the end of the file.

    The package's own reader takes missing bytes for empty arrays.
    """

    class Reader(gguf.GGUFReader):  # type: ignore[misc]
        def _get(self, offset: int, dtype: Any, count: Any = 1, *rest: Any, **options: Any) -> Any:
            if offset + int(count) * np.dtype(dtype).itemsize > len(self.data):
                raise ValueError("it is truncated, or announces more than it holds")
            return super()._get(offset, dtype, count, *rest, **options)

    return Reader
