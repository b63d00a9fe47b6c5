from __future__ import annotations

import numpy as np
import pytest

import mxnum as mx
from mxnum.interop import torch as mx_torch
from tests import samples


@pytest.fixture
def torch():
    return pytest.importorskip("torch", reason="the extra torch is not installed")


@pytest.mark.parametrize("name", ["float64", "float32", "float16", "bfloat16"])
def test_floats_share_memory(torch, name):
    tensor = torch.tensor([[1.5, -2.0, 0.1]], dtype=getattr(torch, name))
    array = mx_torch.as_array(tensor)
    assert array.dtype.name == name
    array[0, 0] = 3
    assert tensor[0, 0] == 3
    back = mx_torch.as_tensor(array)
    assert back.dtype == tensor.dtype
    assert back.data_ptr() == tensor.data_ptr()
    assert mx.quantize(array, "mxfp8_e4m3").equals(mx_torch.quantize(tensor, "mxfp8_e4m3"))


@pytest.mark.parametrize("fmt", ["mxfp8_e4m3", "mxfp8_e5m2", "mxfp4_e2m1", "mxint8", "mxfp6_e3m2", "mxint4"])
def test_there_and_back(torch, fmt):
    x = samples.generator("torch", fmt).standard_normal((4, 96)).astype(np.float32)
    q = mx.quantize(x, fmt)
    tensors = mx_torch.to_torch(q)
    assert tensors.scales.dtype == torch.float8_e8m0fnu
    assert tensors.scales.data_ptr() == q.scales.ctypes.data
    known = q.format.element.name in mx_torch.DTYPES
    length = 96 if q.format.element.bits == 6 else None
    back = mx_torch.from_torch(tensors.elements, tensors.scales, format=None if known else fmt, length=length)
    assert back.equals(q)
    if q.format.element.bits == 8:
        assert tensors.elements.data_ptr() == q.codes.ctypes.data


@pytest.mark.parametrize("fmt", ["mxfp8_e4m3", "mxfp8_e5m2"])
def test_torch_reads_the_same_values(torch, fmt):
    x = samples.generator("torch values", fmt).standard_normal((4, 64)).astype(np.float32)
    tensors = mx_torch.to_torch(mx.quantize(x, fmt))
    scales = tensors.scales.to(torch.float32).repeat_interleave(32, dim=1)
    values = tensors.elements.to(torch.float32) * scales
    assert np.array_equal(values.numpy(), mx.fake_quantize(x, fmt))
    bfloat = torch.from_numpy(x).to(torch.bfloat16)
    faked = mx_torch.fake_quantize(bfloat, fmt)
    assert faked.dtype == torch.bfloat16
    assert np.array_equal(faked.float().numpy(), mx.fake_quantize(mx_torch.as_array(bfloat), fmt).astype(np.float32))


def test_stochastic_words_may_be_a_tensor(torch):
    x = torch.randn(3, 32, generator=torch.Generator().manual_seed(0))
    words = torch.randint(-(2**31), 2**31 - 1, (3, 32), dtype=torch.int32, generator=torch.Generator().manual_seed(1))
    got = mx_torch.quantize(x, "mxfp4_e2m1", rounding="sr", random_bits=words)
    assert got.equals(mx.quantize(x.numpy(), "mxfp4_e2m1", rounding="sr", random_bits=words.numpy().view(np.uint32)))


def test_mistakes(torch):
    with pytest.raises(TypeError, match="'tensor' must be a torch tensor"):
        mx_torch.as_array(np.zeros(3))
    with pytest.raises(ValueError, match=r"on the CPU \(tensor.cpu\(\)\), not 'meta'"):
        mx_torch.as_array(torch.zeros(3, device="meta"))
    with pytest.raises(TypeError, match="'format' must be given unless"):
        mx_torch.from_torch(torch.zeros(32, dtype=torch.uint8), torch.zeros(1, dtype=torch.uint8))
    with pytest.raises(ValueError, match="'length' must be given"):
        mx_torch.from_torch(torch.zeros(24, dtype=torch.uint8), torch.zeros(1, dtype=torch.uint8), format="mxfp6_e3m2")
    with pytest.raises(ValueError, match="of even length"):
        mx_torch.to_torch(mx.quantize(np.ones(5), "mxfp4_e2m1"))
