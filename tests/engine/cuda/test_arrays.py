"""Tests of GPU arrays of several libraries, with fake arrays in host memory."""

from __future__ import annotations

import types

import numpy as np
import pytest

import mxnum as mx
from mxnum.memory.device import described
from tests.samples import generator


class Pointer:
    """A stand-in for cupy.cuda.MemoryPointer."""

    def __init__(self, ptr: int, array: np.ndarray) -> None:
        self.ptr, self.array = ptr, array

    def __add__(self, offset: int) -> Pointer:
        return Pointer(self.ptr + offset, self.array)


class CupyLike:
    """A fake CuPy array, which describes its host memory as CuPy describes GPU memory."""

    __module__ = "cupy"
    device = types.SimpleNamespace(id=0)

    def __init__(self, shape, dtype=None, memptr=None, strides=None):
        if memptr is None:
            self.array = np.empty(shape, dtype) if not isinstance(shape, np.ndarray) else shape
        else:
            self.array = np.ndarray(shape, dtype, memptr.array.base if memptr.array.base is not None else memptr.array,
                                    memptr.ptr - _base(memptr.array), strides)  # fmt: skip
        self.dtype, self.shape = self.array.dtype, self.array.shape

    @property
    def data(self):
        return Pointer(self.array.ctypes.data, self.array)

    @property
    def __cuda_array_interface__(self):
        return {**self.array.__array_interface__, "stream": 1}


def _base(array: np.ndarray) -> int:
    return (array if array.base is None else array.base).ctypes.data


@pytest.fixture
def cupy(monkeypatch):
    """Return a stand-in for the module cupy."""
    import sys

    from mxnum.engine.cuda import driver

    if not driver.SIMULATED:
        pytest.skip("stand-ins have host memory")
    module = types.SimpleNamespace(empty=CupyLike, ndarray=CupyLike)
    monkeypatch.setitem(sys.modules, "cupy", module)
    return module


def test_results_are_of_the_library_of_the_input(cupy):
    x = generator("library").standard_normal((4, 64)).astype(np.float32)
    given = CupyLike(x.copy())
    q, want = mx.quantize(given, "mxint4", offset="float16"), mx.quantize(x, "mxint4", offset="float16")
    assert {type(part) for part in (q.codes, q.scales, q.offsets)} == {CupyLike}
    assert q.to_host().equals(want)
    values = q.dequantize("float16")
    assert type(values) is CupyLike
    assert values.array.tobytes() == want.dequantize("float16").tobytes()
    assert type(mx.fake_quantize(given, "mxfp4_e2m1")) is CupyLike
    assert type(mx.shared_scale(given, "mxfp4_e2m1")) is CupyLike
    assert type(mx.matmul(mx.quantize(given, "mxint8"), mx.quantize(given, "mxint8").T)) is CupyLike


def test_a_quantizer_reads_its_array_at_each_call(cupy):
    x = generator("library").standard_normal((4, 64)).astype(np.float32)
    given, out = CupyLike(x.copy()), CupyLike(np.zeros_like(x))
    quantize_again = mx.fake_quantizer(given, "mxfp4_e2m1", axis=0, rounding="rtz", out=out)
    for factor in (1, 3):
        given.array[...] = factor * x
        quantize_again()
        want = mx.fake_quantize(np.float32(factor) * x, "mxfp4_e2m1", axis=0, rounding="rtz")
        assert out.array.tobytes() == want.tobytes()


def test_views_are_of_the_library_too_and_share_memory(cupy):
    x = generator("library").standard_normal((4, 64)).astype(np.float32)
    q, want = mx.quantize(CupyLike(x.copy()), "mxfp8_e4m3"), mx.quantize(x, "mxfp8_e4m3")
    for view in (lambda q: q.T, lambda q: q[1:3], lambda q: q[:, 32:], lambda q: q[::-1]):
        assert type(view(q).codes) is CupyLike
        assert np.shares_memory(view(q).codes.array, q.codes.array)
        assert view(q).to_host().equals(view(want))


def test_array_of_an_unknown_library_gives_numba_arrays(cupy):
    x = np.linspace(-3, 3, 64, dtype=np.float32)
    unknown = types.SimpleNamespace(__cuda_array_interface__={**x.__array_interface__, "version": 3})
    q = mx.quantize(unknown, "mxfp4_e2m1")
    assert hasattr(q.codes, "copy_to_host")
    assert q.to_host().equals(mx.quantize(x, "mxfp4_e2m1"))


def test_copies_to_the_host_keep_type_shape_and_order(device):
    from mxnum.engine.cuda import arrays

    x = np.arange(24, dtype=np.float16).reshape(2, 3, 4)
    for view in (lambda a: a, lambda a: a[:, ::-1, 1:3], lambda a: a.transpose((2, 0, 1)), lambda a: a[0, 0, 0, ...]):
        copied = arrays.to_host(view(described("x", device(x))))
        assert copied.dtype == x.dtype
        assert np.array_equal(copied, view(x))
        assert copied.flags.owndata or copied.base is not x
    assert arrays.to_host(described("x", device(x))[:0]).shape == (0, 3, 4)


def test_results_have_the_bfloat16_dtype(device):
    from mxnum.formats import FLOATS
    from mxnum.memory.dtypes import numpy_dtype

    x = np.linspace(-3, 3, 64).astype(numpy_dtype(FLOATS["bfloat16"]))
    values = mx.fake_quantize(device(x), "mxfp8_e4m3")
    assert values.dtype == x.dtype
    assert values.copy_to_host().tobytes() == mx.fake_quantize(x, "mxfp8_e4m3").tobytes()


@pytest.fixture
def torch(monkeypatch):
    """Return PyTorch, changed so that its host tensors claim to be on a GPU.

    The simulator accepts host memory as GPU memory.
    """
    from mxnum.engine.cuda import driver

    if not driver.SIMULATED:
        pytest.skip("only the simulator accepts host tensors as GPU memory")
    module = pytest.importorskip("torch")
    monkeypatch.setattr(module.Tensor, "is_cuda", True, raising=False)
    stream = types.SimpleNamespace(cuda_stream=0)
    monkeypatch.setattr(module.cuda, "current_stream", lambda device: stream)
    return module


def test_tensors_of_torch(torch):
    x = generator("torch").standard_normal((4, 6, 64)).astype(np.float32)
    tensor = torch.from_numpy(x.copy())
    q, want = mx.quantize(tensor, "mxint4", offset="float16"), mx.quantize(x, "mxint4", offset="float16")
    assert (q.codes.dtype, q.scales.dtype, q.offsets.dtype) == (torch.uint8, torch.uint8, torch.float16)
    assert q.to_host().equals(want)
    for view in (lambda q: q.T, lambda q: q[1:3, ::2], lambda q: q[..., 32:], lambda q: q[2, 3]):
        assert isinstance(view(q).codes, torch.Tensor)
        assert view(q).to_host().equals(view(want))
    values = q.dequantize("bfloat16")
    assert values.dtype == torch.bfloat16
    assert values.view(torch.uint16).numpy().tobytes() == want.dequantize("bfloat16").tobytes()
    out = torch.empty_like(tensor)
    turned = out.transpose(0, 1)
    assert mx.fake_quantize(tensor.transpose(0, 1), "mxfp8_e4m3", out=turned) is turned
    assert out.numpy().tobytes() == mx.fake_quantize(x, "mxfp8_e4m3").tobytes()
    halves = tensor.to(torch.bfloat16)
    assert mx.fake_quantize(halves, "mxfp4_e2m1").dtype == torch.bfloat16
    product = mx.matmul(mx.quantize(tensor, "mxint8"), mx.quantize(tensor, "mxint8").transpose(0, 2, 1))
    here = mx.quantize(x, "mxint8")
    assert product.numpy().tobytes() == mx.matmul(here, here.transpose(0, 2, 1)).tobytes()


@pytest.mark.parametrize("fmt", ["mxfp8_e5m2", "mxfp6_e2m3", "mxfp4_e2m1"])
def test_tensors_of_the_narrow_types(torch, fmt):
    from mxnum.interop import torch as mx_torch

    x = generator("torch narrow", fmt).standard_normal((4, 64)).astype(np.float32)
    words = generator("torch words", fmt).integers(0, 2**32, x.shape)
    options = {"rounding": "sr", "sr_bits": 9}
    tensor, random_bits = torch.from_numpy(x.copy()), torch.from_numpy(words.copy())
    q = mx_torch.quantize(tensor, fmt, random_bits=random_bits, **options)
    want = mx.quantize(x, fmt, random_bits=words.astype(np.uint32), **options)
    assert isinstance(q.codes, torch.Tensor)
    tensors = mx_torch.to_torch(q)
    assert tensors.scales.dtype == torch.float8_e8m0fnu
    back = mx_torch.from_torch(*tensors[:2], format=fmt, length=64)
    assert isinstance(back.codes, torch.Tensor)
    assert back.to_host().equals(want)
    faked = mx_torch.fake_quantize(tensor, fmt, random_bits=random_bits, **options)
    assert faked.numpy().tobytes() == want.dequantize().tobytes()


def test_cupy_arrays_are_not_converted_to_tensors(cupy):
    pytest.importorskip("torch")
    from mxnum.interop import torch as mx_torch

    q = mx.quantize(CupyLike(np.ones((2, 32), np.float32)), "mxfp8_e4m3")
    with pytest.raises(ValueError, match="'q' must be in host memory or made of tensors, not 'of cupy arrays'"):
        mx_torch.to_torch(q)
