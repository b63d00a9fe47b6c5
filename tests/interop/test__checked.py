from __future__ import annotations

import types

import numpy as np
import pytest

import mxnum as mx
from mxnum.interop import checkpoints, fp8, gguf, gpt_oss, nvfp4, safetensors, views
from mxnum.interop._checked import in_host_memory, without_offsets
from tests.float_scale_cases import made_by_the_reference


def test_arrays_of_numpy_are_taken_as_they_are():
    q = mx.quantize(np.ones(32), "mxfp4_e2m1")
    assert in_host_memory("q", q) is q
    assert without_offsets("q", q) is q


def test_gpu_arrays_raise_and_are_not_copied():
    # Regression: the functions passed the GPU array to numpy, which raised an error of its own.
    part = types.SimpleNamespace(__cuda_array_interface__={}, shape=(32,))
    q = mx.MXArray(part, part, mx.formats.get("mxfp4_e2m1"), (32,))
    for call in (gguf.to_gguf_blocks, gpt_oss.to_gpt_oss, views.to_views):
        with pytest.raises(TypeError, match=r"'q' must be in host memory, not on a GPU; call to_host\(\) first"):
            call(q)
    with pytest.raises(TypeError, match="'tensors' must be in host memory"):
        safetensors.save("x", {"q": q})


def test_offsets_are_not_dropped_in_silence():
    # Regression: offsets were silently dropped, which changed the values.
    q = mx.quantize(np.linspace(5, 6, 32), "mxfp4_e2m1", offset="float16")
    for call in (gguf.to_gguf_blocks, gpt_oss.to_gpt_oss, views.to_views):
        with pytest.raises(ValueError, match="'q' must be without offsets, not <MXArray"):
            call(q)
        with pytest.raises(TypeError, match="'q' must be an MXArray, not 'ndarray'"):
            call(np.ones(32))


@pytest.mark.parametrize(
    ("fmt", "call"),
    [
        ("e2m1:bias=2", gpt_oss.to_gpt_oss),
        ("e2m1:bias=2", gguf.to_gguf_blocks),
        ("e2m1:bias=2,block=16,scale=e4m3,tensor_scale=float32", lambda q: nvfp4.to_nvfp4(q, direction="decode")),
        ("e2m1:bias=2", lambda q: checkpoints.to_tensors("w", q, "compressed_tensors")),
        ("e2m1:bias=2", views.to_views),
        ("e4m3:bias=8", views.to_views),
        ("e4m3:bias=8,scale=float32", fp8.to_fp8),
        ("e4m3:bias=7", fp8.to_fp8),  # "e4m3:bias=7" has no NaN
    ],
)
def test_elements_of_a_known_name_with_other_values_raise(fmt, call):
    # Regression: the functions compared only the names of elements. So codes of elements with
    # another bias were written unchanged, and readers decoded them to twice their value.
    q = made_by_the_reference(np.ones((2, 64), np.float32), fmt)
    with pytest.raises(ValueError, match=r"(of|one of) .*e[24]m[13].*, not .*e[24]m[13]"):
        call(q)
