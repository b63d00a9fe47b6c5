"""Read and write results on disk, in npz and JSON files that are never incomplete."""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import re
from pathlib import Path
from typing import Any

import numpy as np

import mxnum
from mxnum.output.files import reading, written_whole

Array = Any


def write_json(path: Path, value: Any) -> None:
    """Write a JSON file, with each list of numbers on one line; no reader sees it incomplete."""
    # Joining the lines of a list is safe, because json.dumps escapes line breaks in strings.
    text = json.dumps(value, indent=1, sort_keys=True)
    write_text(path, re.sub(r"\[[^][{}]*\]", lambda found: re.sub(r"\n *", " ", found[0]), text) + "\n")


def write_text(path: Path, text: str) -> None:
    """Write a text file; no reader sees it incomplete."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with written_whole(path) as partial:
        partial.write_text(text)


def write_arrays(path: Path, arrays: dict[str, Array], *, compressed: bool = True) -> None:
    """Write an npz file; no reader sees it incomplete.

    Pass `compressed=False` for network parameters: compressing them takes long and saves little.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with written_whole(path) as partial, partial.open("wb") as file:
        (np.savez_compressed if compressed else np.savez)(file, allow_pickle=False, **arrays)


def read_json(path: Path) -> Any:
    """Return the value in a JSON file."""
    with reading(path):
        return json.loads(path.read_text())


def read_arrays(path: Path) -> dict[str, Array]:
    """Return the arrays in an npz file by name."""
    with reading(path), path.open("rb") as stream, np.load(stream, allow_pickle=False) as file:
        return {name: file[name] for name in file.files}


def environment() -> dict[str, Any]:
    """Return what results may depend on: the versions of software and the kind of machine."""
    versions = {name: _version(name) for name in ("numpy", "numba", "scipy")}
    return {
        "mxnum": mxnum.__version__,
        "python": platform.python_version(),
        **versions,
        "machine": platform.machine(),
        "system": platform.system(),
        "processor": _processor(),
        "blas": _blas(),
        "cores": os.cpu_count(),
    }


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def _processor() -> str:
    """Return the widest vector instructions that NumPy finds on this processor."""
    found = np.show_config(mode="dicts")["SIMD Extensions"].get("found", [])
    return str(found[-1]) if found else platform.processor()


def _blas() -> str | None:
    """Return the name, version and kernels of NumPy's BLAS, which determine the order of sums."""
    try:
        from threadpoolctl import threadpool_info
    except ModuleNotFoundError:
        return None
    libraries = [library for library in threadpool_info() if library["user_api"] == "blas"]
    for library in sorted(libraries, key=lambda library: "numpy" not in library["filepath"]):
        return " ".join(str(library.get(key)) for key in ("internal_api", "version", "architecture"))
    return None
