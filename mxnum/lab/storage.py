"""Results on disk: numbers in npz, everything else in JSON. A file is complete or absent."""

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
from mxnum.output.files import written_whole

Array = Any


def write_json(path: Path, value: Any) -> None:
    """A JSON file that appears whole or not at all; a list of numbers takes one line."""
    text = json.dumps(value, indent=1, sort_keys=True)  # no string of it has a line break in it
    write_text(path, re.sub(r"\[[^][{}]*\]", lambda found: re.sub(r"\n *", " ", found[0]), text) + "\n")


def write_text(path: Path, text: str) -> None:
    """As `write_json`, text as it is."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with written_whole(path) as partial:
        partial.write_text(text)


def write_arrays(path: Path, arrays: dict[str, Array], *, compressed: bool = True) -> None:
    """As `write_json`, an npz file; to compress parameters takes long and saves little."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with written_whole(path) as partial, partial.open("wb") as file:
        (np.savez_compressed if compressed else np.savez)(file, allow_pickle=False, **arrays)


def read_json(path: Path) -> Any:
    """The value of a JSON file."""
    return json.loads(path.read_text())


def read_arrays(path: Path) -> dict[str, Array]:
    """The arrays of an npz file."""
    with np.load(path, allow_pickle=False) as file:
        return {name: file[name] for name in file.files}


def environment() -> dict[str, Any]:
    """What a result depends on besides its configuration: versions and the kind of machine."""
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
    """The widest vector instructions that NumPy knows."""
    found = np.show_config(mode="dicts")["SIMD Extensions"].get("found", [])
    return str(found[-1]) if found else platform.processor()


def _blas() -> str | None:
    """The library that NumPy multiplies with and whose kernels it has chosen, and so the order of its sums."""
    try:
        from threadpoolctl import threadpool_info
    except ModuleNotFoundError:
        return None
    libraries = [library for library in threadpool_info() if library["user_api"] == "blas"]
    for library in sorted(libraries, key=lambda library: "numpy" not in library["filepath"]):
        return " ".join(str(library.get(key)) for key in ("internal_api", "version", "architecture"))
    return None
