"""NVFP4 as each stack computes it, against the stacks themselves where they install on a CPU."""

from __future__ import annotations

import importlib
import os
import sys
import types
import warnings
from functools import cache
from pathlib import Path

import numpy as np
import pytest

import mxnum as mx
from mxnum import stacks

MAX = np.finfo(np.float32).max
#: Tensors of 4096 blocks: what a draw makes of a generator and a shape.
FAMILIES = {
    "normal": lambda draw, shape: draw.standard_normal(shape),
    "a range of sizes": lambda draw, shape: draw.standard_normal(shape) * 2.0 ** draw.uniform(-100, 100),
    "heavy tails": lambda draw, shape: signs(draw, shape) * np.exp(3 * draw.standard_normal(shape)),
    "every exponent": lambda draw, shape: signs(draw, shape) * 2.0 ** draw.uniform(-149, 127.9, shape),
    "blocks of every size": lambda draw, shape: (
        draw.standard_normal(shape) * 2.0 ** draw.uniform(-30, 0, (shape[0], 1))
    ),
    "near ties": lambda draw, shape: draw.integers(-48, 49, shape) * np.float32(2.0 ** draw.integers(-20, 20) / 3),
    "zeros among others": lambda draw, shape: draw.standard_normal(shape) * (draw.random((shape[0], 1)) < 0.9),
    "large": lambda draw, shape: draw.uniform(-1, 1, shape) * float(MAX),
    "small": lambda draw, shape: draw.uniform(-1, 1, shape) * 2.0**-110,
    "subnormal": lambda draw, shape: draw.uniform(-1, 1, shape) * 2.0**-126,
    "infinities": lambda draw, shape: np.where(draw.random(shape) < 1e-4, np.inf, draw.standard_normal(shape)),
}


def signs(draw, shape):
    return draw.choice([-1.0, 1.0], shape)


@cache
def tensors(family):
    draw = np.random.default_rng(list(FAMILIES).index(family))
    with np.errstate(all="ignore"):
        return [FAMILIES[family](draw, (4096, 16)).astype(np.float32) for _ in range(5)]


def nvfp4_of(package, path):
    """A module of an optional package, imported without its warnings; the test is skipped without it."""
    pytest.importorskip(package, reason=f"{package} is not installed")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return importlib.import_module(path)


def tensor_of(x):
    torch = pytest.importorskip("torch", reason="torch is not installed")
    if x.dtype == np.float32:
        return torch.from_numpy(x)
    return torch.from_numpy(x.view(np.int16)).view(getattr(torch, x.dtype.name))


def bytes_of(tensor):
    import torch

    return tensor.view(torch.uint8).numpy().ravel()


def unpacked(packed):
    packed = packed.numpy().reshape(-1, 8)
    return np.stack([packed & 15, packed >> 4], axis=-1).reshape(-1, 16)


def torchao(x, has_global=True):
    nvfp4 = nvfp4_of("torchao", "torchao.prototype.mx_formats.nvfp4_tensor")
    tensor = tensor_of(x)
    scale = nvfp4.per_tensor_amax_to_scale(tensor.abs().max()) if has_global else None
    scales, codes = nvfp4.nvfp4_quantize(tensor, 16, scale)
    return unpacked(codes), bytes_of(scales), np.float32(1 if scale is None else scale.item())


def modelopt(x):
    nvfp4 = nvfp4_of("modelopt", "modelopt.torch.quantization.qtensor.nvfp4_tensor")
    made, scales, scale = nvfp4.NVFP4QTensor.quantize(tensor_of(x), 16)
    return unpacked(made._quantized_data), bytes_of(scales), np.float32(scale.item())


def compressed_tensors(x):
    """Scales as its observers make them, and the weight as its compressor packs it."""
    helpers = nvfp4_of("compressed_tensors", "compressed_tensors.quantization.utils.helpers")
    quantization = nvfp4_of("compressed_tensors", "compressed_tensors.quantization")
    packing = nvfp4_of("compressed_tensors", "compressed_tensors.compressors.nvfp4.helpers")
    import torch

    arguments = quantization.QuantizationArgs(
        num_bits=4, type="float", strategy="tensor_group", group_size=16, scale_dtype=torch.float8_e4m3fn
    )
    tensor = tensor_of(x)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        global_scale = helpers.generate_gparam(tensor.min(), tensor.max())
        scales, _ = helpers.calculate_qparams(tensor.amin(1), tensor.amax(1), arguments, global_scale)
        packed = packing.quantize_and_pack_fp4(tensor, scales[:, None], global_scale, None, 16)
    return unpacked(packed), bytes_of(scales.to(torch.float8_e4m3fn)), np.float32(global_scale.item())


PACKAGES = {
    "torchao": torchao,
    "torchao_single": lambda x: torchao(x, has_global=False),
    "modelopt": modelopt,
    "compressed_tensors": compressed_tensors,
}


def check(stack, x, codes, scales, global_scale):
    """Equal, but for what cannot be: the sign of a scale that is NaN, and what its elements are, which read NaN."""
    got = stacks.quantize(x, stack)
    is_nan = scales & 0x7F == 0x7F
    assert got.global_scale == global_scale or (np.isnan(got.global_scale) and np.isnan(global_scale))
    assert np.array_equal(got.scales, np.where(is_nan, 0x7F, scales))
    assert np.array_equal(got.codes[~is_nan], codes[~is_nan])


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("stack", PACKAGES)
def test_equals_the_package(stack, family):
    for x in tensors(family):
        try:
            check(stack, x, *PACKAGES[stack](x))
        except ValueError as refused:
            assert "makes no NaN" in str(refused)
            assert (family, stack) in {("subnormal", "torchao")}


@pytest.mark.parametrize("family", ["normal", "heavy tails", "blocks of every size", "zeros among others", "small"])
@pytest.mark.parametrize("stack", PACKAGES)
def test_equals_the_package_in_bfloat16(stack, family):
    for x in tensors(family)[:2]:
        x = x.astype("bfloat16")
        check(stack, x, *PACKAGES[stack](x))
