"""Results on disk: numbers in npz, everything else in JSON. A file is complete or absent."""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
from pathlib import Path
from typing import Any

import numpy as np

import mxnum

Array = Any


def write_json(path: Path, value: Any) -> None:
    """Write beside the target, then rename: an interruption leaves the old file or none."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f"{path.name}.{os.getpid()}.part")
    temporary.write_text(json.dumps(value, indent=1, sort_keys=True) + "\n")
    temporary.replace(path)


def write_arrays(path: Path, arrays: dict[str, Array]) -> None:
    """As `write_json`, compressed npz."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f"{path.name}.{os.getpid()}.part")
    with temporary.open("wb") as file:
        np.savez_compressed(file, **arrays)
    temporary.replace(path)


def read_json(path: Path) -> Any:
    return json.loads(path.read_text())


def read_arrays(path: Path) -> dict[str, Array]:
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
        "cores": os.cpu_count(),
    }


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def _processor() -> str:
    """The widest vector instructions that numpy found: what BLAS chooses its kernels by."""
    from numpy._core._multiarray_umath import __cpu_features__ as features

    return "AVX512" if features.get("AVX512_SKX") else "AVX2" if features.get("AVX2") else platform.processor()
