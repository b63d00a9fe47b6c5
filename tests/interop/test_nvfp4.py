"""Tests that mxnum, compressed-tensors and ModelOpt read and write the same NVFP4 files."""

from __future__ import annotations

import importlib
import warnings

import ml_dtypes
import numpy as np
import pytest

import mxnum as mx
from mxnum import reference, stacks
from mxnum.interop import nvfp4
from tests import samples

E4M3 = ml_dtypes.float8_e4m3fn
#: Two global scales. Dividing E4M3 scales by `EXACT` is exact in float32. Dividing E4M3 scales by
#: `ANY` is inexact, so compressed-tensors rounds values twice.
EXACT, ANY = np.float32(2.0**9), np.float32(34466.65)


def module(package, path):
    """Import a module without warnings; skip the test if the module's package is not installed."""
    pytest.importorskip("torch", reason="torch is not installed")
    pytest.importorskip(package, reason=f"{package} is not installed")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return importlib.import_module(path)


def stored(shape=(6, 64)):
    """Return random packed codes and random scales, in the layout of files."""
    rng = samples.generator("nvfp4", shape)
    packed = rng.integers(0, 256, (*shape[:-1], shape[-1] // 2), np.uint8)
    scales = rng.integers(0, 0x7F, (*shape[:-1], shape[-1] // 16), np.uint8)
    return packed, scales.view(E4M3)


def bits(array):
    return np.ascontiguousarray(array).view(f"u{array.itemsize}")


def scheme():
    quantization = module("compressed_tensors", "compressed_tensors.quantization")
    return quantization.QuantizationScheme(**module(
        "compressed_tensors", "compressed_tensors.quantization.quant_scheme"
    ).NVFP4, targets=["Linear"])  # fmt: skip


def tensors_of(*arrays):
    from mxnum.memory.tensors import as_tensor

    return [as_tensor(np.array(array)) for array in arrays]


@pytest.mark.parametrize("global_scale", [EXACT, ANY])
def test_compressed_tensors_reads_the_same_values(global_scale):
    compressor = module("compressed_tensors", "compressed_tensors.compressors.nvfp4.base").NVFP4PackedCompressor
    forward = module("compressed_tensors", "compressed_tensors.quantization.lifecycle.forward")
    helpers = module("compressed_tensors", "compressed_tensors.compressors.nvfp4.helpers")
    import torch

    packed, scales = stored()
    q = nvfp4.from_nvfp4(packed, scales, np.array([global_scale]), direction="encode")
    again = nvfp4.to_nvfp4(q, direction="encode", global_scale=global_scale)
    assert [part.tobytes() for part in again] == [packed.tobytes(), scales.tobytes(), global_scale.tobytes()]
    assert again[2].shape == (1,)
    names = "weight_packed", "weight_scale", "weight_global_scale"
    given = dict(zip(names, tensors_of(*again), strict=True))
    read = compressor.decompress(given, scheme())["weight"]
    unpacked = helpers.unpack_fp4_from_uint8(given["weight_packed"], *q.shape, dtype=torch.float32)
    wide = forward.dequantize(
        unpacked, given["weight_scale"].float(), args=scheme().weights, global_scale=given["weight_global_scale"]
    ).numpy()
    theirs = nvfp4.values_of(q, "compressed_tensors", global_scale=global_scale)
    assert np.array_equal(bits(wide), bits(theirs))
    assert np.array_equal(bits(read.view(torch.uint16).numpy()), bits(theirs.astype(ml_dtypes.bfloat16)))
    is_exact = global_scale == EXACT
    assert np.array_equal(bits(wide), bits(q.dequantize())) == is_exact
    assert np.array_equal(q.dequantize("float64"), wide.astype(np.float64)) == is_exact


def test_what_compressed_tensors_writes_is_read():
    compressor = module("compressed_tensors", "compressed_tensors.compressors.nvfp4.base").NVFP4PackedCompressor
    x = samples.generator("compressed").standard_normal((8, 96)).astype(np.float32)
    ours = mx.quantize(x, "nvfp4", arithmetic="compressed_tensors")
    global_scale = stacks.quantize(x, "compressed_tensors", blocks=(1, 16)).global_scale
    scales = nvfp4.to_nvfp4(ours, direction="encode", global_scale=global_scale)[1].astype(np.float32)
    names = "weight", "weight_scale", "weight_global_scale"
    given = dict(zip(names, tensors_of(x, scales, np.array([global_scale])), strict=True))
    written = compressor.compress(given, scheme())
    parts = [written[name] for name in ("weight_packed", "weight_scale", "weight_global_scale")]
    assert nvfp4.from_nvfp4(*parts, direction="encode").to_host().equals(ours)
    assert nvfp4.from_nvfp4(*parts, direction="encode").is_packed


@pytest.mark.parametrize("global_scale", [np.float32(1 / EXACT), np.float32(0.1)])
def test_modelopt_reads_the_same_values(global_scale):
    tensor = module("modelopt", "modelopt.torch.quantization.qtensor.nvfp4_tensor").NVFP4QTensor
    import torch

    packed, scales = stored()
    q = nvfp4.from_nvfp4(packed, scales, global_scale, direction="decode")
    again = nvfp4.to_nvfp4(q, direction="decode")
    assert [part.tobytes() for part in again] == [packed.tobytes(), scales.tobytes(), global_scale.tobytes()]
    assert again[2].shape == ()
    bytes_, scale, number = tensors_of(*again)
    made = tensor(torch.Size(q.shape), torch.float32, bytes_)
    read = made.dequantize(torch.float32, scale=scale, double_scale=number, block_sizes={-1: 16}).numpy()
    # ModelOpt decodes the code of -0 to +0.
    theirs = nvfp4.values_of(q, "modelopt")
    assert np.array_equal(read, theirs)
    assert np.array_equal(read, q.dequantize()) == (global_scale != np.float32(0.1))


def test_what_modelopt_writes_is_read():
    tensor = module("modelopt", "modelopt.torch.quantization.qtensor.nvfp4_tensor").NVFP4QTensor
    x = samples.generator("modelopt").standard_normal((8, 96)).astype(np.float32)
    made, scales, number = tensor.quantize(*tensors_of(x), 16)
    q = nvfp4.from_nvfp4(made._quantized_data, scales, number, direction="decode")
    assert q.to_host().equals(mx.quantize(x, "nvfp4", arithmetic="modelopt"))
    assert q.scales.data_ptr() == scales.data_ptr()


def test_modelopt_has_no_tensor_scales_of_rows():
    """Check that ModelOpt cannot read a tensor scale for each row, so `to_nvfp4` must raise."""
    tensor = module("modelopt", "modelopt.torch.quantization.qtensor.nvfp4_tensor").NVFP4QTensor
    import torch

    q = mx.quantize(np.outer([1.0, 2, 3, 4], np.ones(64)), "nvfp4", tensor_scale="row")
    bytes_, scale, number = tensors_of(q.pack(), q.scales.view(E4M3), q.tensor_scale[:, 0])

    def read(rows):
        made = tensor(torch.Size((rows, 64)), torch.float32, bytes_[:rows])
        return made.dequantize(torch.float32, scale=scale[:rows], double_scale=number[:rows], block_sizes={-1: 16})

    # With 4 rows of 4 blocks, ModelOpt broadcasts along the wrong axis without an error.
    assert not np.array_equal(read(4).numpy(), q.dequantize())
    with pytest.raises(RuntimeError, match="size of tensor"):
        read(3)


@pytest.mark.parametrize("direction", nvfp4.DIRECTIONS)
def test_experts_have_a_global_scale_each(direction):
    packed, scales = stored((3, 4, 32))
    numbers = np.array([2, 8, 0.5], np.float32)
    q = nvfp4.from_nvfp4(packed, scales, numbers, direction=direction)
    again = nvfp4.to_nvfp4(q, direction=direction)
    assert [part.tobytes() for part in again] == [packed.tobytes(), scales.tobytes(), numbers.tobytes()]
    for i, number in enumerate(numbers):
        one = nvfp4.from_nvfp4(packed[i], scales[i], number, direction=direction)
        assert np.array_equal(q[i].dequantize(), one.dequantize())
        factor = number if direction == "decode" else 1 / number
        want = reference.dequantize(one.codes, one.scales, "nvfp4", blocks=(1, 16), tensor_scale=factor)
        assert np.array_equal(bits(one.dequantize()), bits(want))


def test_arrays_share_the_memory_of_the_file():
    packed, scales = stored()
    q = nvfp4.from_nvfp4(packed, scales, np.float32(1), direction="decode")
    assert np.shares_memory(q.pack(), packed)
    assert np.shares_memory(q.scales, scales)


def test_global_scales_without_an_exact_reciprocal_raise():
    packed, scales = stored((1, 16))
    rng, refused = samples.generator("reciprocals"), 0
    for number in np.exp2(rng.uniform(-100, 100, 400)).astype(np.float32):
        q = nvfp4.from_nvfp4(packed, scales, number, direction="encode")
        found = nvfp4.to_nvfp4(q, direction="encode")[2]
        assert nvfp4.from_nvfp4(packed, scales, found, direction="encode").equals(q)
        decode = nvfp4.from_nvfp4(packed, scales, number, direction="decode")
        near = [np.float32(1) / number]
        for toward in (0, np.inf):
            near += [np.nextafter(near[0], np.float32(toward))]
        if any(np.float32(1) / candidate == number for candidate in near):
            assert nvfp4.to_nvfp4(decode, direction="encode")[2] in near
        else:
            refused += 1
            with pytest.raises(ValueError, match="a tensor scale that is the reciprocal of a float32 number, not"):
                nvfp4.to_nvfp4(decode, direction="encode")
    assert 20 < refused < 200


@pytest.mark.parametrize("shape", [(2, 2, 16), (1, 2, 16), (2, 16)])
@pytest.mark.parametrize("direction", nvfp4.DIRECTIONS)
def test_tensor_scales_of_rows_are_refused(direction, shape):
    q = mx.quantize(np.ones(shape), "nvfp4", tensor_scale="row")
    with pytest.raises(
        ValueError, match="'q' must be an array with one tensor scale, or an array of at least three axes with one"
    ):
        nvfp4.to_nvfp4(q, direction=direction)


def test_mistakes():
    packed, scales = stored()
    one = np.float32(1)
    q = nvfp4.from_nvfp4(packed, scales, one, direction="decode")
    for call, message in [
        (lambda: nvfp4.from_nvfp4(packed, scales, one, direction="up"), r"'direction' must be one of \['encode', 'dec"),
        (lambda: nvfp4.from_nvfp4(packed.astype(int), scales, one, direction="decode"), "'packed' must be a uint8"),
        (lambda: nvfp4.from_nvfp4(packed[:, :5], scales, one, direction="decode"), "of 8 bytes a block"),
        (lambda: nvfp4.from_nvfp4(packed, scales[:, :1], one, direction="decode"), r"'scales' must be of shape \(6"),
        (lambda: nvfp4.from_nvfp4(packed, scales.astype(np.float32), one, direction="decode"), "'scales' must be a"),
        (lambda: nvfp4.from_nvfp4(packed, scales, 1.0, direction="decode"), "'global_scale' must be a float32"),
        (lambda: nvfp4.from_nvfp4(packed, scales, -one, direction="decode"), "'tensor_scale' must be without a sign"),
        (lambda: nvfp4.to_nvfp4(q, direction="encode", global_scale=np.float32(3)), r"reciprocal is \[1.0\], not \[3"),
        (lambda: nvfp4.values_of(q, "modelopt", global_scale=one), "'global_scale' must be left out"),
        (lambda: nvfp4.values_of(q, "transformer_engine"), r"'stack' must be one of \['compressed_tensors', 'vllm'"),
        (lambda: nvfp4.to_nvfp4(q, direction="decode", global_scale=one), "'global_scale' must be left out"),
        (lambda: nvfp4.to_nvfp4(mx.quantize(np.ones(32), "mxfp4_e2m1"), direction="decode"), "of E4M3 scales"),
        (lambda: nvfp4.to_nvfp4(mx.quantize(np.ones((2, 24)), "nvfp4"), direction="decode"),
         r"'q' must be of a shape whose last axis has a multiple of 16 elements, not \(2, 24\)"),
        (lambda: nvfp4.to_nvfp4(mx.quantize(np.ones((16, 2)), "nvfp4", axis=0), direction="decode"),
         r"'q' must be in whole blocks of 16 along the last axis, not \(16, 1\)"),
    ]:  # fmt: skip
        with pytest.raises((ValueError, TypeError), match=message):
            call()
