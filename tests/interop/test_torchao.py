from __future__ import annotations

import importlib
import warnings

import numpy as np
import pytest

import mxnum as mx
from mxnum import stacks
from mxnum.interop import torchao as mx_torchao
from tests import samples


@pytest.fixture
def theirs():
    pytest.importorskip("torch", reason="torch is not installed")
    pytest.importorskip("torchao", reason="torchao is not installed")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return importlib.import_module("torchao.prototype.mx_formats.nvfp4_tensor")


def numbers(shape=(6, 64)):
    return samples.generator("torchao", shape).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("stack", ["torchao", "torchao_single"])
def test_tensors_made_by_torchao_are_read(theirs, stack):
    import torch

    x = numbers()
    scale = theirs.per_tensor_amax_to_scale(torch.from_numpy(x).abs().max()) if stack == "torchao" else None
    made = theirs.NVFP4Tensor.to_nvfp4(torch.from_numpy(x), per_tensor_scale=scale)
    q = mx_torchao.from_torchao(made)
    want = stacks.quantize(x, stack, blocks=(1, 16))
    host = q.to_host()
    assert np.array_equal(host.codes, want.codes)
    assert np.array_equal(host.scales, want.scales)
    assert q.scales.data_ptr() == made.scale.data_ptr()
    assert host.format.tensor_scale == ("float32" if scale is not None else None)
    assert np.array_equal(made.dequantize().numpy(), stacks.dequantize(want, stack))
    again = mx_torchao.to_torchao(q)
    assert torch.equal(again.qdata.view(torch.uint8), made.qdata.view(torch.uint8))
    assert torch.equal(again.dequantize(), made.dequantize())


@pytest.mark.parametrize("shape", [(6, 64), (3, 4, 32)])
def test_tensors_are_converted_there_and_back(theirs, shape):
    import torch

    for tensor_scale in (2.0**-7, np.ones((3, 1, 1), np.float32) * 4)[: len(shape) - 1]:
        q = mx.quantize(numbers(shape), "nvfp4", tensor_scale=tensor_scale)
        tensor = mx_torchao.to_torchao(q, torch.bfloat16)
        assert (tuple(tensor.shape), tensor.dtype) == (shape, torch.bfloat16)
        # The scales are powers of two, so the product rounds once.
        assert np.array_equal(tensor.dequantize(torch.float32).numpy(), q.dequantize())
        assert mx_torchao.from_torchao(tensor).to_host().equals(q)


def test_mistakes(theirs):
    import torch

    tensor = mx_torchao.to_torchao(mx.quantize(numbers(), "nvfp4"))
    tensor.is_swizzled_scales = True
    for call, message in [
        (lambda: mx_torchao.from_torchao(torch.ones(3)), "'tensor' must be an NVFP4Tensor, not 'Tensor'"),
        (lambda: mx_torchao.from_torchao(tensor), "'tensor' must be an NVFP4Tensor without swizzled scales"),
        (lambda: mx_torchao.to_torchao(mx.quantize(np.ones(32), "nvfp4")), "'q' must be of two or three axes"),
        (lambda: mx_torchao.to_torchao(mx.quantize(np.ones((2, 32)), "mxfp4_e2m1")), "'q' must be of E4M3 scales"),
        (
            lambda: mx_torchao.to_torchao(mx.quantize(np.ones((2, 32)), "nvfp4", tensor_scale="row")),
            "an array with one tensor scale",
        ),
    ]:
        with pytest.raises((TypeError, ValueError), match=message):
            call()
    tensor = mx_torchao.to_torchao(mx.quantize(numbers((32, 64)), "nvfp4"))
    with pytest.raises(ValueError, match="'tensor' must be contiguous, not a transpose"):
        mx_torchao.from_torchao(tensor.t())
