"""Outputs of GPUs, read from tests/data/matrix-units.npz, and the units that must reproduce them.

Source: F. A. Khattak and M. Mikaitis, *Accurate Models of NVIDIA Tensor Cores*, TACO 2026,
repository north-numerical-computing/MATLAB-tensor-core (BSD-2-Clause).
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np

PATH = Path(__file__).parent / "data" / "matrix-units.npz"
GPUS = {"V100": "volta", "A100": "ampere", "Ada": "ada", "H100": "hopper", "B200": "blackwell"}
#: For each operand type: its spelling in names of units, and the dtype of its arrays.
TYPES = {
    "fp16": ("float16", np.float16),
    "bf16": ("bfloat16", ml_dtypes.bfloat16),
    "tf32": ("tf32", np.float32),
    "E4M3": ("fp8", ml_dtypes.float8_e4m3fn),
    "E5M2": ("fp8", ml_dtypes.float8_e5m2),
}


class Case(NamedTuple):
    """Dot products d = a·b + c that a GPU computed, one for each row of `a` and `b`."""

    unit: str
    a: Any
    b: Any
    c: Any
    #: The bit patterns of the results.
    d: Any


@cache
def data() -> dict[str, Any]:
    with np.load(PATH) as arrays:
        return dict(arrays)


def names() -> list[str]:
    """Return the names of cases: "H100/E4M3/d_fp32"."""
    with np.load(PATH) as arrays:
        return [key for key in arrays.files if "/d_" in key]


def case(name: str) -> Case:
    gpu, kind, result = name.split("/")
    operand, dtype = TYPES[kind]
    a, b, c = (data()[f"{gpu}/{kind}/{part}"] for part in ("a", "b", "c_fp32"))
    c, unit = c.view(np.float32), f"{GPUS[gpu]}_{operand}"
    if gpu == "B200" and operand == "fp8":
        unit += "_mma"
    if result == "d_fp16":
        return Case(f"{unit}_acc16", a.view(dtype), b.view(dtype), c.astype(np.float16), data()[name])
    if gpu == "H100" and operand == "fp8":  # wgmma ran without an addend
        c = np.zeros_like(c)
    return Case(unit, a.view(dtype), b.view(dtype), c, data()[name])
