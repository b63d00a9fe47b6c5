"""Tests that `prove` accepts the converters in the headers of PyTorch and CUDA.

A test is skipped if its package is not installed.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from mxnum.conformance import prove
from tests.prove.test_c import needs_clang

pytestmark = needs_clang


def folder(package, inside):
    """Return a folder of a package, or skip the test if the package is not installed."""
    spec = importlib.util.find_spec(package)
    for place in (spec.submodule_search_locations or []) if spec else []:
        if (Path(place) / inside).is_dir():
            return Path(place) / inside
    pytest.skip(f"{package}/{inside} is not installed")


TORCH = """
#include <c10/util/Float8_e4m3fn.h>
#include <c10/util/Float8_e5m2.h>
extern "C" uint8_t e4m3(float x) { return c10::detail::fp8e4m3fn_from_fp32_value(x); }
extern "C" float from_e4m3(uint8_t code) { return c10::detail::fp8e4m3fn_to_fp32_value(code); }
extern "C" uint8_t e5m2(float x) { return c10::detail::fp8e5m2_from_fp32_value(x); }
extern "C" float from_e5m2(uint8_t code) { return c10::detail::fp8e5m2_to_fp32_value(code); }
"""


@pytest.mark.full
def test_pytorch(tmp_path):
    path = tmp_path / "torch.cpp"
    path.write_text(TORCH)
    include = [folder("torch", "include")]
    assert prove(path, "encode", "mxfp8_e5m2", function="e5m2", include=include, overflow="ieee")
    for element in ("e4m3", "e5m2"):
        how = {"function": f"from_{element}", "include": include, "accept": ["nan_code"]}
        assert prove(path, "decode", element, **how)
    # PyTorch before 2.13 converts numbers beyond 448, the largest, to NaN; later versions saturate.
    saturates = prove(path, "encode", "e4m3", function="e4m3", include=include)
    assert saturates or prove(path, "encode", "e4m3", function="e4m3", include=include, overflow="ieee")


CUDA = """
#include <stdint.h>
#include <cuda_fp8.h>
#include <cuda_fp6.h>
#include <cuda_fp4.h>
extern "C" uint8_t e4m3(float x) { return __nv_cvt_float_to_fp8(x, __NV_SATFINITE, __NV_E4M3); }
extern "C" uint8_t e5m2(float x) { return __nv_cvt_float_to_fp8(x, __NV_SATFINITE, __NV_E5M2); }
extern "C" uint8_t e3m2(float x) { return __nv_cvt_float_to_fp6(x, __NV_E3M2, cudaRoundNearest); }
extern "C" uint8_t e2m3(float x) { return __nv_cvt_float_to_fp6(x, __NV_E2M3, cudaRoundNearest); }
extern "C" uint8_t e2m1(float x) { return __nv_cvt_float_to_fp4(x, __NV_E2M1, cudaRoundNearest); }
"""


@pytest.mark.full
@pytest.mark.parametrize("element", ["e4m3", "e5m2", "e3m2", "e2m3", "e2m1"])
def test_cuda_on_the_host(tmp_path, element):
    path = tmp_path / "cuda.cpp"
    path.write_text(CUDA)
    include = [folder("nvidia", "cu13/include"), folder("cupy", "_core/include/cupy/_cccl/libcudacxx")]
    assert prove(path, "encode", element, function=element, include=include, accept=["nan_code"])
