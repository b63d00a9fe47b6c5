"""Outputs of GPUs, read from tests/data, and the units that must reproduce these outputs.

tests/data/README.md says where the outputs come from.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np

from mxnum.units.identify import Cases, Problem

FOLDER = Path(__file__).parent / "data"
PATH = FOLDER / "matrix-units.npz"
GPUS = {"V100": "volta", "A100": "ampere", "Ada": "ada", "H100": "hopper", "B200": "blackwell"}
#: For each operand type: the part of a unit's name that names it, and the dtype of its arrays.
TYPES = {
    "fp16": ("float16", np.float16),
    "bf16": ("bfloat16", ml_dtypes.bfloat16),
    "tf32": ("tf32", np.float32),
    "E4M3": ("fp8", ml_dtypes.float8_e4m3fn),
    "E5M2": ("fp8", ml_dtypes.float8_e5m2),
}
#: For each operand type in the files of H100 outputs: the dtype of its arrays.
DTYPES = {
    "float16": np.float16, "bfloat16": ml_dtypes.bfloat16, "tf32": np.float32, "e4m3": ml_dtypes.float8_e4m3fn,
    "e5m2": ml_dtypes.float8_e5m2,
}  # fmt: skip


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
    """Return the names of all cases, such as "H100/E4M3/d_fp32"."""
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
        unit += "_mma" * ((gpu, operand) == ("H100", "fp8"))
        return Case(f"{unit}_acc16", a.view(dtype), b.view(dtype), c.astype(np.float16), data()[name])
    if gpu == "H100" and operand == "fp8":  # the wgmma runs in the file had no addend
        c = np.zeros_like(c)
    return Case(unit, a.view(dtype), b.view(dtype), c, data()[name])


@cache
def h100(file: str) -> dict[str, Any]:
    """Return the arrays of h100-units.npz or h100-products.npz."""
    with np.load(FOLDER / file) as arrays:
        return dict(arrays)


def probes() -> list[str]:
    """Return the names of the instructions that ran on an H100, such as "e4m3/float32/wgmma"."""
    with np.load(FOLDER / "h100-units.npz") as arrays:
        return [key for key in arrays.files if key.endswith("mma")]


def probe(name: str) -> Case:
    kind, accumulator, instruction = name.split("/")
    a, b, c = (h100("h100-units.npz")[f"{kind}/{accumulator}/{part}"] for part in "abc")
    if kind == "tf32":
        a, b = a << 13, b << 13
    is_narrow = kind in ("e4m3", "e5m2")
    unit = "hopper_fp8" if is_narrow else f"hopper_{kind}"
    # For operands wider than 8 bits, `mma` and `wgmma` gave the same answers, so the file has them
    # once.
    unit += "_mma" * (is_narrow and instruction == "mma") + "_acc16" * (accumulator == "float16")
    return Case(unit, a.view(DTYPES[kind]), b.view(DTYPES[kind]), c.view(accumulator), h100("h100-units.npz")[name])


def asked(name: str) -> tuple[Problem, Cases, Any]:
    """Return the problem, the cases and the answers of an instruction, for `identify`."""
    _, a, b, c, d = probe(name)
    kind, accumulator, _ = name.split("/")
    shift = 13 if kind == "tf32" else 0
    codes = (x.view(f"u{x.itemsize}").astype(np.int64) >> shift for x in (a, b))
    cases = Cases(*codes, c.view(f"u{c.itemsize}").astype(np.int64))
    return Problem(kind, kind, a.shape[1], accumulator), cases, d.astype(np.int64)
