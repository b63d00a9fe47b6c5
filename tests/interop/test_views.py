from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import mxnum as mx
from mxnum.interop import views
from tests import samples


@pytest.mark.parametrize("fmt", ["mxfp8_e4m3", "mxfp8_e5m2", "mxfp6_e3m2", "mxfp6_e2m3", "mxfp4_e2m1", "mxint8"])
def test_there_and_back_on_the_same_memory(fmt):
    x = samples.generator("views", fmt).standard_normal((4, 70)).astype(np.float32)
    q = mx.quantize(x, fmt)
    elements, scales = views.to_views(q)
    assert np.shares_memory(elements, q.codes)
    assert np.shares_memory(scales, q.scales)
    back = views.from_views(elements, scales)
    assert np.shares_memory(back.codes, q.codes)
    assert back.equals(q)
    factor = 2.0**-6 if fmt == "mxint8" else 1.0
    values = elements.astype(np.float64) * factor * np.repeat(scales.astype(np.float64), 32, axis=1)[:, :70]
    assert np.array_equal(values, q.dequantize("float64"))


@pytest.mark.parametrize(
    "fmt", ["nvfp4", "e4m3:block=16,scale=float32", "int8:block=32,scale=bfloat16", "e5m2:block=8,scale=ue5m3"]
)
def test_scales_that_are_floats(fmt):
    q = mx.quantize(samples.generator("views", fmt).standard_normal((4, 70)).astype(np.float32), fmt)
    parts = views.to_views(q)
    assert [part.dtype.name for part in parts[1:]] == {
        "e4m3": ["float8_e4m3fn", "float32"], "float32": ["float32"], "bfloat16": ["bfloat16"], "ue5m3": ["uint8"]
    }[q.format.scale.name]  # fmt: skip
    assert np.shares_memory(parts[1], q.scales)
    assert views.from_views(*parts, format=fmt).equals(q)
    with pytest.raises((TypeError, ValueError), match=r"'(scales|tensor_scale)' must be "):
        views.from_views(*parts)


def test_axis_and_format():
    elements = np.ones((6, 4), ml_dtypes.float4_e2m1fn)
    q = views.from_views(elements, np.full((3, 4), 128, np.uint8), axis=0, block_size=2)
    assert (q.dequantize() == 2).all()
    with pytest.raises(TypeError, match="'elements' must be an array of float8_e4m3fn"):
        views.from_views(np.ones(4), np.zeros(1, np.uint8))
    with pytest.raises(ValueError, match="of e2m1 elements, not 'mxfp8_e4m3'"):
        views.from_views(elements, np.full((3, 4), 128, np.uint8), format="mxfp8_e4m3")


def test_tensors_of_torch_stay_tensors():
    # Regression: tensors of torch's 8-bit float types raised numpy's error, because numpy cannot
    # read them.
    torch = pytest.importorskip("torch", reason="the extra torch is not installed")
    q = mx.quantize(torch.linspace(-3, 3, 64), "mxfp8_e4m3")
    elements, scales = q.codes.view(torch.float8_e4m3fn), q.scales.view(torch.float8_e8m0fnu)
    made = views.from_views(elements, scales)
    assert made.equals(q)
    assert made.codes.data_ptr() == q.codes.data_ptr()
