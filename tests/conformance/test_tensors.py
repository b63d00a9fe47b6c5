"""Tests of conformance checks of functions that take and return tensors."""

from __future__ import annotations

import numpy as np
import pytest

import mxnum as mx
from mxnum.conformance import check, check_arrays
from mxnum.conformance.calling import Implementation, as_array, handed, is_tensor


def test_numpy_arrays_need_no_torch():
    x = np.ones(3, np.float32)
    assert handed(x, "numpy") is x
    assert not is_tensor(x)
    with pytest.raises(ValueError, match="'arrays' must be one of"):
        Implementation(print, "torhc")

    class OnAGpu:
        __cuda_array_interface__ = None

        def get(self):
            return x

    array, name = as_array(OnAGpu(), "value")
    assert (array.tolist(), name) == ([1, 1, 1], "float32")


def test_tensors_of_every_type():
    torch = pytest.importorskip("torch")
    for fmt, name in (
        ("mxfp8_e4m3", "float8_e4m3fn"),
        ("mxfp8_e5m2", "float8_e5m2"),
        ("mxfp4_e2m1", "float4_e2m1fn_x2"),
    ):

        def quantize(x, fmt=fmt, name=name):
            assert isinstance(x, torch.Tensor)
            q = mx.quantize(x.numpy(), fmt)
            codes = q.pack() if q.format.element.bits == 4 else q.codes
            return torch.from_numpy(codes).view(getattr(torch, name)), torch.from_numpy(q.scales).view(
                torch.float8_e8m0fnu
            )

        assert check(quantize, format=fmt, arrays="torch").is_equal
    with pytest.raises(TypeError, match="or float8_e4m3fn, not 'float8_e5m2'"):
        check(lambda x: x.to(torch.float8_e5m2), format="mxfp8_e4m3", operation="encode", arrays="torch")

    def values(codes, scales):
        blocks = mx.MXFormat("e2m1", block=1)
        return torch.from_numpy(mx.MXArray.from_parts(codes.numpy(), scales.numpy(), blocks).dequantize("float32"))

    options = {"format": "mxfp4_e2m1", "operation": "dequantize", "arrays": "torch"}
    assert check(values, **options).is_equal
    assert check(lambda c, s: values(c, s).to(torch.bfloat16), **options, source="bfloat16", accept="all").cases
    with pytest.raises(TypeError, match="must be an array of float32, the type that 'source' sets, not 'bfloat16'"):
        check(lambda c, s: values(c, s).to(torch.bfloat16), **options)


def test_tensors_have_the_strides_of_the_arrays():
    torch = pytest.importorskip("torch")
    strides = []

    def quantize(x):
        strides.append((*x.stride(), *x.shape))
        q = mx.quantize(x.numpy(), "mxfp4_e2m1")
        return torch.from_numpy(q.codes), torch.from_numpy(q.scales)

    assert check_arrays(quantize, format="mxfp4_e2m1", arrays="torch", shapes=[(3, 33)]).is_equal
    assert strides == [(33, 1, 3, 33), (1, 3, 3, 33), (200, 3, 3, 33), (38, 1, 3, 33)]
