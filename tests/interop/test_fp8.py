"""Tests that FP8 with float scales agrees with the formula, transformers and compressed-tensors."""

from __future__ import annotations

import importlib
import types
import warnings

import ml_dtypes
import numpy as np
import pytest

import mxnum as mx
from mxnum.interop import fp8
from mxnum.layout import scales_shape
from tests import samples

E4M3, E5M2, E8M0 = ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2, ml_dtypes.float8_e8m0fnu


def module(package, path):
    """Import a module without showing its warnings; skip the test if the package is missing."""
    pytest.importorskip("torch", reason="torch is not installed")
    pytest.importorskip(package, reason=f"{package} is not installed")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return importlib.import_module(path)


def tensors_of(*arrays):
    from mxnum.memory.tensors import as_tensor

    return [as_tensor(np.array(array)) for array in arrays]


def stored(shape, blocks, dtype=np.float32):
    """Return random finite E4M3 numbers, and random positive scales of many sizes."""
    rng = samples.generator("fp8", shape, blocks)
    codes = rng.integers(0, 0x7F, shape, np.uint8) | rng.integers(0, 2, shape, np.uint8) << 7
    scales = np.exp2(rng.uniform(-20, 5, scales_shape(shape, blocks)))
    return codes.view(E4M3), scales.astype(dtype)


def plainly(weight, scales, tile):
    """Return each element times the scale of its tile, in float32."""
    for axis, length in enumerate(tile):
        scales = np.repeat(scales, length, axis)
    return weight.astype(np.float32) * scales[: weight.shape[0], : weight.shape[1]].astype(np.float32)


def same(a, b):
    return a.shape == b.shape and a.dtype == b.dtype and a.tobytes() == b.tobytes()


@pytest.mark.parametrize("shape", [(256, 384), (300, 130), (5, 7), (128, 129)])
def test_tiles_are_read_by_the_plain_formula_and_written_back(shape):
    weight, scales = stored(shape, (128, 128))
    q = fp8.from_fp8(weight, scales)
    want = (shape, (128, 128) if scales.size > 1 else shape, "float32")
    assert (q.shape, q.blocks, q.format.scale.name) == want
    assert same(q.dequantize(), plainly(weight, scales, (128, 128)))
    assert np.shares_memory(q.codes, weight)
    again = fp8.to_fp8(q)
    assert same(again[0], weight)
    assert same(again[1], scales)


def test_quantized_here():
    x = samples.generator("fp8 here").standard_normal((200, 300)).astype(np.float32)
    q = mx.quantize(x, "e4m3:block=128,scale=float32", block_shape=(128, 128))
    assert fp8.from_fp8(*fp8.to_fp8(q)).equals(q)


@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16, np.float16])
def test_rows_and_one_scale(dtype):
    weight, scales = stored((6, 40), (1, 40), dtype)
    q = fp8.from_fp8(weight, scales)
    assert (q.blocks, q.format.scale.name) == ((1, 40), np.dtype(dtype).name)
    assert same(q.dequantize(), plainly(weight, scales, (1, 40)))
    assert same(fp8.to_fp8(q)[1], scales)
    for one in (scales[:1, 0], scales[0, 0].reshape(())):
        q = fp8.from_fp8(weight, one)
        assert q.blocks == (6, 40)
        assert same(q.dequantize(), plainly(weight, one.reshape(1, 1), (6, 40)))


def test_e8m0_scales_and_experts():
    weight, _ = stored((3, 4, 96), (1, 1, 32))
    scales = samples.generator("e8m0").integers(100, 140, (3, 4, 3), np.uint8)
    q = fp8.from_fp8(weight, scales.view(E8M0))
    assert q.equals(mx.MXArray.from_parts(weight.view(np.uint8), scales, "mxfp8_e4m3"))
    assert same(fp8.to_fp8(q)[1], scales.view(E8M0))
    weight, scales = stored((2, 130, 140), (1, 128, 128))
    q = fp8.from_fp8(weight, scales)
    assert q.blocks == (1, 128, 128)
    assert same(q.dequantize()[1], plainly(weight[1], scales[1], (128, 128)))
    assert fp8.from_fp8(weight.view(np.uint8).view(E5M2), scales).format.element.name == "e5m2"


def test_transformers_reads_the_same_values_and_what_it_writes_is_read():
    theirs = module("transformers", "transformers.integrations.finegrained_fp8")
    config = types.SimpleNamespace(weight_block_size=(128, 128), scale_fmt=None)
    quantizer = types.SimpleNamespace(quantization_config=config)
    import torch

    weight, scales = stored((256, 384), (128, 128))
    read = theirs.Fp8Dequantize(quantizer)._dequantize_one(*tensors_of(weight, scales), torch.float32)
    assert same(read.numpy(), fp8.from_fp8(weight, scales).dequantize())
    x = samples.generator("transformers fp8").standard_normal((256, 128)).astype(np.float32)
    made = theirs.Fp8Quantize(quantizer).convert({"q.weight": tensors_of(x)[0]})
    q = fp8.from_fp8(made["q.weight"], made["q.weight_scale_inv"])
    assert q.blocks == (128, 128)
    read = theirs.Fp8Dequantize(quantizer)._dequantize_one(*made.values(), torch.float32)
    assert same(q.dequantize().numpy(), read.numpy())


def test_compressed_tensors_reads_the_same_values_of_tiles_that_are_cut_short():
    converters = module("compressed_tensors", "compressed_tensors.entrypoints.convert.converters.fp8block_dequantizer")
    import torch

    weight, scales = stored((300, 130), (128, 128))
    q = mx.MXArray.from_parts(weight.view(np.uint8), scales, "e4m3:block=128,scale=float32", block_shape=(128, 128))
    parts = tensors_of(*fp8.to_fp8(q))
    made = converters.FP8BlockDequantizer(targets=["q"], dtype=torch.float32).process(
        {"q.weight": parts[0], "q.weight_scale_inv": parts[1]}
    )
    assert same(made["q.weight"].numpy(), q.dequantize())


def test_mistakes():
    weight, scales = stored((300, 130), (128, 128))
    for call, message in [
        (lambda: fp8.from_fp8(weight.view(np.uint8), scales), "'weight' must be an array of float8_e4m3fn or"),
        (lambda: fp8.from_fp8(weight, scales.astype(float)), "'scales' must be an array of .*float32.*, not 'float64'"),
        (lambda: fp8.from_fp8(weight, scales[:1]), r"'scales' must be of shape \(3, 2\)"),
        (lambda: fp8.from_fp8(weight, scales, block_shape=(64, 64)), r"'scales' must be of shape \(5, 3\)"),
        (lambda: fp8.from_fp8(weight, scales, block_shape=(64,)), "'block_shape' must be a tuple of 2"),
        (lambda: fp8.from_fp8(weight[0], scales), "'weight' must be of two axes or more"),
        (lambda: fp8.from_fp8(weight, -scales), "'scales' must be without a sign bit"),
        (lambda: fp8.to_fp8(mx.quantize(np.ones((2, 32)), "nvfp4")), "of e4m3 or e5m2 elements"),
        (lambda: fp8.to_fp8(mx.quantize(np.ones((2, 32)), "e4m3:block=32,scale=ue5m3")), "scales and no tensor"),
    ]:  # fmt: skip
        with pytest.raises((ValueError, TypeError), match=message):
            call()
