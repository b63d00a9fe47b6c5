"""Tests that quantizing reuses the maxima of blocks that the tensor scale was computed from.

tests/test_float_scales.py tests float scales through the public API.
"""

from __future__ import annotations

import numpy as np
import pytest

import mxnum as mx
from mxnum.engine.loops import panels
from mxnum.engine.quantizing import host
from tests import samples

X = samples.generator("maxima").standard_normal((8, 64)).astype(np.float32)


def requests(monkeypatch):
    """Return a list to which each later call of `host.quantize` appends its request."""
    seen, quantize = [], host.quantize
    monkeypatch.setattr(host, "quantize", lambda request, out=None: seen.append(request) or quantize(request, out))
    return seen


@pytest.mark.parametrize("packed", [False, True])
def test_largest_magnitudes_of_blocks_are_looked_at_once(packed, monkeypatch):
    seen = requests(monkeypatch)
    q = mx.quantize(X, "nvfp4", packed=packed)
    (request,) = seen
    assert np.array_equal(request.maxima.view(np.float32), np.abs(X).reshape(-1, 16).max(1))
    assert q.equals(mx.quantize(X, "nvfp4", packed=packed, tensor_scale=q.tensor_scale))
    assert seen[1].maxima is None, "maxima are computed although the tensor scale is given"


@pytest.mark.parametrize("how", [{"axis": 0}, {"block_size": 24}, {"tensor_scale": "row"}, {"block_shape": (2, 16)}])
def test_elsewhere_they_are_not_kept(how, monkeypatch):
    seen = requests(monkeypatch)
    for x in (X, X[:, :40], np.asfortranarray(X)):
        mx.quantize(x, "nvfp4", **how)
    assert [request.maxima for request in seen] == [None] * 3


def test_a_block_with_an_infinity():
    """Check that an infinity gives the same result with and without the stored maxima of blocks."""
    x = np.where(np.arange(4096) == 2049, np.inf, samples.generator("one").standard_normal(4096)).astype(np.float32)
    assert mx.quantize(x, "nvfp4").equals(mx.quantize(np.repeat(x, 2)[::2], "nvfp4"))


def test_the_loop():
    bits, found = X.view(np.int32).ravel(), np.zeros(X.size // 32, np.int32)
    greatest = panels.block_maxima(mx.formats.FLOATS["float32"], 32)(bits, found)
    assert greatest == found.max()
    assert np.array_equal(found.view(np.float32), np.abs(X).reshape(-1, 32).max(1))
