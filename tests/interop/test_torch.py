from __future__ import annotations

import numpy as np
import pytest

import mxnum as mx
from mxnum.interop import torch as mx_torch
from mxnum.memory.tensors import host_array
from tests import samples


@pytest.fixture
def torch():
    return pytest.importorskip("torch", reason="the extra torch is not installed")


@pytest.mark.parametrize("name", ["float64", "float32", "float16", "bfloat16"])
def test_floats_share_memory(torch, name):
    tensor = torch.tensor([[1.5, -2.0, 0.1]], dtype=getattr(torch, name))
    array = host_array("tensor", tensor)
    assert array.dtype.name == name
    array[0, 0] = 3
    assert tensor[0, 0] == 3
    back = mx_torch.as_tensor(array)
    assert back.dtype == tensor.dtype
    assert back.data_ptr() == tensor.data_ptr()
    assert mx.quantize(array, "mxfp8_e4m3").equals(mx_torch.quantize(tensor, "mxfp8_e4m3"))


@pytest.mark.parametrize("fmt", ["mxfp8_e4m3", "mxfp8_e5m2", "mxfp4_e2m1", "mxint8", "mxfp6_e3m2", "mxint4"])
def test_tensors_are_converted_there_and_back(torch, fmt):
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


FLOAT_SCALES = {
    "nvfp4": "float8_e4m3fn", "e4m3:block=16,scale=float32": "float32", "int8:block=32,scale=bfloat16": "bfloat16",
    "e3m2:block=32,scale=float16": "float16", "e2m1:block=8,scale=ue5m3": "uint8",
}  # fmt: skip


@pytest.mark.parametrize("fmt", FLOAT_SCALES)
def test_scales_that_are_floats(torch, fmt):
    q = mx.quantize(samples.generator("torch", fmt).standard_normal((4, 96)).astype(np.float32), fmt)
    tensors = mx_torch.to_torch(q)
    assert str(tensors.scales.dtype) == f"torch.{FLOAT_SCALES[fmt]}"
    assert tensors.scales.data_ptr() == q.scales.ctypes.data
    assert (tensors.tensor_scale is None) == (q.tensor_scale is None)
    given, length = (tensors.elements, tensors.scales, tensors.tensor_scale), 96 if "e3m2" in fmt else None
    assert mx_torch.from_torch(*given, format=fmt, length=length).to_host().equals(q)
    with pytest.raises(TypeError, match=r"'scales' must be of torch\.\w+( or torch.uint8)?, not torch.float64"):
        mx_torch.from_torch(tensors.elements, tensors.scales.to(torch.float64), format=fmt, length=length)


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
    assert np.array_equal(faked.float().numpy(), mx.fake_quantize(host_array("x", bfloat), fmt).astype(np.float32))


SR = {"format": "mxfp4_e2m1", "rounding": "sr"}
INTEGERS = ["uint8", "int8", "int16", "int32", "int64", "uint16", "uint32", "uint64"]


@pytest.mark.parametrize("name", INTEGERS)
def test_stochastic_words_are_integers_by_value(torch, name):
    # Regression: if random words had an integer type of 8, 16 or 64 bits, their bytes were read as
    # 32-bit words. The words must be converted by value.
    x = torch.randn(3, 32, generator=torch.Generator().manual_seed(0))
    dtype = getattr(torch, name)
    most = min(torch.iinfo(dtype).max, (1 << 32) - 1)
    words = samples.generator("words", name).integers(0, most, (3, 32), np.uint32, endpoint=True)
    words[0, :2] = 0, most
    given = torch.from_numpy(words.astype(name))
    for options in ({"sr_bits": 30}, {"sr_bits": 7}):
        got = mx_torch.quantize(x, **SR, **options, random_bits=given)
        assert got.equals(mx.quantize(x.numpy(), **SR, **options, random_bits=words))
        faked = mx_torch.fake_quantize(x, **SR, **options, random_bits=given.T.contiguous().T)
        assert np.array_equal(faked.numpy(), mx.fake_quantize(x.numpy(), **SR, **options, random_bits=words))


def test_random_bits_that_are_not_32_bit_words_raise(torch):
    x = torch.zeros(2, 32)
    for wrong in (torch.rand(2, 32), torch.ones(2, 32, dtype=torch.bool), torch.rand(2, 32).to(torch.bfloat16)):
        with pytest.raises(TypeError, match=r"'random_bits' must be a tensor of integers, not torch\."):
            mx_torch.quantize(x, **SR, random_bits=wrong)
    words = torch.zeros(2, 32, dtype=torch.int64)
    words[1, 3:5] = torch.tensor([1 << 32, -1])
    with pytest.raises(ValueError, match=r"between 0 and 4294967295, not 4294967296 at index \(1, 3\)\.$"):
        mx_torch.quantize(x, **SR, random_bits=words)
    with pytest.raises(ValueError, match=r"not -1 at index \(1, 4\)"):
        mx_torch.quantize(x, **SR, random_bits=words.clamp(max=9))
    wide = np.zeros((2, 32), np.uint64)
    wide[0, 2] = (1 << 64) - 1
    with pytest.raises(ValueError, match=r"not 18446744073709551615 at index \(0, 2\)"):
        mx_torch.quantize(x, **SR, random_bits=torch.from_numpy(wide))
    for shape in ((2, 16), (2, 64), (64,), (2, 128)):
        with pytest.raises(ValueError, match=r"'random_bits' must be of shape \(2, 32\)"):
            mx_torch.quantize(x, **SR, random_bits=torch.zeros(shape, dtype=torch.uint8))
    with pytest.raises(TypeError, match="'random_bits' must be a uint32 array, not 'int64'"):
        mx_torch.quantize(x, **SR, random_bits=words.numpy())
    with pytest.raises(TypeError, match="'random_bits' must be a torch tensor, not 'list'"):
        mx_torch.quantize(x, **SR, random_bits=[1, 2])


def test_a_generator_is_a_seed_that_advances(torch):
    x = torch.randn(3, 32, generator=torch.Generator().manual_seed(0))
    generator, again = (torch.Generator().manual_seed(7) for _ in range(2))
    made = [mx_torch.fake_quantize(x, **SR, seed=generator) for _ in range(2)]
    assert not torch.equal(*made)
    for each in made:
        seed = torch.empty((), dtype=torch.int64).random_(-(2**63), None, generator=again).item() % 2**64
        assert torch.equal(each, mx_torch.fake_quantize(x, **SR, seed=seed))
    with pytest.raises(ValueError, match="'seed' must be left out unless rounding='sr'"):
        mx_torch.quantize(x, "mxfp4_e2m1", seed=generator)
    with pytest.raises(TypeError, match="'seed' must be an integer, not <torch"):
        mx.quantize(x, **SR, seed=generator)


def test_tensors_that_require_a_gradient_raise(torch):
    # If these functions accepted such a tensor, its gradient would silently be lost.
    weight = torch.nn.Linear(32, 4).weight
    for call in (mx_torch.quantize, mx_torch.fake_quantize):
        with pytest.raises(TypeError, match=r"'tensor' must not require a gradient.*tensor\.detach\(\)"):
            call(weight, "mxfp8_e4m3")
        with torch.no_grad():
            call(weight, "mxfp8_e4m3")


def test_what_would_be_read_as_something_else_is_refused(torch):
    # Regression: `from_torch` read tensors of a wrong type as codes and scales.
    q = mx.quantize(np.ones((2, 64), np.float32), "mxfp8_e4m3")
    tensors = mx_torch.to_torch(q)
    for elements in (torch.ones(2, 16), tensors.elements.view(torch.float8_e5m2), torch.ones(2, 64, dtype=torch.int8)):
        with pytest.raises(
            TypeError, match=r"'elements' must be torch.uint8 or the type of e4m3 for mxfp8_e4m3, not torch"
        ):
            mx_torch.from_torch(elements, tensors.scales, format="mxfp8_e4m3")
    for scales in (torch.ones(2, 2), torch.ones(2, 2, dtype=torch.int8)):
        with pytest.raises(TypeError, match=r"'scales' must be of torch.float8_e8m0fnu or torch.uint8, not torch"):
            mx_torch.from_torch(tensors.elements, scales)
    assert mx_torch.from_torch(tensors.elements.view(torch.uint8), tensors.scales, format="mxfp8_e4m3").equals(q)
    with pytest.raises(ValueError, match="'q' must be without offsets"):
        mx_torch.to_torch(mx.quantize(np.ones(32), "mxfp8_e4m3", offset="float16"))
    with pytest.raises(TypeError, match="'q' must be an MXArray, not 'Tensor'"):
        mx_torch.to_torch(torch.ones(3))
    with pytest.raises(ValueError, match="'packed' must be an array of at least one axis"):
        mx_torch.from_torch(torch.tensor(3, dtype=torch.uint8), tensors.scales, format="mxfp4_e2m1")
    # Regression: for elements with another bias, `to_torch` used torch's type for the usual bias.
    for fmt in ("e2m1:bias=2", "e4m3:bias=8"):
        q = mx.quantize(np.ones((2, 64), np.float32), fmt)
        own = mx_torch.to_torch(q)
        assert own.elements.dtype == torch.uint8
        assert mx_torch.from_torch(own.elements, own.scales, format=fmt).equals(q)
    with pytest.raises(TypeError, match=r"'elements' must be torch.uint8"):
        mx_torch.from_torch(tensors.elements, tensors.scales, format="e4m3:bias=8")


def test_arrays_that_tensors_cannot_share(torch):
    for array in (np.arange(4.0)[::-1], np.broadcast_to(np.ones(1), 3)):
        with pytest.raises(
            ValueError, match=r"'array' must be writable and without negative strides \(array.copy\(\)\)"
        ):
            mx_torch.as_tensor(array)
    with pytest.raises(ValueError, match="'array' must be in native byte order, not '>f4'"):
        mx_torch.as_tensor(np.ones(3, ">f4"))


def test_mx_arrays_of_tensors_are_tensors(torch):
    q = mx_torch.quantize(torch.ones(2, 64), "mxfp8_e4m3")
    tensors = mx_torch.to_torch(q)
    assert tensors.elements.data_ptr() == q.codes.data_ptr()
    back = mx_torch.from_torch(tensors.elements, tensors.scales)
    assert isinstance(back.codes, torch.Tensor)
    assert back.codes.data_ptr() == q.codes.data_ptr()


def test_mistakes(torch):
    with pytest.raises(TypeError, match="'tensor' must be a torch tensor"):
        mx_torch.quantize(np.zeros(3), "mxint8")
    with pytest.raises(ValueError, match=r"on the CPU or a CUDA device \(tensor.cpu\(\)\), not 'meta'"):
        mx_torch.quantize(torch.zeros(3, device="meta"), "mxint8")
    with pytest.raises(TypeError, match=r"'format' must be given for torch.uint8 elements"):
        mx_torch.from_torch(torch.zeros(32, dtype=torch.uint8), torch.zeros(1, dtype=torch.uint8))
    with pytest.raises(ValueError, match="'length' must be given"):
        mx_torch.from_torch(torch.zeros(24, dtype=torch.uint8), torch.zeros(1, dtype=torch.uint8), format="mxfp6_e3m2")
    codes = torch.zeros(32, dtype=torch.uint8)
    with pytest.raises(ValueError, match="'length' must be 32, the number of codes in a row, or left out, not 5"):
        mx_torch.from_torch(codes, torch.zeros(1, dtype=torch.uint8), format="mxfp8_e4m3", length=5)
    with pytest.raises(ValueError, match="of even length"):
        mx_torch.to_torch(mx.quantize(np.ones(5), "mxfp4_e2m1"))
