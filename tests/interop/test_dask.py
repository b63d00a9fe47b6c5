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
def test_results_do_not_depend_on_chunks(da, options):
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


def test_mistakes_raise_before_anything_is_computed(da):
    # A wrong argument must raise an error in the call, not when chunks are computed.
    lazy = da.zeros((4, 128), chunks=(2, 64), dtype=np.float32)
    words = np.zeros((4, 128), np.uint32)
    wrong = [
        (TypeError, "'x' must be an array of float64, .*, not int64", lazy.astype(np.int64), {}),
        (TypeError, "'x' must be an array of float64, .*, not bool", lazy.astype(bool), {}),
        (
            ValueError,
            r"'x' must be an array whose chunk lengths are known \(call x.compute_chunk_sizes\(\)\)",
            lazy[lazy[:, 0] > -1],
            {},
        ),
        (ValueError, "'rounding' must be one of", lazy, {"rounding": "nearest"}),
        (ValueError, "'random_bits' or 'seed' must be given", lazy, {"rounding": "sr"}),
        (ValueError, "'random_bits' must be left out unless", lazy, {"random_bits": words}),
        (
            TypeError,
            "'random_bits' must be a uint32 array, not 'int64'",
            lazy,
            {"rounding": "sr", "random_bits": words.astype(int)},
        ),
        (ValueError, r"'random_bits' must be of shape \(4, 128\)", lazy, {"rounding": "sr", "random_bits": words[:1]}),
        (ValueError, "'out' must be left out", lazy, {"out": words}),
        # Regression: `packed` was ignored.
        (ValueError, "'packed' must be left out", lazy, {"packed": True}),
        (TypeError, "unexpected keyword argument 'axes'", lazy, {"axes": 1}),
    ]
    for kind, message, x, options in wrong:
        for function in (mx_dask.quantize, mx_dask.fake_quantize):
            with pytest.raises(kind, match=message):
                function(x, "mxfp4_e2m1", **options)
    turned = da.from_array(words, chunks=(4, 32))  # random words may be chunked differently from the array
    got = mx_dask.quantize(lazy + 1, "mxfp4_e2m1", rounding="sr", random_bits=turned).compute()
    assert got.equals(mx.quantize(np.ones((4, 128), np.float32), "mxfp4_e2m1", rounding="sr", random_bits=words))
    swapped = mx_dask.fake_quantize(da.ones((2, 64), dtype=">f4"), "mxfp4_e2m1")
    assert swapped.dtype == swapped.compute().dtype


def test_mistakes(da):
    lazy = da.zeros((4, 128), chunks=(2, 48), dtype=np.float32)
    with pytest.raises(ValueError, match="in chunks of whole blocks of 32 along axis 1"):
        mx_dask.quantize(lazy, "mxfp8_e4m3")
    with pytest.raises(ValueError, match=r"'seed' must be left out for a dask array \(give random_bits"):
        mx_dask.quantize(lazy, "mxfp8_e4m3", rounding="sr", seed=1)
    with pytest.raises(TypeError, match="'x' must be a dask array, not 'ndarray'"):
        mx_dask.quantize(np.zeros(4), "mxfp8_e4m3")


FLOAT_SCALES = ["nvfp4", "e4m3:block=16,scale=float32", "int8:block=32,scale=bfloat16"]


@pytest.mark.parametrize("fmt", FLOAT_SCALES)
def test_results_with_float_scales_do_not_depend_on_chunks(da, fmt):
    x = samples.generator("dask floats").standard_normal((96, 200)).astype(np.float32)
    x[50, 3], x[1, 199] = 40, np.nan
    lazy = da.from_array(x, chunks=(64, 64))
    chunked, whole = mx_dask.quantize(lazy, fmt), mx.quantize(x, fmt)
    assert chunked.scales.dtype == whole.scales.dtype
    assert chunked.compute().equals(whole)
    faked = mx_dask.fake_quantize(lazy, fmt).compute()
    assert np.array_equal(faked, mx.fake_quantize(x, fmt), equal_nan=True)


def test_nothing(da):
    nothing = np.zeros((0, 64), np.float32)
    for fmt in ("nvfp4", "mxfp8_e4m3"):
        assert mx_dask.quantize(da.from_array(nothing, chunks=(2, 32)), fmt).compute().equals(mx.quantize(nothing, fmt))


def test_a_tensor_scale_may_be_given_and_words_with_it(da):
    x = samples.generator("dask tensor scale").standard_normal((4, 128)).astype(np.float32)
    lazy, words = da.from_array(x, chunks=(2, 64)), reference.random_words((4, 128), seed=3)
    options = {"rounding": "sr", "random_bits": words, "scale_rule": "four_over_six_squared"}
    for tensor_scale in (2.0**-9, None, np.float32(0.003)):
        got = mx_dask.quantize(lazy, "nvfp4", **options, tensor_scale=tensor_scale).compute()
        assert got.equals(mx.quantize(x, "nvfp4", **options, tensor_scale=tensor_scale))
    for wrong in ({"tensor_scale": "row"}, {"tensor_scale": np.ones((4, 1), np.float32)}, {"arithmetic": "torchao"}):
        with pytest.raises(ValueError, match=f"'{next(iter(wrong))}' must be .* for a dask array, not"):
            mx_dask.quantize(lazy, "nvfp4", **wrong)
    with pytest.raises(ValueError, match="'tensor_scale' must be positive and finite"):
        mx_dask.quantize(lazy, "nvfp4", tensor_scale=-1.0)
