"""Read and write safetensors files with MX arrays and any other tensors.

A file has a simple structure: the length of the header, the header in JSON, and the bytes of the
tensors. So this module reads and writes files without the safetensors package. The MX array
``name`` is stored as ``name.elements`` (F8_E4M3, F8_E5M2, I8, or packed bytes), ``name.scales``
(F8_E8M0, F8_E4M3, floats) and, if the array has them, ``name.offsets`` (F16) or
``name.tensor_scale`` (F32). Other software reads the parts of an MX array as ordinary tensors. The
metadata entry ``mxnum.name`` describes the format and the layout.
"""

from __future__ import annotations

import json
import math
import mmap
import os
import sys
from collections.abc import Mapping
from dataclasses import asdict
from functools import cache
from typing import Any

import numpy as np

from mxnum import errors
from mxnum.array import MXArray
from mxnum.formats import ElementFormat, MXFormat
from mxnum.interop._checked import in_host_memory, typed_scales
from mxnum.memory.dtypes import Array, as_array, known_name
from mxnum.output.files import as_path, written_whole

#: The names of safetensors types, each with the name of its dtype in numpy or ml_dtypes.
DTYPES = {
    "F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16",
    "I64": "int64", "I32": "int32", "I16": "int16", "I8": "int8",
    "U64": "uint64", "U32": "uint32", "U16": "uint16", "U8": "uint8", "BOOL": "bool",
    "F8_E4M3": "float8_e4m3fn", "F8_E5M2": "float8_e5m2", "F8_E8M0": "float8_e8m0fnu",
}  # fmt: skip
_NAMES = {name: code for code, name in DTYPES.items()}
#: The names of all other safetensors types, each with its number of bits per element. Tensors of
#: the types in `PACKED` are read as bytes.
PACKED = {"F4": 4, "F6_E2M3": 6, "F6_E3M2": 6, "F8_E4M3FNUZ": 8, "F8_E5M2FNUZ": 8, "C64": 64}
_LONGEST_HEADER = 100_000_000
_METADATA = "__metadata__"
#: The parts of an MX array that are stored as tensors.
_PARTS = "elements", "scales", "offsets", "tensor_scale"
#: The metadata key of an MX array is this prefix, followed by the array's name.
_NOTE = "mxnum."


def save(path: str | os.PathLike[str], tensors: Mapping[str, Any], metadata: Mapping[str, str] | None = None) -> None:
    """Write MX arrays and ordinary arrays to a file, under the names in the mapping `tensors`.

    If writing fails, no new file is left, and an existing file is unchanged. Arrays may be numpy
    arrays or torch tensors on the CPU, in any byte order. Files are little-endian.
    """
    errors.require_type(isinstance(tensors, Mapping), "tensors", "a mapping of names to arrays", type(tensors).__name__)
    errors.require_type(metadata is None or isinstance(metadata, Mapping), "metadata", "a mapping of texts", metadata)
    stored: dict[str, Array] = {}
    notes: dict[str, str] = {}
    ours = [name for name, value in tensors.items() if isinstance(value, MXArray)]
    taken = {f"{name}.{part}": "a part of an MX array" for name in ours for part in _PARTS}
    taken[_METADATA] = "the file's metadata"
    for name, value in tensors.items():
        if name in taken:
            raise ValueError(f"Argument 'tensors' must not use the name {name!r}, which belongs to {taken[name]}.")
        parts: dict[str, Any] = {_checked_text("tensors", name): value}
        if isinstance(value, MXArray):
            of_array, notes[f"{_NOTE}{name}"] = _parts(value)
            parts = {f"{name}.{part}": array for part, array in of_array.items()}
        for part, array in parts.items():
            stored[part] = _stored(part, array)
    for key, text in (metadata or {}).items():
        is_ours = _checked_text("metadata", key).startswith(_NOTE)
        if is_ours and notes.get(key) != text:
            raise ValueError(f"Argument 'metadata' must not have the key {key!r}, which describes an MX array.")
        notes[key] = _checked_text("metadata", text)
    with written_whole(path) as partial, partial.open("wb") as file:
        file.write(_header(stored, notes))
        for array in stored.values():
            file.write(array.tobytes())


def _stored(name: str, value: Any) -> Array:
    """Return an array in little-endian order; raise TypeError if safetensors lacks its dtype."""
    array: Array = as_array("tensors", value, anywhere=False)
    if array.dtype.name not in _NAMES:
        raise TypeError(f"Argument 'tensors' must hold {errors.joined(_NAMES)}, not {array.dtype.name} ({name!r}).")
    if array.dtype.isnative and sys.byteorder == "little":
        return array
    little: Array = array.astype(array.dtype.newbyteorder("<"))
    return little


def _header(stored: Mapping[str, Array], notes: Mapping[str, str]) -> bytes:
    header: dict[str, Any] = {_METADATA: notes} if notes else {}
    start = 0
    for name, array in stored.items():
        kind, end = _NAMES[array.dtype.name], start + array.nbytes
        header[name] = {"dtype": kind, "shape": array.shape, "data_offsets": [start, end]}
        start = end
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    accepted = f"described by a header of at most {_LONGEST_HEADER} bytes"
    errors.require(len(text) <= _LONGEST_HEADER, "tensors", accepted, len(text))
    return len(text).to_bytes(8, "little") + text


def _checked_text(argument: str, value: Any) -> str:
    """Return a name or text; raise an error if other software could not read it."""
    errors.require_type(isinstance(value, str), argument, "a mapping whose names and texts are strings", value)
    text: str = value
    errors.require(
        not any("\ud800" <= c <= "\udfff" for c in text),
        argument,
        "a mapping whose names and texts are valid Unicode",
        text,
    )
    return text


class File:
    """An open safetensors file, with its metadata and its memory-mapped tensors.

    Files that the safetensors library rejects raise ValueError.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = as_path(path)
        size = self._path.stat().st_size
        with self._path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little") if size >= 8 else size
            if size < 8 + length or length > _LONGEST_HEADER:
                raise self._damaged("its header is cut off, or it is another kind of file")
            header = self._parsed(file.read(length))
            self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        self._start = 8 + length
        notes = header.pop(_METADATA, None)
        notes = {} if notes is None else notes
        if not (isinstance(notes, dict) and all(isinstance(text, str) for text in notes.values())):
            raise self._damaged("its metadata are not strings")
        self.metadata: dict[str, str] = notes
        self._entries: dict[str, Any] = header
        for name, entry in header.items():
            if not _is_entry(entry):
                raise self._damaged(f"the entry of {name!r} makes no sense")
            if self._start + entry["data_offsets"][1] > size:
                raise self._damaged(f"it ends before the end of the data of {name!r}")
            begin, end = entry["data_offsets"]
            if math.prod(entry["shape"]) * _bits(entry["dtype"]) != 8 * (end - begin):
                raise self._damaged(f"the shape of {name!r} does not fit its data")
        at = 0
        for name, entry in sorted(header.items(), key=lambda item: tuple(item[1]["data_offsets"])):
            begin, end = entry["data_offsets"]
            if begin != at:
                raise self._damaged(f"the data of {name!r} begin at {begin}, not at {at}, where the preceding data end")
            at = end
        if self._start + at != size:
            raise self._damaged(f"{size - self._start - at} bytes at the end of the file belong to no tensor")

    def _parsed(self, text: bytes) -> dict[str, Any]:
        try:
            header = json.loads(
                text.decode(), object_pairs_hook=_without_repetition, parse_int=_integer, parse_constant=_no_number
            )
            # encode() raises an error if an escape in the header is half of a surrogate pair.
            json.dumps(header, ensure_ascii=False).encode()
        except RecursionError:
            raise self._damaged("its header is nested too deeply") from None
        except ValueError:
            raise self._damaged("its header is not JSON, or repeats a name") from None
        if not isinstance(header, dict):
            raise self._damaged("its header is not a JSON object")
        return header

    def names(self) -> list[str]:
        """Return the names of all tensors in the file."""
        return list(self._entries)

    def mx_names(self) -> list[str]:
        """Return the names of the MX arrays that this module saved."""
        return [key.removeprefix(_NOTE) for key in self.metadata if key.startswith(_NOTE)]

    def plain_names(self) -> list[str]:
        """Return the names of the tensors that are not parts of MX arrays."""
        parts = {f"{name}.{part}" for name in self.mx_names() for part in _PARTS}
        return [name for name in self._entries if name not in parts]

    def dtype(self, name: str) -> str:
        """Return the safetensors name of a tensor's type."""
        return str(self._entry(name)["dtype"])

    def tensor(self, name: str) -> Array:
        """Return a tensor as a read-only array on the mapped file, or as bytes for types in `PACKED`."""
        entry = self._entry(name)
        begin, end = entry["data_offsets"]
        raw = np.frombuffer(self._map, np.uint8, end - begin, self._start + begin)
        kind, shape = entry["dtype"], entry["shape"]
        if kind not in DTYPES:
            return raw
        try:
            return raw.view(_dtype(kind)).reshape(shape)
        # numpy raises an error if a shape has too many axes, or both a huge axis and an axis of
        # length 0.
        except (ValueError, OverflowError) as problem:
            raise self._damaged(f"numpy cannot make an array with the shape of {name!r} ({problem})") from None

    def mx(self, name: str) -> MXArray:
        """Return the MX array that was saved under the name `name`."""
        key = f"{_NOTE}{errors.choose('name', name, self.mx_names())}"
        try:
            note = json.loads(self.metadata[key])
            element = ElementFormat(**note["element"])
            fmt = MXFormat(element, note["scale"], note["block"], note["name"], note.get("tensor_scale"))
            shape, blocks = tuple(note["shape"]), tuple(note["blocks"])
            read = self._bytes if fmt.scale.bits == 8 else self.tensor
            codes, scales = self._bytes(f"{name}.elements"), read(f"{name}.scales")
            rest: dict[str, Any] = {"blocks": blocks}
            for part in ("offsets", "tensor_scale"):
                rest[part] = self.tensor(f"{name}.{part}") if f"{name}.{part}" in self._entries else None
            if element.bits == 8:
                return MXArray.from_parts(codes.reshape(shape), scales, fmt, **rest)
            array = MXArray.from_packed(codes, scales, fmt, length=shape[-1], **rest)
            errors.require(array.shape == shape, "shape", f"{array.shape}", shape)
        except (LookupError, TypeError, ValueError, ArithmeticError, AttributeError, RecursionError) as problem:
            raise self._damaged(f"the description of {name!r} makes no sense ({problem})") from None
        return array

    def _bytes(self, name: str) -> Array:
        """Return a tensor of codes as bytes; raise ValueError unless its type has one byte."""
        array = self.tensor(name)
        errors.require(array.itemsize == 1, name, "stored in bytes", self.dtype(name))
        return array.view(np.uint8)

    def _entry(self, name: str) -> dict[str, Any]:
        return dict(self._entries[errors.choose("name", name, list(self._entries))])

    def _damaged(self, why: str) -> ValueError:
        return ValueError(f"File {str(self._path)!r} must be a whole safetensors file: {why}.")


def _without_repetition(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    table = dict(pairs)
    if len(table) < len(pairs):
        raise ValueError
    return table


def _integer(text: str) -> int | float:
    """Parse an integer in the JSON header. The safetensors library also reads "-0" as a float."""
    return -0.0 if text == "-0" else int(text)


def _no_number(text: str) -> None:
    raise ValueError(f"{text} is not JSON")


def _is_entry(entry: Any) -> bool:
    """Return True if the header's entry for a tensor has the required form."""
    if not isinstance(entry, dict) or entry.get("dtype") not in (*DTYPES, *PACKED):
        return False
    shape, offsets = entry.get("shape"), entry.get("data_offsets")
    if not isinstance(shape, list) or not isinstance(offsets, list) or len(offsets) != 2:
        return False
    return all(type(number) is int and number >= 0 for number in (*shape, *offsets)) and offsets[0] <= offsets[1]


def _bits(kind: str) -> int:
    return PACKED.get(kind) or 8 * _dtype(kind).itemsize


@cache
def _dtype(kind: str) -> np.dtype[Any]:
    import ml_dtypes

    return np.dtype(getattr(ml_dtypes, DTYPES[kind], None) or DTYPES[kind]).newbyteorder("<")


def load(path: str | os.PathLike[str], *, arrays: str = "numpy") -> dict[str, Any]:
    """Read a file, and return its MX arrays and other tensors by name.

    Arrays are memory-mapped. With ``arrays="torch"``, all tensors outside MX arrays are copied to
    torch tensors, which `load_state_dict` accepts.

    >>> import numpy as np, mxnum as mx, tempfile, os
    >>> from mxnum.interop import safetensors
    >>> path = os.path.join(tempfile.mkdtemp(), "x.safetensors")
    >>> safetensors.save(path, {"w": mx.quantize(np.ones((4, 64)), "mxfp4_e2m1"), "b": np.zeros(4, np.float32)})
    >>> safetensors.load(path)["w"]
    <MXArray mxfp4_e2m1 (4, 64), blocks (1, 32): 136 bytes, held packed>
    """
    errors.choose("arrays", arrays, ("numpy", "torch"))
    file = File(path)
    names = file.mx_names()
    if twice := set(names) & set(file.names()):
        raise file._damaged(f"{min(twice)!r} is the name of both a tensor and an MX array")
    plain = {n: file.tensor(n) for n in file.plain_names()}
    return {n: file.mx(n) for n in names} | (plain if arrays == "numpy" else {n: _of_torch(plain[n]) for n in plain})


def _of_torch(array: Array) -> Any:
    """Return a copy of an array, which may have an ml_dtypes type, as a torch tensor."""
    torch = errors.package("torch", "torch")
    raw = torch.from_numpy(np.array(array).reshape(-1).view(np.uint8))
    return raw.view(getattr(torch, array.dtype.name)).view(array.shape)


def _parts(q: MXArray) -> tuple[dict[str, Array], str]:
    q = in_host_memory("tensors", q)
    if q.ndim == 0:
        raise ValueError("Argument 'tensors' must hold MX arrays of at least one axis, not arrays without axes.")
    e = q.format.element
    note = {
        "name": q.format.name, "block": q.format.block, "scale": q.format.scale.name, "shape": q.shape,
        "blocks": q.blocks, "tensor_scale": q.format.tensor_scale, "element": asdict(e),
    }  # fmt: skip
    typed = known_name(e) in ("e4m3", "e5m2", "int8")
    elements = q.elements if typed else q.codes if e.bits == 8 else q.pack()
    parts = {"elements": elements, "scales": typed_scales(q), "offsets": q.offsets, "tensor_scale": q.tensor_scale}
    return {part: array for part, array in parts.items() if array is not None}, json.dumps(note)
