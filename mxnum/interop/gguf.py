"""Read and write blocks of GGUF files (llama.cpp): MXFP4, NVFP4, and groups of integers.

A block begins with its scale. In a block of 32 elements of four bits, byte i holds element i in the
low bits and element i + 16 in the high bits. In gpt-oss checkpoints, byte i holds elements 2i and
2i + 1 (`mxnum.interop.gpt_oss`). A reader that confuses the orders of GGUF and gpt-oss silently
permutes the values.

- MXFP4: a block is an E8M0 code and 16 bytes of elements.
- NVFP4: a block has four E4M3 codes, then 32 bytes of elements: 8 bytes (16 elements) for each
  code. NVFP4 is read as ``e2m1:block=16,scale=e4m3``. The tensor scale is a separate tensor
  (`load_tensor`).
- Q8_0: a block has a float16 number d and 32 integers n in two's complement. The values of the
  block are d * n. Q8_0 is read as ``int8:block=32,scale=float16``. An int8 element with the integer
  n has the value n / 64, so the scale is 64 * d.
- Q4_0: a block has a float16 number d *with a sign*, and 32 integers n. The file stores each
  integer n as n + 8. Scales of mxnum have no sign, so a negative d turns each integer n into -n.
  The integer n = -8 would become 8, which does not fit into an integer of four bits. Therefore Q4_0
  is read as ``e1m3:bias=-2,block=32,scale=float16``, with the scale abs(d). Elements of
  e1m3:bias=-2 are integers from -15 to 15 in sign and magnitude, with +0 and -0.
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

#: For each GGUF type that this module reads and writes: the format of the MX array, the number of
#: elements in a block, and the number of bytes in a block.
KINDS = {
    "MXFP4": ("mxfp4_e2m1", 32, 17),
    "NVFP4": ("e2m1:block=16,scale=e4m3", 64, 36),
    "Q8_0": ("int8:block=32,scale=float16", 32, 34),
    "Q4_0": ("e1m3:bias=-2,block=32,scale=float16", 32, 18),
}
_SIGN, _E4M3 = np.uint16(0x8000), SCALES["e4m3"]


def from_gguf_blocks(blocks: Any, shape: tuple[int, ...] | None = None, *, kind: str = "MXFP4") -> MXArray:
    """Return an MX array from GGUF blocks: bytes in an array of shape (..., bytes of a row).

    `shape` is the shape of the MX array; by default each row of blocks becomes a row of elements.
    `kind` is GGUF's name for the type of the blocks, one of `KINDS`.
    """
    name, elements, size = KINDS[errors.choose("kind", kind, tuple(KINDS))]
    array = as_array("blocks", blocks, anywhere=False)
    errors.require_dtype("blocks", array.dtype, np.dtype(np.uint8))
    fits = array.ndim >= 1 and array.shape[-1] % size == 0
    errors.require(fits, "blocks", f"of whole blocks of {size} bytes along the last axis", array.shape)
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
            "blocks",
            first_index(wrong),
            f"an array whose scale codes are below {_E4M3.nan_code}",
            int(scales[wrong][0]),
        )
    return _nibbles(rows[:, 4:].reshape(-1, 8)), scales


def _read_q8_0(rows: Array) -> tuple[Array, Array]:
    d = _numbers_of(rows)
    with np.errstate(all="ignore"):
        scales = d * np.float16(64)
    wrong = (d.view(np.uint16) & _SIGN != 0) | (np.isinf(scales) & ~np.isinf(d))
    if wrong.any():
        raise errors.outside(
            "blocks",
            first_index(wrong),
            "an array of blocks whose scale d is below 1024 and has no minus sign",
            float(d[wrong][0]),
        )
    return rows[:, 2:].copy(), scales


def _read_q4_0(rows: Array) -> tuple[Array, Array]:
    words = _numbers_of(rows).view(np.uint16)
    n = _nibbles(rows[:, 2:]).astype(np.int8) - np.int8(8)
    negative = (n < 0) ^ (words & _SIGN != 0)[:, None]
    return np.abs(n).view(np.uint8) | (negative.astype(np.uint8) << 4), (words & ~_SIGN).view(np.float16)


_READERS = {"MXFP4": _read_mxfp4, "NVFP4": _read_nvfp4, "Q8_0": _read_q8_0, "Q4_0": _read_q4_0}


def _numbers_of(rows: Array) -> Array:
    """Return the float16 number at the beginning of each block."""
    return np.ascontiguousarray(rows[:, :2]).view("<f2")[:, 0].astype(np.float16)


def to_gguf_blocks(q: MXArray, *, kind: str = "MXFP4") -> Array:
    """Return an MX array as GGUF blocks: bytes in an array of shape (..., bytes of a row).

    The array must have whole blocks along the last axis. For Q8_0 and Q4_0 the elements must be
    integers (``int8``, ``int4`` or ``e1m3:bias=-2``), and the scales must be float16. A block
    stores a number d: the scale times the spacing of the element format's values. This number must
    be exact in float16. Integers have no -0, so Q8_0 stores -0 as 0. Q4_0 negates d and all
    integers of a block in two cases. In the first case, an integer is 8. In the second case, the
    block has zeros, all of them are -0, and no integer is -8.

    Blocks of NVFP4 hold no tensor scale. To store an array of ``nvfp4``, pass
    ``MXArray.from_parts(q.codes, q.scales, "e2m1:block=16,scale=e4m3")``. Write the tensor scale as
    a separate float32 tensor. `load_tensor` describes the name of this tensor.
    """
    errors.choose("kind", kind, tuple(KINDS))
    if kind == "MXFP4":
        q = in_rows("q", q, "e2m1", "e8m0", 32)
        codes = np.ascontiguousarray(q.codes).reshape(-1, 32)
        parts = np.ascontiguousarray(q.scales).reshape(-1, 1), _halves(codes)
    elif kind == "NVFP4":
        q = in_rows("q", q, "e2m1", "e4m3", 16)
        errors.require(q.tensor_scale is None, "q", "an array without a tensor scale", q.format.name)
        errors.require(q.shape[-1] % 64 == 0, "q", "a multiple of 64 elements long along the last axis", q.shape)
        scales = np.ascontiguousarray(q.scales).reshape(-1, 4)
        wrong = scales == _E4M3.nan_code
        if wrong.any():
            raise errors.outside("q", first_index(wrong), "an array without NaN scales", "NaN")
        parts = scales, _halves(np.ascontiguousarray(q.codes).reshape(-1, 16)).reshape(-1, 32)
    else:
        q = in_host_memory("q", without_offsets("q", q))
        n, is_negative, d = _integers(q)
        parts = _written_q8_0(n, d) if kind == "Q8_0" else _written_q4_0(n, is_negative, d)
    _, elements, size = KINDS[kind]
    return np.concatenate(parts, axis=1).reshape(*q.shape[:-1], q.shape[-1] // elements * size)


def _integers(q: MXArray) -> tuple[Array, Array, Array]:
    """Return elements / step as integers, the elements' signs, and scales * step as float16.

    The step is the spacing of the format's values. A sign is True for a negative element.
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
        accepted = f"an array whose scales times {step:g} are exact in float16"
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
        raise errors.outside(
            "q",
            first_index(wrong),
            "an array in which the integers of each block all lie in -8..7, or all in -7..8",
            n[wrong][0],
        )
    words = d.view(np.uint16) | np.where(turned, _SIGN, np.uint16(0))
    return _bytes_of(words.view(np.float16)), _halves((n + 8).astype(np.uint8))


def names(path: str | os.PathLike[str]) -> list[str]:
    """Return the names of the tensors of a GGUF file that `load_tensor` reads."""
    return _readable(path, _tensors(path)[0])


def load_tensor(path: str | os.PathLike[str], name: str) -> MXArray:
    """Read the tensor `name`, whose type must be in `KINDS`, of a GGUF file (extra ``gguf``).

    Axes are in numpy order, with the input features last. The file is mapped into memory, and only
    the bytes of this tensor are read. llama.cpp stores the tensor scale of an NVFP4 weight in a
    separate tensor, whose name has ``scale`` instead of ``weight``. For the weights of several
    experts, this tensor holds one tensor scale for each expert. If the file stores a tensor scale
    for the tensor, the result has the format ``nvfp4``.
    """
    tensors, is_big = _tensors(path)
    readable = _readable(path, tensors)
    if name in tensors and name not in readable:
        found = tensors[name].tensor_type.name
        raise ValueError(f"File {str(path)!r} must hold {name!r} as {errors.joined(KINDS)}, not as {found}.")
    tensor = tensors[errors.choose("name", name, readable)]
    kind, beside = tensor.tensor_type.name, f"{name.removesuffix('weight')}scale"
    with reading(path, "must be a whole GGUF file"):
        shape = tuple(int(length) for length in reversed(tensor.shape))
        blocks = np.asarray(tensor.data).view(np.uint8).reshape(*shape[:-1], -1)
        if is_big and kind in ("Q8_0", "Q4_0"):  # swap the two bytes of d
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
    """Return the names of tensors whose type is in `KINDS`; raise ValueError if there are none."""
    found = [name for name, tensor in tensors.items() if tensor.tensor_type.name in KINDS]
    if not found:
        raise ValueError(f"File {str(path)!r} must hold tensors of type {errors.joined(KINDS)}, but has none.")
    return found


def _tensors(path: str | os.PathLike[str]) -> tuple[dict[str, Any], bool]:
    """Return the gguf package's record of each tensor, and True if the file is big-endian."""
    gguf, path = errors.package("gguf", "gguf"), as_path(path)
    # The gguf package adds numpy integers. Without `errstate`, their sums overflow silently if the
    # file is damaged.
    with reading(path, "must be a whole GGUF file"), np.errstate(over="raise"):
        reader = _reader(gguf)(path)
    is_other = reader.byte_order == "S"
    return {tensor.name: tensor for tensor in reader.tensors}, is_other == (sys.byteorder == "little")


@cache
def _reader(gguf: Any) -> Any:
    """Return a subclass of the gguf package's reader that raises ValueError for missing bytes.

    Beyond the end of the file, the gguf package's own reader silently returns empty arrays.
    """

    class Reader(gguf.GGUFReader):  # type: ignore[misc]
        def _get(self, offset: int, dtype: Any, count: Any = 1, *rest: Any, **options: Any) -> Any:
            if offset + int(count) * np.dtype(dtype).itemsize > len(self.data):
                raise ValueError("it is truncated, or its header announces more data than the file holds")
            return super()._get(offset, dtype, count, *rest, **options)

    return Reader
