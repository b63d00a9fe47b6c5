"""Read the input files of commands."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from zipfile import is_zipfile

import numpy as np

from mxnum import errors
from mxnum.array import MXArray
from mxnum.formats import FLOATS
from mxnum.memory.dtypes import Array
from mxnum.output.files import reading

SUFFIXES = (".npy", ".npz", ".safetensors", ".gguf")


def read_array(path: Path, tensor: str | None = None, as_dtype: str | None = None) -> Array:
    """Read the array of floats in a file. A ``.npy`` file is mapped into memory."""
    found = read(path, tensor)
    if isinstance(found, MXArray):
        raise ValueError(f"File {str(path)!r} must hold an array of floats, not an array that is already quantized.")
    return as_floats(found, str(path), as_dtype)


def read(path: Path, tensor: str | None = None) -> Array | MXArray:
    """Read an array of numbers, or a quantized array, from a file or a checkpoint's folder."""
    path.stat()  # raises FileNotFoundError for a missing file, whatever its suffix
    if path.is_dir():
        return _from_checkpoint(path, tensor)
    if path.suffix not in SUFFIXES:
        raise ValueError(f"File {str(path)!r} must end in {errors.joined(SUFFIXES)}.")
    if path.suffix == ".npy":
        _refuse_name(tensor, path)
        with reading(path):
            loaded: Any = np.load(path, mmap_mode="r" if path.stat().st_size else None, allow_pickle=False)
            is_array = isinstance(loaded, np.ndarray)
            if not is_array:
                loaded.close()
            errors.require_type(is_array, "array", "one array", "an archive")
            array: Array = loaded
        return array
    if path.suffix == ".gguf":
        from mxnum.interop import gguf

        return gguf.load_tensor(path, chosen(gguf.names(path), None) if tensor is None else tensor)
    return _from_archive(path, tensor) if path.suffix == ".npz" else _from_checkpoint(path, tensor)


def layouts(path: Path) -> dict[str, str]:
    """Return the layout of each weight of a safetensors file or folder, by the weight's name."""
    from mxnum.interop.checkpoints import Checkpoint

    if not (path.is_dir() or path.suffix == ".safetensors"):
        return {}
    checkpoint = Checkpoint(path)
    return {name: checkpoint.layout(name) for name in checkpoint.names()}


def number_of_arrays(path: Path) -> int:
    """Return the number of arrays in a .npz or safetensors file, and 1 for another file."""
    if path.suffix == ".npz":
        with reading(path), np.load(path, allow_pickle=False) as archive:
            return len(archive.files)
    return len(layouts(path)) or 1


def _refuse_name(tensor: str | None, path: Path) -> None:
    if tensor is not None:
        raise ValueError(f"Option --tensor must be left out for {str(path)!r}, which holds one array without a name.")


def _from_archive(path: Path, tensor: str | None) -> Array | MXArray:
    with path.open("rb") as stream:  # opened here, because np.load leaves its own file open after an error
        with reading(path):
            if not is_zipfile(stream):
                raise ValueError("it is not an .npz archive, or it is truncated")
            stream.seek(0)
            archive = np.load(stream, allow_pickle=False)
        if {"description", "packed", "scales"} <= set(archive.files):
            _refuse_name(tensor, path)
            return MXArray.load(path)
        name = chosen(archive.files, tensor)
        with reading(path):
            return np.asarray(archive[name])


def _from_checkpoint(path: Path, tensor: str | None) -> Array | MXArray:
    """Read a weight, or a stored part such as its scales, from a safetensors file or folder."""
    from mxnum.interop.checkpoints import Checkpoint
    from mxnum.interop.safetensors import File

    checkpoint = Checkpoint(path)
    names = checkpoint.names()
    if tensor not in names and path.is_file() and tensor in (file := File(path)).plain_names():
        return file.tensor(tensor)
    return checkpoint.tensor(chosen(names, tensor))


def chosen(names: list[str], tensor: str | None) -> str:
    """Return `tensor` if it is one of `names`, or the only name if `tensor` is None.

    Raise ValueError if `tensor` is not in `names`. None is accepted only if there is exactly one
    name.
    """
    if tensor is not None:
        return errors.choose("tensor", tensor, names)
    if len(names) != 1:
        raise ValueError(f"Option --tensor must name one of {names}.")
    return names[0]


def as_floats(array: Any, where: str, as_dtype: str | None = None) -> Array:
    """Return the array if its type can be quantized; raise ValueError otherwise.

    With `as_dtype`, elements of 2 bytes are read as bfloat16; float16 and elements of other sizes
    raise ValueError.
    """
    result: Array = array
    if as_dtype is not None:
        errors.choose("as", as_dtype, ("bfloat16",))
        if result.dtype.itemsize != 2 or result.dtype == np.float16:
            accepted = "elements of 2 bytes (not float16) for --as bfloat16"
            raise ValueError(f"File {where!r} must have {accepted}, not {result.dtype}.")
        import ml_dtypes

        result = result.astype(result.dtype.newbyteorder("="), copy=False).view(ml_dtypes.bfloat16)
    if result.dtype.name not in FLOATS:
        hint = " (bfloat16? add --as bfloat16)" if result.dtype.kind == "V" and result.dtype.itemsize == 2 else ""
        raise ValueError(f"File {where!r} must hold {errors.joined(FLOATS)}, not {result.dtype.name}{hint}.")
    return result
