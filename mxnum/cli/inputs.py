"""Reading the files that commands are given."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from zipfile import BadZipFile, is_zipfile

import numpy as np

from mxnum import errors
from mxnum.array import MXArray
from mxnum.dtypes import Array
from mxnum.formats import FLOATS

SUFFIXES = (".npy", ".npz", ".safetensors")


def read_array(path: Path, tensor: str | None = None, as_dtype: str | None = None) -> Array:
    """The array of floats in a file; a ``.npy`` is mapped, not loaded."""
    found = read(path, tensor)
    if isinstance(found, MXArray):
        raise ValueError(f"File {str(path)!r} must hold an array of floats, not an array that is already quantized.")
    return as_floats(found, str(path), as_dtype)


def read(path: Path, tensor: str | None = None) -> Array | MXArray:
    """Whatever array a file holds: floats, or an `MXArray` that was saved."""
    if path.suffix not in SUFFIXES:
        raise ValueError(f"File {str(path)!r} must end in {errors.joined(SUFFIXES)}.")
    if path.is_dir():
        raise ValueError(f"File {str(path)!r} must be a file, not a directory.")
    try:
        if path.suffix == ".npy":
            array: Array = np.load(path, mmap_mode="r" if path.stat().st_size else None, allow_pickle=False)
            return array
        if path.suffix == ".safetensors":
            return _from_safetensors(path, tensor)
        return _from_archive(path, tensor)
    except (ValueError, EOFError, BadZipFile) as problem:
        raise ValueError(f"File {str(path)!r} cannot be read: {problem}") from None


def _from_archive(path: Path, tensor: str | None) -> Array | MXArray:
    with path.open("rb") as stream:  # a missing file is an OSError
        if not is_zipfile(stream):
            raise ValueError("it is no .npz archive, or it is truncated.")
    with np.load(path, allow_pickle=False) as archive:
        names = list(archive.files)
        if "description" in names:
            return MXArray.load(path)
        return np.asarray(archive[chosen(names, tensor)])


def _from_safetensors(path: Path, tensor: str | None) -> Array:
    """One tensor; the others are not read."""
    package = errors.package("safetensors", "safetensors")
    with path.open("rb"):  # a missing file is an OSError
        pass
    try:
        with package.safe_open(path, framework="numpy") as file:
            return np.asarray(file.get_tensor(chosen(list(file.keys()), tensor)))
    except package.SafetensorError as problem:
        raise ValueError(f"it is no safetensors file, or it is truncated ({problem}).") from None


def chosen(names: list[str], tensor: str | None) -> str:
    """The name asked for, or the only one there is."""
    if tensor is not None:
        return errors.choose("tensor", tensor, names)
    if len(names) != 1:
        raise ValueError(f"Option --tensor must name one of {names}.")
    return names[0]


def as_floats(array: Any, where: str, as_dtype: str | None = None) -> Array:
    """The array if its elements are of a type that can be quantized; two raw bytes may be read as bfloat16."""
    result: Array = array
    if as_dtype is not None:
        errors.choose("as", as_dtype, ("bfloat16",))
        if result.dtype.itemsize != 2:
            raise ValueError(
                f"File {where!r} must have elements of 2 bytes to be read as bfloat16, not {result.dtype}."
            )
        import ml_dtypes

        result = result.view(ml_dtypes.bfloat16)
    if result.dtype.name not in FLOATS:
        hint = " (bfloat16? add --as bfloat16)" if result.dtype.kind == "V" and result.dtype.itemsize == 2 else ""
        raise ValueError(f"File {where!r} must hold {errors.joined(FLOATS)}, not {result.dtype.name}{hint}.")
    return result
