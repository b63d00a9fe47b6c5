"""Tests that formats with float scales have the same bits on a GPU as on the CPU."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import mxnum as mx
from mxnum import formats, reference
from mxnum.modes import Rounding
from tests.engine.cuda.test_passes import LAYOUTS, assert_same_bits, compare, floats, host, moded
from tests.float_scale_cases import FORMATS
from tests.samples import generator

WIDE = "e4m3:block=128,scale=float32"
ROUNDINGS = [str(mode) for mode in Rounding]


@pytest.mark.parametrize(("fmt", "rounding"), list(itertools.product(("nvfp4", WIDE), ROUNDINGS)))
def test_formats_and_modes(device, fmt, rounding):
    for rule, overflow, dtype, layout in zip(
        ("nearest", "rceil"), ("saturate", "ieee"), generator(fmt, rounding).permutation(list(formats.FLOATS)),
        ({}, {"block_shape": (2, 5)}), strict=False,
    ):  # fmt: skip
        x = floats(str(dtype), (3, 70), fmt, rounding, rule)
        modes = moded(rounding, x.shape, (fmt, rule))
        compare(device, x, fmt, ("random_bits",), scale_rule=rule, overflow=overflow, **modes, **layout)


@pytest.mark.parametrize("fmt", FORMATS)
def test_scales_of_every_kind(device, fmt):
    rng = generator(fmt)
    for layout in ({}, LAYOUTS[int(rng.integers(len(LAYOUTS)))]):
        x = floats(str(rng.choice(list(formats.FLOATS))), (3, 40), fmt, str(layout))
        compare(device, x, fmt, **layout)
        assert_same_bits(host(mx.shared_scale(device(x), fmt, **layout)), mx.shared_scale(x, fmt, **layout), fmt)
    q = mx.quantize(device(x), fmt)
    again = mx.MXArray.from_parts(q.codes, q.scales, fmt, tensor_scale=q.tensor_scale)
    assert again.equals(q)
    compare(device, x, fmt, ("scales",), scales=mx.shared_scale(x, fmt))
    assert q.T.to_host().equals(q.to_host().T)
    assert_same_bits(host(q[1:].dequantize("float64")), q.to_host()[1:].dequantize("float64"), fmt)


def test_is_the_reference(device):
    x = floats("float32", (2, 40))
    got, want = mx.quantize(device(x), "nvfp4", packed=True).to_host(), reference.quantize(x, "nvfp4", blocks=(1, 16))
    assert np.array_equal(got.codes, want.codes)
    assert np.array_equal(got.scales, want.scales)
    assert got.tensor_scale == want.tensor_scale


def test_tensor_scales(device):
    x = floats("float32", (3, 40), special=False)
    compare(device, x, "nvfp4", tensor_scale="row")
    compare(device, x, "nvfp4", tensor_scale=0.5)
    of_rows = np.array([[1.0], [2.0], [0.25]], np.float32)
    compare(device, x, "nvfp4", ("tensor_scale",), tensor_scale=of_rows)
    for empty in ((0, 4), (3, 0)):
        got = mx.quantize(device(np.zeros(empty, np.float32)), "nvfp4")
        assert got.to_host().tensor_scale == 1
    with pytest.raises(ValueError, match=r"'tensor_scale' .* positive and finite"):
        mx.quantize(device(x), "nvfp4", tensor_scale=device(-of_rows))


def test_what_is_refused(device):
    x = device(np.ones((2, 16), np.float32))
    with pytest.raises(ValueError, match="'scale_rule' must be 'nearest' or 'rceil' for arrays on a GPU"):
        mx.quantize(x, "nvfp4", scale_rule="four_over_six_squared")
    with pytest.raises(TypeError, match="or leave out `arithmetic`"):
        mx.fake_quantize(x, "nvfp4", arithmetic="torchao")
    q = mx.quantize(x, "nvfp4")
    with pytest.raises(TypeError, match="products on a GPU need E8M0 scales"):
        mx.matmul(q, q.T, accumulate="sequential")
    with pytest.raises(ValueError, match="without a sign bit"):
        mx.quantize(x, WIDE, scales=device(np.full((2, 1), -1, np.float32)))
    with pytest.raises(ValueError, match="'out' must be left out for arrays on a GPU"):
        mx.quantize(x, "nvfp4", out=mx.quantize(x, "nvfp4"))
    with pytest.raises((TypeError, ValueError), match="'tensor_scale'"):
        mx.quantize(x, "nvfp4", tensor_scale=np.ones((), np.float32))
