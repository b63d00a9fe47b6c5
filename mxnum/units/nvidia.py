"""The matrix units of NVIDIA's GPUs, one `MatrixUnit` each.

Outputs of an H100 are from mxnum's own probe (`mxnum unit probe`) and from products by cuBLAS. The
outputs of other GPUs are from Khattak and Mikaitis, *Accurate Models of NVIDIA Tensor Cores* (TACO
2026, repository north-numerical-computing/MATLAB-tensor-core). Their repository and
microsoft/MMA-Sim (arXiv 2511.10909) publish models of the units.
"""

from __future__ import annotations

from typing import Any

from mxnum.units.unit import Evidence, MatrixUnit

_SIM = "MMA-Sim"
_SPECIAL = Evidence("special values", "published", f"{_SIM}; zeros are assumed to behave as on an H100")
_FP8 = ("e4m3", "e5m2")
_TO_FLOAT16: dict[str, object] = {"accumulator": "float16", "rounding": "rne", "result_bits": 10}
_F8F6F4 = ("e4m3", "e5m2", "e3m2", "e2m3", "e2m1")


def _all(status: str, source: str, **others: tuple[str, str]) -> tuple[Evidence, ...]:
    """Return evidence for all clauses of a sum, with the same status and source.

    `others` replaces (status, source) for the clauses that it names.
    """
    clauses = dict.fromkeys(("products", "addend", "alignment", "result", "chains"), (status, source))
    # Only an H100 was probed with special values.
    special = Evidence("special values", status, "H100") if "H100" in source else _SPECIAL
    return (*(Evidence(name, *how) for name, how in (clauses | others).items()), special)


def _pair(name: str, replayed: str, **fields: Any) -> list[MatrixUnit]:
    """Return a GPU's two float16 units: one accumulates in float32, the other in float16."""
    unit = MatrixUnit(name, ("float16",), evidence=_all("replayed", replayed), **fields)
    return [unit, unit.but(name=f"{name}_acc16", evidence=unit.evidence, **_TO_FLOAT16)]


def rows() -> list[MatrixUnit]:
    """Return the units of NVIDIA's GPUs."""
    ampere: dict[str, Any] = {"k": (8, 16), "terms": 8, "fraction_bits": 24}
    hopper: dict[str, Any] = {"k": (8, 16), "terms": 16, "fraction_bits": 25}
    units = [
        *_pair("volta_float16", "V100", k=(4,), terms=4, fraction_bits=23),
        *_pair("ampere_float16", "A100, A2", **ampere),
        *_pair("ada_float16", "L40S, RTX", **ampere),
        *_pair("hopper_float16", "H100, H200", **hopper),
        *_pair("blackwell_float16", "B200", **hopper),
    ]
    for name, replayed, shape in (
        ("ampere", "A100, A2", ampere), ("ada", "L40S, RTX", ampere),
        ("hopper", "H100, H200", hopper), ("blackwell", "B200", hopper),
    ):  # fmt: skip
        half = {"k": (4, 8), "terms": shape["terms"] // 2, "fraction_bits": shape["fraction_bits"]}
        four = {"products": ("published", f"8 products: {_SIM}; 4: {replayed}")} if name == "blackwell" else {}
        evidence = _all("replayed", replayed), _all("replayed", replayed, **four)
        units.append(MatrixUnit(f"{name}_bfloat16", ("bfloat16",), evidence=evidence[0], **shape))
        units.append(MatrixUnit(f"{name}_tf32", ("tf32",), evidence=evidence[1], **half))
    ada = MatrixUnit("ada_fp8", _FP8, (16, 32), 16, 13, 13, evidence=_all("replayed", "L40S, RTX"))
    hopper_fp8 = MatrixUnit("hopper_fp8", _FP8, (32,), 32, 13, 13, evidence=_all("replayed", "H100"))
    promotion = Evidence("promotion", "replayed", "H100: cuBLAS")
    first = [k for k in range(32) if k % 4 < 2]
    mma = MatrixUnit(
        "hopper_fp8_mma", _FP8, (32,), 16, 25, addend="after", evidence=_all("replayed", "H100"),
        order=(*first, *(k for k in range(32) if k % 4 >= 2)),
    )  # fmt: skip
    by_float16 = ("assumed", "two sums, as on an H100; the outputs of a B200 also fit a single sum of 32 products")
    mma_of_blackwell = _all("replayed", "B200", products=by_float16)
    tcgen05 = MatrixUnit("blackwell_fp8", _F8F6F4, (32,), 32, 25, evidence=_all("published", _SIM))
    by_scales = (Evidence("scales", "published", _SIM), *_all("published", _SIM))
    return [
        *units,
        ada,
        ada.but(name="ada_fp8_acc16", evidence=ada.evidence, **_TO_FLOAT16),
        hopper_fp8,
        hopper_fp8.but(name="hopper_fp8_acc16", evidence=_all("replayed", "H100"), **_TO_FLOAT16),
        hopper_fp8.but(name="hopper_fp8_promoted", promotion=128, evidence=(*hopper_fp8.evidence, promotion)),
        mma,
        mma.but(name="hopper_fp8_mma_acc16", evidence=_all("replayed", "H100, H200"), **_TO_FLOAT16),
        mma.but(name="blackwell_fp8_mma", evidence=mma_of_blackwell),
        mma.but(name="blackwell_fp8_mma_acc16", evidence=_all("replayed", "B200"), **_TO_FLOAT16),
        tcgen05,
        tcgen05.but(name="blackwell_mxfp8", scales=(("e8m0", 32),), evidence=by_scales),
        MatrixUnit(
            "blackwell_nvfp4", ("e2m1",), (64,), 64, 35, group=16,
            scales=(("e4m3", 16), ("e8m0", 32), ("e8m0", 16)), evidence=by_scales,
        ),
    ]  # fmt: skip
