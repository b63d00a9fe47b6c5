"""Tests that `fused_by_numpy` computes the same bits as GPUs and as the engine."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import mxnum as mx
from mxnum.definition.fused_by_numpy import Vectors, dots
from mxnum.units import MatrixUnit, get
from mxnum.units.unit import EvidenceWarning
from tests import silicon

FORMATS = {
    "float16": "float16", "bfloat16": "bfloat16", "float32": "tf32", "float8_e4m3fn": "e4m3", "float8_e5m2": "e5m2",
}  # fmt: skip
MINE = MatrixUnit("small groups", ("e3m2",), (32,), 16, 12, group=4, scales=(("ue5m3", 16),))


@pytest.mark.parametrize("name", silicon.names())
def test_outputs_of_gpus(name):
    case, some = silicon.case(name), slice(400)
    unit, fmt = get(case.unit), FORMATS[case.a.dtype.name]
    sides = []
    for x in (case.a, case.b):
        codes = x[some].view(f"u{x.itemsize}")
        sides.append(Vectors(codes >> 13 if fmt == "tf32" else codes, unit.formats[fmt]))
    got = dots(*sides, case.c[some].view(f"u{case.c.itemsize}"), unit, case.a.shape[1])
    assert np.array_equal(got, case.d[some])


@pytest.mark.parametrize(
    ("unit", "fmt", "k"),
    [
        ("blackwell_mxfp8", "mxfp8_e5m2", 96), ("blackwell_nvfp4", "nvfp4", 16 * 9),
        ("blackwell_nvfp4", "mxfp4_e2m1", 192), ("hopper_fp8_promoted", "e4m3:block=128,scale=float32", 384),
        (MINE, "e3m2:block=16,scale=ue5m3", 80),
    ],
)  # fmt: skip
def test_scaled_operands_equal_the_engine(unit, fmt, k):
    rng, unit, fmt = np.random.default_rng(k), get(unit), mx.formats.get(fmt)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", EvidenceWarning)
        tensor = {"tensor_scale": 1.0} if fmt.tensor_scale else {}
        spread = np.exp2(rng.integers(-12, 12, (2, 30, 1))).astype(np.float32)
        a, b = (mx.quantize(rng.standard_normal((30, k)).astype(np.float32) * s, fmt, **tensor) for s in spread)
        c = (rng.standard_normal((30, 30)) * 100).astype(np.float32)
        c[:4, :4] = np.inf, -np.inf, np.nan, -0.0
        right = np.diagonal(mx.matmul(a, b.T, c, accumulate=unit)).copy().view(np.uint32)
    sides = [
        Vectors(
            np.asarray(q.codes), fmt.element, np.asarray(q.scales).view(f"u{q.scales.itemsize}"), fmt.scale, fmt.block
        )
        for q in (a, b)
    ]
    got = dots(*sides, np.diagonal(c).copy().view(np.uint32), unit, unit.k[-1])
    assert np.array_equal(got, right)
