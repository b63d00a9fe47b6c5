"""Tests that instructions and products of matrix units reproduce GPU outputs bit for bit."""

from __future__ import annotations

from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest

import mxnum as mx
from mxnum.reference import unit_dot
from mxnum.units.identify import evaluate
from mxnum.units.identify.registered import rule_of
from tests import silicon

#: These units raise a warning, because no measured output shows how a B200 adds 8 products in TF32,
#: or how a B200 groups 32 products in FP8.
pytestmark = pytest.mark.filterwarnings("ignore:Unit 'blackwell_(tf32|fp8_mma)':mxnum.units.EvidenceWarning")
NAMES, PROBES = silicon.names(), silicon.probes()
#: The number of cases of each name that the slow reference computes.
OF_REFERENCE = 40


def test_the_data_cover_every_replayed_row():
    replayed = {name for name in mx.units.names() if mx.units.get(name).status("alignment").status == "replayed"}
    shown = {silicon.case(name).unit for name in NAMES} | {silicon.probe(name).unit for name in PROBES}
    assert shown | {"hopper_fp8_promoted"} == replayed  # cuBLAS products test hopper_fp8_promoted
    assert all(path.stat().st_size <= 1 << 20 for path in silicon.FOLDER.glob("*.npz"))


@pytest.mark.parametrize("name", NAMES)
def test_instructions_give_the_outputs_of_gpus(name):
    unit, a, b, c, d = silicon.case(name)
    got = mx.mma(a[:, None, :], b[:, :, None], c[:, None, None], unit)
    assert got.ravel().view(d.dtype).tolist() == d.tolist()


@pytest.mark.parametrize("name", PROBES)
def test_instructions_give_the_answers_of_an_h100(name):
    unit, a, b, c, d = silicon.probe(name)
    got = mx.mma(a[:, None, :], b[:, :, None], c[:, None, None], unit)
    assert got.ravel().view(d.dtype).tolist() == d.tolist()


@pytest.mark.parametrize("name", [*NAMES, *PROBES])
def test_the_reference_gives_the_outputs_of_gpus(name):
    unit, a, b, c, d = silicon.probe(name) if name in PROBES else silicon.case(name)
    row, step = mx.units.get(unit), len(d) // OF_REFERENCE
    got = [unit_dot(a[i], b[i], row, c[i], k=a.shape[1]) for i in range(0, len(d), step)]
    assert got == d[::step].tolist()


@pytest.mark.parametrize("exponent", [-126, -133])
def test_public_models_of_zeros_miss_answers_of_an_h100(exponent):
    for name in ("float16/float32/mma", "bfloat16/float32/mma", "tf32/float32/mma", "e4m3/float32/wgmma"):
        problem, cases, answers = silicon.asked(name)
        rule = rule_of(mx.units.get(silicon.probe(name).unit), problem)
        assert np.array_equal(evaluate(rule, problem, cases), answers)
        assert not np.array_equal(evaluate(replace(rule, zero_exponent=exponent), problem, cases), answers)


@pytest.mark.parametrize("k", [256, 4096])
@pytest.mark.parametrize(("how", "unit"), [("fast", "hopper_fp8"), ("promoted", "hopper_fp8_promoted")])
def test_products_of_cublas_in_fp8(k, how, unit):
    a, b, d = (silicon.h100("h100-products.npz")[f"e4m3/{k}/{part}"] for part in ("a", "b", how))
    a, b = (x.view(ml_dtypes.float8_e4m3fn) for x in (a, b))
    assert np.array_equal(mx.matmul(a, b.T, accumulate=unit).view(np.uint32), d.view(np.uint32))


@pytest.mark.parametrize("kind", ["float16", "bfloat16", "tf32"])
def test_products_of_cublas_in_wider_types(kind):
    a, b, d = (silicon.h100("h100-products.npz")[f"{kind}/1024/{part}"] for part in "abd")
    if kind == "tf32":  # cuBLAS rounds float32 operands to TF32, to nearest even
        a, b = (x.view(np.uint32) for x in (a, b))
        a, b = ((x + 0xFFF + (x >> 13 & 1)) & 0xFFFFE000 for x in (a, b))
    a, b = (x.view(silicon.DTYPES[kind]) for x in (a, b))
    assert np.array_equal(mx.matmul(a, b.T, accumulate=f"hopper_{kind}").view(np.uint32), d.view(np.uint32))


@pytest.mark.filterwarnings("ignore::mxnum.units.EvidenceWarning")
@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("H100/E4M3/d_fp32", {"fraction_bits": 12}),
        ("H100/E4M3/d_fp32", {"fraction_bits": 14}),
        ("H100/fp16/d_fp32", {"terms": 8}),
        ("H100/fp16/d_fp32", {"rounding": "rne"}),
        ("B200/E4M3/d_fp32", {"addend": "term"}),
        ("B200/E4M3/d_fp16", {"order": ()}),
        ("V100/fp16/d_fp32", {"fraction_bits": 24}),
    ],
)
def test_other_rules_miss_outputs(name, changes):
    unit, a, b, c, d = silicon.case(name)
    other = mx.units.get(unit).but(name="other", **changes)
    got = mx.mma(a[:, None, :], b[:, :, None], c[:, None, None], other)
    assert np.count_nonzero(got.ravel().view(d.dtype) != d) > 0.1 * len(d)
