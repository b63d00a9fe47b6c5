"""Tests that the kernels of `vectors` run only for whole blocks in contiguous rows."""

from __future__ import annotations

import numpy as np
import pytest

import mxnum as mx
from tests.samples import generator


@pytest.fixture
def used(monkeypatch):
    """Return a list to which each request for a kernel of `vectors` adds the kernel's name."""
    from mxnum.engine.cuda import vectors

    asked = []
    for name in ("quantize_rows", "dequantize_rows"):
        make = getattr(vectors, name)
        monkeypatch.setattr(vectors, name, lambda *given, make=make, name=name: asked.append(name) or make(*given))
    return asked


def test_whole_blocks_of_contiguous_rows_run_in_vector_kernels(device, used):
    x = generator("vectors").standard_normal((4, 64)).astype(np.float32)
    for dtype in (np.float32, np.float16):
        for run in (4, 8, 16, 32, 64):
            there = device(x.astype(dtype))
            q = mx.quantize(there, "mxfp8_e4m3", block_size=run, rounding="sr", seed=1)
            mx.fake_quantize(there, "mxint8", block_size=run)
            q.dequantize("bfloat16")
            assert used == ["quantize_rows"] * 2 + ["dequantize_rows"]
            used.clear()


def test_other_layouts_do_not_run_in_vector_kernels(device, used):
    x = generator("vectors").standard_normal((6, 70)).astype(np.float32)
    there = device(x)
    for layout in ({}, {"axis": 0}, {"block_shape": (2, 2)}, {"block_size": 5}, {"block_size": 256}):
        mx.quantize(there, "mxfp8_e4m3", **layout).dequantize()
    mx.quantize(device(x[:, :64]), "mxint4", offset="float16").dequantize()
    mx.quantize(there[:, 3:67], "mxfp8_e4m3")
    mx.quantize(device(x[:, :64].astype(np.float64)), "mxfp8_e4m3")  # float64 has more than 32 bits
    assert used == []
    q = mx.quantize(device(x[:, :64]), "mxfp8_e4m3")
    used.clear()
    q[1:, 32:].dequantize()
    q.T.dequantize()
    assert used == []
