from __future__ import annotations

import numpy as np
import pytest

import mxnum as mx
from mxnum import reference
from mxnum.interop import dask as mx_dask
from tests import samples


@pytest.fixture
def da():
    return pytest.importorskip("dask.array", reason="the extra distributed is not installed")


@pytest.mark.parametrize("options", [{}, {"axis": 0, "scale_rule": "even"}, {"block_shape": (4, 8)}])
def test_chunks_do_not_show(da, options):
    x = samples.generator("dask").standard_normal((96, 200)).astype(np.float32)
    lazy = da.from_array(x, chunks=(64, 64))
    chunked = mx_dask.quantize(lazy, "mxfp6_e3m2", **options)
    assert chunked.codes.chunks == lazy.chunks
    assert chunked.compute().equals(mx.quantize(x, "mxfp6_e3m2", **options))
    faked = mx_dask.fake_quantize(lazy, "mxfp6_e3m2", **options)
    assert faked.dtype == np.float32
    assert np.array_equal(faked.compute(), mx.fake_quantize(x, "mxfp6_e3m2", **options))


def test_random_words(da):
    x = samples.generator("dask random").standard_normal((4, 128)).astype(np.float32)
    words = reference.random_words((4, 128), seed=3)
    lazy = da.from_array(x, chunks=(2, 64))
    for given in (words, da.from_array(words, chunks=(2, 64))):
        got = mx_dask.quantize(lazy, "mxfp4_e2m1", rounding="sr", random_bits=given).compute()
        assert got.equals(mx.quantize(x, "mxfp4_e2m1", rounding="sr", seed=3))


def test_mistakes(da):
    lazy = da.zeros((4, 128), chunks=(2, 48), dtype=np.float32)
    with pytest.raises(ValueError, match="in chunks of whole blocks of 32 along axis 1"):
        mx_dask.quantize(lazy, "mxfp8_e4m3")
    with pytest.raises(ValueError, match=r"'seed' must be left out for a dask array \(give random_bits"):
        mx_dask.quantize(lazy, "mxfp8_e4m3", rounding="sr", seed=1)
    with pytest.raises(TypeError, match="'x' must be a dask array, not 'ndarray'"):
        mx_dask.quantize(np.zeros(4), "mxfp8_e4m3")
