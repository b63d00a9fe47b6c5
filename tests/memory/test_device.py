"""Tests of the descriptions of GPU arrays. The arrays are fake, so the tests need no GPU.

No test reads the memory of a fake array.
"""

from __future__ import annotations

import sys
import types

import numpy as np
import pytest

import mxnum as mx
from mxnum.memory.device import DeviceArray, contiguous_strides, described, on_device, together


def away(x: np.ndarray, **changes: object) -> types.SimpleNamespace:
    """Return an object whose only attribute is a CUDA array interface."""
    return types.SimpleNamespace(__cuda_array_interface__={**x.__array_interface__, "version": 3, **changes})


X = np.arange(24, dtype=np.float32).reshape(2, 3, 4)


def test_on_device_is_true_for_gpu_arrays_alone():
    assert on_device(away(X))
    for thing in (X, [1.0], 2.5, np.float32(1), None, "x", mx.quantize(X, "mxint8").codes):
        assert not on_device(thing)


def test_a_description_has_what_the_interface_says():
    x = described("x", away(X[:, ::2], stream=7))
    assert (x.shape, x.strides, x.dtype, x.stream) == ((2, 2, 4), (12, 8, 1), np.dtype("f4"), 7)
    assert (x.ndim, x.size, x.is_contiguous) == (3, 16, False)
    assert x.pointer == X.ctypes.data
    whole = described("x", away(X, strides=None))
    assert whole.strides == (12, 4, 1)
    assert whole.is_contiguous
    assert not described("x", away(X, data=(X.ctypes.data, True))).writable
    assert described("x", x) is x


@pytest.mark.parametrize(
    "view",
    [
        lambda a: a[1],
        lambda a: a[:, 1:, ::-1],
        lambda a: a[..., 2],
        lambda a: a[np.newaxis, :, 0],
        lambda a: a[1, 2, 3, ...],
        lambda a: a.transpose((2, 0, 1)),
        lambda a: a.swapaxes(-1, -2),
        lambda a: a[:0],
        lambda a: a[::-1][::-1],
    ],
)
def test_views_are_those_of_numpy(view):
    mine, its = view(described("x", away(X))), view(X)
    assert mine.shape == its.shape
    if its.size:
        assert mine.pointer == its.ctypes.data
        assert mine.strides_matter == tuple(
            u if n == 1 else s // 4
            for n, s, u in zip(its.shape, its.strides, contiguous_strides(its.shape), strict=True)
        )
        assert mine.is_contiguous == its.flags.c_contiguous


def test_strides_between_elements_are_refused():
    with pytest.raises(ValueError, match="'x' must be strided by multiples of 4 bytes"):
        described("x", away(X, strides=(48, 16, 6)))
    with pytest.raises(ValueError, match="'x' must be without a mask"):
        described("x", away(X, mask=away(X)))


def test_arrays_of_one_call_must_be_on_one_device():
    assert not together((("x", X), ("scales", None)))
    x = described("x", away(X))
    assert together((("x", x), ("scales", described("s", away(X)))))
    with pytest.raises(ValueError, match="'scales' must be on a GPU, like argument 'x', not in host memory"):
        together((("x", x), ("scales", X)))
    with pytest.raises(ValueError, match="'out' must be in host memory, like argument 'x', not on a GPU"):
        together((("x", X), ("out", x)))
    first, second = (DeviceArray(None, "torch", X.dtype, (1,), (1,), 16, gpu=gpu) for gpu in (0, 1))
    with pytest.raises(ValueError, match="'b' must be on GPU 0, like argument 'a', not on GPU 1"):
        together((("a", first), ("b", second)))


class Tensor:
    """A fake torch.Tensor on a GPU."""

    requires_grad = False
    is_cuda = True
    layout = "strided"
    is_negated = False
    shape, device = (2, 12), types.SimpleNamespace(index=1)

    def __init__(self, dtype: str) -> None:
        self.dtype = f"torch.{dtype}"

    def stride(self):
        return (12, 1)

    def data_ptr(self):
        return 4096

    def is_neg(self):
        return self.is_negated

    def detach(self):
        return self

    @property
    def __cuda_array_interface__(self):
        raise TypeError("no such type")


@pytest.fixture
def torch(monkeypatch):
    stream = types.SimpleNamespace(cuda_stream=0)
    cuda = types.SimpleNamespace(current_stream=lambda device: stream)
    stream.recording = True
    module = types.SimpleNamespace(
        Tensor=Tensor, cuda=cuda, strided="strided", is_grad_enabled=lambda: stream.recording
    )
    monkeypatch.setitem(sys.modules, "torch", module)
    return stream


@pytest.mark.parametrize("name", ["float64", "float32", "bfloat16", "float16", "uint8", "uint32"])
def test_tensors_of_torch_need_no_interface(torch, name):
    x = described("x", Tensor(name))
    assert (x.library, x.dtype.name, x.shape, x.strides, x.pointer) == ("torch", name, (2, 12), (12, 1), 4096)
    assert (x.stream, x.gpu) == (1, 1)  # torch's default stream (handle 0) has the number 1 in the CUDA array interface
    torch.cuda_stream = 0xABC
    assert described("x", Tensor(name)).stream == 0xABC


def test_tensors_on_the_host_are_arrays_and_gradients_are_refused(torch):
    tensor = Tensor("float32")
    tensor.is_cuda = False
    assert not on_device(tensor)
    tensor = Tensor("float32")
    tensor.requires_grad = True
    with pytest.raises(TypeError, match="'x' must not require a gradient"):
        described("x", tensor)
    torch.recording = False  # gradients are disabled, as within torch.no_grad()
    assert described("x", tensor).pointer == 4096


def test_negated_and_sparse_tensors_raise(torch):
    # Regression: a negated view was accepted, although its memory holds the negated numbers.
    for change, message in (({"is_negated": True}, "without a lazy negation"), ({"layout": "sparse"}, "dense")):
        tensor = Tensor("float32")
        vars(tensor).update(change)
        with pytest.raises(ValueError, match=f"'x' must be {message}"):
            described("x", tensor)


def test_types_that_cannot_be_quantized_are_named(torch):
    for thing, name in ((away(X.astype(np.int32)), "int32"), (Tensor("qint8"), "void8")):
        with pytest.raises(TypeError, match=f"must be an array of float64, float32, bfloat16 or float16, not {name}"):
            mx.quantize(thing, "mxint8")
    swapped = X.astype(">f4")
    with pytest.raises(ValueError, match="'x' must be in native byte order"):
        mx.quantize(away(swapped), "mxint8")


def test_functions_for_host_memory_raise_for_gpu_arrays():
    weight = np.zeros((3, 4), np.float32)
    with pytest.raises(TypeError, match="'x' must be in host memory, not on a GPU; copy it first"):
        mx.linear_forward(away(X), weight)
