"""Tests of statements on the page that compares mxnum with certain versions of libraries."""

from __future__ import annotations

import os
import re
import warnings
from pathlib import Path

import numpy as np
import pytest

from mxnum.conformance.bits import as_floats
from mxnum.conformance.calling import Implementation
from mxnum.conformance.cases.batches import cases
from mxnum.conformance.judging.judge import BUG, judge
from mxnum.conformance.judging.right import expected
from mxnum.conformance.libraries import LIBRARIES, peers, version
from mxnum.conformance.operations import make_task

DOCS = Path(__file__).parents[1] / "docs" / "reference"
PAGE = (DOCS / "comparison.md").read_text()
VERSIONS = dict(re.findall(r"\*\*([\w-]+)\*\* (\d[\d.]*\d)", PAGE))


def compared(library):
    """Skip the test unless the comparison page describes the installed version of a library."""
    if version(library) != VERSIONS[library]:
        pytest.skip(f"the page is about {library} {VERSIONS[library]}, but {version(library)} is installed")


def cells(row):
    """Return a row of the table of features as {library: cell}."""
    titles = re.search(r"^\| (\| ml_dtypes .*)\|$", PAGE, re.M)[1]
    found = re.search(rf"^\| {re.escape(row)} \|(.*)\|$", PAGE, re.M)
    assert found, row
    names = [name.strip() for name in titles.strip(" |").split("|")]
    return dict(zip(names, (cell.strip() for cell in found[1].split("|")), strict=True))


def test_versions_of_both_pages_are_equal():
    published = dict(re.findall(r"^## (\S+) (\S+)$", (DOCS / "conformance.md").read_text(), re.M))
    assert published == VERSIONS
    assert set(VERSIONS) == set(LIBRARIES)


def test_types_of_ml_dtypes():
    compared("ml_dtypes")
    import ml_dtypes

    for row, names in {
        "elements E4M3, E5M2": ("float8_e4m3fn", "float8_e5m2"),
        "elements E3M2, E2M3": ("float6_e3m2fn", "float6_e2m3fn"),
        "element E2M1": ("float4_e2m1fn",),
    }.items():
        assert cells(row)["ml_dtypes"] == "yes"
        assert all(hasattr(ml_dtypes, name) for name in names)
    assert cells("arithmetic on elements")["ml_dtypes"] == "yes"
    assert (ml_dtypes.float8_e4m3fn(1.5) + ml_dtypes.float8_e4m3fn(1)).dtype == ml_dtypes.float8_e4m3fn


def test_roundings_of_gfloat():
    compared("gfloat")
    gfloat = pytest.importorskip("gfloat")
    from gfloat import formats

    names = {mode.name for mode in gfloat.RoundMode}
    assert {"TiesToEven", "TiesToAway", "TowardZero", "TowardPositive", "TowardNegative", "Stochastic"} <= names
    assert not {"ToOdd", "RoundToOdd"} & names
    assert cells("roundings")["gfloat"] == "nearest (two), up, down, to zero, stochastic"
    assert cells("formats of your own")["gfloat"] == "yes"
    assert {info.name for info in formats.all_block_formats} >= {"mxfp8_e4m3", "mxfp4_e2m1", "mxint8"}
    assert not any("pack" in name for name in dir(gfloat) if not name.startswith("_"))


def test_types_of_torch():
    compared("torch")
    import torch

    one = torch.tensor([1.5, 1e9])
    assert one.to(torch.float8_e4m3fn).float().tolist() == [1.5, 448]
    assert one.to(torch.float8_e5m2).float().tolist() == [1.5, float("inf")]
    assert cells("saturate or not")["torch"] == "E4M3 yes, E5M2 no"
    with pytest.raises(NotImplementedError):
        one.to(torch.float4_e2m1fn_x2)
    assert cells("element E2M1")["torch"] == "stored"
    assert not any("float6_" in name for name in dir(torch))


def test_modes_of_torchao():
    compared("torchao")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from torchao.prototype.mx_formats import mx_tensor, nvfp4_tensor
        from torchao.prototype.mx_formats.constants import SUPPORTED_ELEM_DTYPES

    assert {mode.value for mode in mx_tensor.ScaleCalculationMode} == {"floor", "ceil", "even", "rceil"}
    assert {str(each) for each in SUPPORTED_ELEM_DTYPES} == {
        "torch.float8_e4m3fn", "torch.float8_e5m2", "fp6_e2m3", "fp6_e3m2", "torch.float4_e2m1fn_x2"
    }  # fmt: skip
    assert hasattr(nvfp4_tensor, "NVFP4Tensor")


def wrong_cases(library, call, fmt):
    """Yield (largest magnitude, right scale, given scale, wrong part) for each wrong answer."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        peer = next(p for p in peers(library) if (p.call, p.format) == (call, fmt))
    task = make_task(peer.operation, peer.format, **peer.claims)
    for inputs in cases(task):
        answers = Implementation(peer.function).answers(task, inputs)
        found, right = judge(task, inputs, answers), expected(task, inputs)
        for row in np.flatnonzero(found.verdicts & BUG):
            largest = np.abs(as_floats(inputs["x"][row], task.source)).max()
            yield float(largest), int(right["scale"][row, 0]), int(answers["scale"][row, 0]), found.parts[row]


@pytest.mark.parametrize("mode", ["FLOOR", "CEIL", "EVEN", "RCEIL"])
@pytest.mark.parametrize("fmt", ["mxfp8_e4m3", "mxfp6_e2m3", "mxfp4_e2m1"])
def test_where_torchao_differs(mode, fmt):
    compared("torchao")
    found = list(wrong_cases("torchao", f"to_mx, {mode}", fmt))
    assert len(found) > 40
    for largest, right, got, part in found:
        above_a_limit = mode == "RCEIL" and part == "scale" and got == right - 1
        assert right == 0 or not np.isfinite(largest) or above_a_limit


def test_where_gguf_differs():
    compared("gguf")
    told = set()
    for largest, right, got, part in wrong_cases("gguf", "MXFP4.quantize_blocks", "mxfp4_e2m1"):
        if right == 0 or not np.isfinite(largest) or part == "tie":
            continue
        assert part == "scale"
        assert got == right + 1
        assert 2 * np.frexp(largest)[0] > 1.9999995
        told.add(largest)
    assert len(told) > 5


@pytest.mark.parametrize("fmt", ["mxfp8_e4m3", "mxint8"])
def test_where_blocks_of_gfloat_differ(fmt):
    compared("gfloat")
    found = list(wrong_cases("gfloat", "compute_scale_amax, encode_block", fmt))
    assert found
    assert not any(np.isfinite(largest) for largest, *_ in found)


NVFP4 = "NVFP4, with its tensor scale"
FLOAT_SCALES = "scales that are floats, not powers of two"


def test_scales_that_are_floats():
    for library in ("gguf", "gfloat", "onnx"):
        compared(library)
    import gfloat
    import gguf
    import onnx
    from gfloat import formats

    assert cells(NVFP4)["gguf"] == "without"
    names = gguf.GGMLQuantizationType
    # gguf accepts 64 elements of NVFP4 only in 36 bytes, and 32 elements of Q8_0 only in 34 bytes.
    assert gguf.quants.dequantize(np.zeros((1, 36), np.uint8), names.NVFP4).shape == (1, 64)
    assert gguf.quants.dequantize(np.zeros((1, 34), np.uint8), names.Q8_0).shape == (1, 32)
    assert (cells(FLOAT_SCALES)["gfloat"], cells(NVFP4)["gfloat"]) == ("yes", "–")
    of_floats = gfloat.BlockFormatInfo("floats", formats.format_info_ocp_e2m1, 16, formats.format_info_ocp_e4m3)
    values = np.array([8.0, 5.0] * 8)
    decoded = gfloat.quantize_block(of_floats, values, gfloat.compute_scale_amax)
    assert len(decoded) == 16
    assert not any("nv" in block.name for block in formats.all_block_formats)
    assert cells(NVFP4)["onnx"] == "by a second operator"
    types = {each for each in onnx.defs.get_schema("DequantizeLinear").type_constraints if each.type_param_str == "T2"}
    assert {"tensor(float)", "tensor(float16)", "tensor(bfloat16)"} <= set(next(iter(types)).allowed_type_strs)
    assert not any("float8e4m3" in name for name in next(iter(types)).allowed_type_strs)


@pytest.mark.skipif(
    "MXNUM_MICROXCALING" not in os.environ, reason="MXNUM_MICROXCALING does not name a checkout of microxcaling"
)
def test_what_microxcaling_does(monkeypatch):
    torch = pytest.importorskip("torch", reason="torch is not installed")
    monkeypatch.syspath_prepend(os.environ["MXNUM_MICROXCALING"])
    from mx.mx_ops import _quantize_mx

    def made(values, fmt="fp8_e4m3", how="even", dtype=None, axes=(0,)):
        x = torch.tensor(values, dtype=dtype)
        return _quantize_mx(x, 8, fmt, axes=list(axes), block_size=4, round=how)

    for special in (float("inf"), float("nan")):
        assert made([1.0, special, 2.0, 3.0]).isnan().all()
    assert cells("policy for NaN and infinity")["microxcaling"] == "whole block"
    ties = [0.25, 0.75, -1.25, 6.0]
    told = {how: made(ties, "fp4_e2m1", how).tolist() for how in ("nearest", "even", "floor")}
    assert told == {"nearest": [0.5, 1, -1.5, 6], "even": [0, 1, -1, 6], "floor": [0, 0.5, -1, 6]}
    assert set(made([0.7] * 4, "fp4_e2m1", "dither").tolist()) <= {0.5, 0.75}
    assert cells("roundings")["microxcaling"] == "nearest (two), to zero, stochastic"
    once = made([1 + 2**-4 + 2**-50, 1, 1, 1], dtype=torch.float64)
    assert (once.dtype, once[0]) == (torch.float64, 1.125)
    assert cells("float64 rounded once")["microxcaling"] == "yes"
    assert made([500.0, 1, 1, 1])[0] == 448
    assert cells("saturate or not")["microxcaling"] == "yes"
    assert made(torch.arange(64.0).reshape(8, 8).tolist(), axes=(0, 1)).shape == (8, 8)
