"""Time functions with pytest-benchmark, for developers who change them.

``python -m pytest benchmarks`` runs the tests of this module; plain ``pytest`` does not. To compare
two versions of the code, run the first version with ``--benchmark-autosave``, and then the second
version with ``--benchmark-compare`` on the same machine. No test asserts a time.
"""

from __future__ import annotations

import numpy as np
import pytest

import mxnum as mx
from benchmarks.data import L2, OCP, normal, one_thread

pytest.importorskip("pytest_benchmark", reason='pip install -e ".[benchmarks]"')

SIZE = 1 << 20


@pytest.fixture(autouse=True)
def _one_thread():
    one_thread()


@pytest.fixture(scope="module")
def x():
    return normal(SIZE, 1)


def test_copy_as_a_yardstick(benchmark, x):
    out = np.empty_like(x)
    benchmark(np.copyto, out, x)
    assert np.array_equal(out, x)


@pytest.mark.parametrize("name", OCP)
def test_quantize(benchmark, x, name):
    assert benchmark(mx.quantize, x, name).equals(mx.quantize(x, name))


@pytest.mark.parametrize("name", OCP)
def test_fake_quantize(benchmark, x, name):
    out = benchmark(mx.fake_quantize, x, name, out=np.empty_like(x))
    assert np.array_equal(out, mx.quantize(x, name).dequantize())


@pytest.mark.parametrize("name", OCP)
def test_dequantize(benchmark, x, name):
    q = mx.quantize(x, name)
    assert np.array_equal(benchmark(q.dequantize), mx.fake_quantize(x, name))


@pytest.mark.parametrize("name", ["mxfp6_e2m3", "mxfp4_e2m1"])
def test_pack(benchmark, x, name):
    q = mx.quantize(x, name)
    packed = benchmark(q.pack)
    assert mx.MXArray.from_packed(packed, q.scales, name, length=x.shape[-1], axis=-1).equals(q)


@pytest.mark.parametrize("rounding", list(mx.Rounding))
def test_roundings(benchmark, x, rounding):
    options = {"rounding": rounding, **({"seed": 1} if rounding == "sr" else {})}
    q = benchmark(mx.quantize, x, "mxfp8_e4m3", **options)
    assert q.equals(mx.quantize(x, "mxfp8_e4m3", **options))


@pytest.mark.parametrize(
    "options", [{"axis": 0}, {"block_shape": (32, 32)}, {"block_size": 16}, {"offset": "float16"}], ids=str
)
def test_layouts(benchmark, x, options):
    q = benchmark(mx.quantize, x, "mxfp8_e4m3", **options)
    assert q.equals(mx.quantize(np.asfortranarray(x), "mxfp8_e4m3", **options))


@pytest.mark.parametrize("accumulate", ["block", "sequential", "blas"])
@pytest.mark.parametrize("name", ["mxfp8_e4m3", "mxfp4_e2m1"])
def test_matmul(benchmark, name, accumulate):
    y = normal(L2, 2)
    a = mx.quantize(y, name)
    product = benchmark(mx.matmul, a, a.T, accumulate=accumulate)
    assert np.allclose(product, a.dequantize() @ a.dequantize().T, rtol=1e-4, atol=1e-3)


def test_fixed_cost_of_a_call(benchmark):
    one = normal(32, 1)
    assert benchmark(mx.quantize, one, "mxfp8_e4m3").shape == one.shape
