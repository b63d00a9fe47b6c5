"""safetensors files: MX tensors with codes, scales and a description, beside any other tensors; and files of others.

A file is a length, a JSON header and the bytes of the tensors, so no package is needed to read or write one. The MX
tensor ``name`` is stored as ``name.elements`` (F8_E4M3, F8_E5M2, or packed bytes), ``name.scales`` (F8_E8M0) and
perhaps ``name.offsets`` (F16), which other readers see as ordinary tensors; the metadata entry ``mxnum.name`` says the
rest.
"""

from __future__ import annotations

import json
import mmap
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from mxnum import errors
from mxnum.array import MXArray
from mxnum.dtypes import Array
from mxnum.files import written_whole
from mxnum.formats import ElementFormat, MXFormat

#: numpy or ml_dtypes names of the types a file may hold; F4 and F6 are packed, and read as bytes.
DTYPES = {
    "F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16",
    "I64": "int64", "I32": "int32", "I16": "int16", "I8": "int8",
    "U64": "uint64", "U32": "uint32", "U16": "uint16", "U8": "uint8", "BOOL": "bool",
    "F8_E4M3": "float8_e4m3fn", "F8_E5M2": "float8_e5m2", "F8_E8M0": "float8_e8m0fnu",
}  # fmt: skip
_NAMES = {name: code for code, name in DTYPES.items()}
_LONGEST_HEADER = 100_000_000


def save(path: str | os.PathLike[str], tensors: Mapping[str, Any], metadata: Mapping[str, str] | None = None) -> None:
    """Write MX arrays and ordinary arrays under their names; the file appears whole or not at all."""
    stored: dict[str, Array] = {}
    notes = dict(metadata or {})
    for name, value in tensors.items():
        if isinstance(value, MXArray):
            parts, note = _parts(value)
            stored |= {f"{name}.{part}": array for part, array in parts.items()}
            notes[f"mxnum.{name}"] = note
        else:
            stored[name] = np.asarray(value)
    header: dict[str, Any] = {"__metadata__": notes} if notes else {}
    start = 0
    for name, array in stored.items():
        kind = array.dtype.name
        if kind not in _NAMES:
            raise TypeError(f"Argument 'tensors' must hold {errors.joined(_NAMES)}, not {kind} ({name!r}).")
        header[name] = {"dtype": _NAMES[kind], "shape": array.shape, "data_offsets": [start, start + array.nbytes]}
        start += array.nbytes
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with written_whole(path) as partial, partial.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for array in stored.values():
            file.write(np.ascontiguousarray(array).view(np.uint8).tobytes() if array.ndim else array.tobytes())


class File:
    """An open file: names, metadata, and tensors that are mapped when asked for, not loaded."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = Path(path)
        size = self._path.stat().st_size
        with self._path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little") if size >= 8 else size
            if size < 8 + length or length > _LONGEST_HEADER:
                raise self._damaged("its header is cut off")
            try:
                header = json.loads(file.read(length))
            except ValueError:
                raise self._damaged("its header is not JSON") from None
            self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        self._start = 8 + length
        if not isinstance(header, dict):
            raise self._damaged("its header is not a table")
        self.metadata: dict[str, str] = header.pop("__metadata__", {}) or {}
        self._entries: dict[str, Any] = header
        for name, entry in header.items():
            try:
                begin, end = entry["data_offsets"]
                valid = 0 <= begin <= end and all(n >= 0 for n in entry["shape"]) and isinstance(entry["dtype"], str)
            except (KeyError, TypeError, ValueError):
                valid, end = False, 0
            if not valid:
                raise self._damaged(f"the entry of {name!r} makes no sense")
            if self._start + end > size:
                raise self._damaged(f"it ends before the data of {name!r} do")

    def names(self) -> list[str]:
        """The tensors as the file has them."""
        return list(self._entries)

    def mx_names(self) -> list[str]:
        """The MX arrays that were saved by this module."""
        return [key.removeprefix("mxnum.") for key in self.metadata if key.startswith("mxnum.")]

    def dtype(self, name: str) -> str:
        """The type of a tensor, by its safetensors name."""
        return str(self._entry(name)["dtype"])

    def tensor(self, name: str) -> Array:
        """A tensor as a read-only array on the mapped file; packed types (F4, F6) as bytes."""
        entry = self._entry(name)
        begin, end = entry["data_offsets"]
        raw = np.frombuffer(self._map, np.uint8, end - begin, self._start + begin)
        if entry["dtype"] not in DTYPES:
            return raw
        import ml_dtypes

        dtype = np.dtype(getattr(ml_dtypes, DTYPES[entry["dtype"]], None) or DTYPES[entry["dtype"]])
        if int(np.prod(entry["shape"])) * dtype.itemsize != end - begin:
            raise self._damaged(f"the shape of {name!r} does not fit its data")
        return raw.view(dtype).reshape(entry["shape"])

    def mx(self, name: str) -> MXArray:
        """An MX array that was saved under that name."""
        key = f"mxnum.{errors.choose('name', name, self.mx_names())}"
        try:
            note = json.loads(self.metadata[key])
            element = ElementFormat(**note["element"])
            fmt = MXFormat(element, note["scale"], note["block"], note["name"])
            shape, blocks = tuple(note["shape"]), tuple(note["blocks"])
        except (KeyError, TypeError, ValueError) as problem:
            raise self._damaged(f"the description of {name!r} makes no sense ({problem})") from None
        codes = self.tensor(f"{name}.elements").view(np.uint8)
        scales = self.tensor(f"{name}.scales").view(np.uint8)
        offsets = self.tensor(f"{name}.offsets") if f"{name}.offsets" in self._entries else None
        if element.bits == 8:
            return MXArray.from_parts(codes.reshape(shape), scales, fmt, blocks=blocks, offsets=offsets)
        return MXArray.from_packed(codes, scales, fmt, length=shape[-1], blocks=blocks, offsets=offsets)

    def _entry(self, name: str) -> dict[str, Any]:
        return dict(self._entries[errors.choose("name", name, list(self._entries))])

    def _damaged(self, why: str) -> ValueError:
        return ValueError(f"File {str(self._path)!r} must be a whole safetensors file: {why}.")


def load(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Everything in a file: MX arrays under the names they were saved by, other tensors as (mapped) arrays.

    >>> import numpy as np, mxnum as mx, tempfile, os
    >>> from mxnum.interop import safetensors
    >>> path = os.path.join(tempfile.mkdtemp(), "x.safetensors")
    >>> safetensors.save(path, {"w": mx.quantize(np.ones((4, 64)), "mxfp4_e2m1"), "b": np.zeros(4, np.float32)})
    >>> safetensors.load(path)["w"]
    <MXArray mxfp4_e2m1 (4, 64), blocks (1, 32): 136 bytes, held packed>
    """
    file = File(path)
    names = file.mx_names()
    parts = {f"{name}.{part}" for name in names for part in ("elements", "scales", "offsets")}
    return {**{n: file.mx(n) for n in names}, **{n: file.tensor(n) for n in file.names() if n not in parts}}


def _parts(q: MXArray) -> tuple[dict[str, Array], str]:
    import ml_dtypes

    if q.ndim == 0:
        raise ValueError("Argument 'tensors' must hold MX arrays of at least one axis.")
    e = q.format.element
    note = {
        "name": q.format.name, "block": q.format.block, "scale": q.format.scale.name, "shape": q.shape,
        "blocks": q.blocks,
        "element": {
            "name": e.name, "exponent_bits": e.exponent_bits, "mantissa_bits": e.mantissa_bits, "bias": e.bias,
            "specials": e.specials, "integer": e.integer,
        },
    }  # fmt: skip
    typed = e.name in ("e4m3", "e5m2", "int8")
    elements = q.elements if typed else q.codes if e.bits == 8 else q.pack()
    parts = {"elements": elements, "scales": np.ascontiguousarray(q.scales).view(ml_dtypes.float8_e8m0fnu)}
    if q.offsets is not None:
        parts["offsets"] = q.offsets
    return parts, json.dumps(note)
