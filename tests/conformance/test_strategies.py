from __future__ import annotations

import numpy as np
from hypothesis import Phase, find, given, settings

import mxnum as mx
from mxnum.conformance import strategies as mxst


@given(mxst.blocks("mxfp4_e2m1"))
@settings(max_examples=30)
def test_blocks(x):
    assert x.dtype == np.float32
    assert x.shape == (32,)
    assert mx.quantize(x, "mxfp4_e2m1").scales.shape == (1,)


@given(mxst.blocks("mxfp8_e4m3", source="bfloat16", block=7, nan=False, infinity=False))
@settings(max_examples=30)
def test_blocks_of_finite_numbers(x):
    assert x.dtype.name == "bfloat16"
    assert x.shape == (7,)
    assert np.isfinite(x.astype(np.float32)).all()


@given(mxst.mx_arrays("mxfp6_e3m2"))
@settings(max_examples=20)
def test_mx_arrays(q):
    assert q.dequantize("float64").shape == q.shape


@given(mxst.mx_formats())
@settings(max_examples=30)
def test_formats(fmt):
    assert 1 <= fmt.element.bits <= 8
    assert mx.formats.get(fmt) is fmt


@given(mxst.blocks("nvfp4"), mxst.mx_arrays("nvfp4"), mxst.mx_formats(scales=("e4m3", "float32")))
@settings(max_examples=15, deadline=None)
def test_scales_that_are_floats(x, q, fmt):
    assert (x.shape, x.dtype) == ((16,), np.float32)
    assert q.tensor_scale > 0
    assert q.scales.max(initial=0) <= 0x7F
    assert fmt.scale.name in ("e4m3", "float32")


@given(mxst.scale_codes("e4m3:scale=float16"), mxst.tensor_scales("nvfp4"), mxst.tensor_scales("mxint8"))
@settings(max_examples=15)
def test_codes_of_float_scales(code, tensor_scale, none):
    assert 0 <= code <= 0x7E00
    assert np.float32(tensor_scale) == tensor_scale > 0
    assert none is None


def test_ties_of_float_scales_are_found_quickly():
    quick = settings(max_examples=200, derandomize=True, deadline=None, database=None)
    near = mxst.boundary_values("nvfp4", scale=0x30, tensor_scale=0.25)
    assert find(near, lambda v: abs(v) == 2.5 * 0.5 * 0.25, settings=quick)
    assert find(mxst.blocks("nvfp4"), lambda x: np.isnan(x).any() and np.isfinite(x).any(), settings=quick) is not None


def differ(x, first, second):
    return not mx.quantize(x, "mxfp8_e4m3", **first).equals(mx.quantize(x, "mxfp8_e4m3", **second))


def test_what_matters_is_found_quickly():
    """Check that strategies find typical mistakes within the default number of examples."""
    blocks = mxst.blocks("mxfp8_e4m3")
    quick = settings(max_examples=300, derandomize=True, deadline=None, database=None, phases=[Phase.generate])

    def has(predicate):
        return find(blocks, predicate, settings=quick)

    has(lambda x: np.isnan(x).any() and np.isfinite(x).any())
    has(lambda x: np.isfinite(x).all() and mx.quantize(x, "mxfp8_e4m3").scales[0] == 0 and x.any())
    has(lambda x: 0x7E in mx.quantize(x, "mxfp8_e4m3", scale_rule="rceil").codes.tolist())
    has(
        lambda x: (
            np.isfinite(x).all()
            and not mx.quantize(x, "mxfp8_e4m3").equals(mx.quantize(x, "mxfp8_e4m3", rounding="rna"))
        )
    )


@given(mxst.values("e5m2", source="float16"))
@settings(max_examples=20)
def test_values(x):
    assert isinstance(x, np.float16)


@given(mxst.scale_codes(nan=False), mxst.codes("e2m1"), mxst.elements(custom=False))
@settings(max_examples=20)
def test_codes(scale, code, element):
    assert 0 <= scale < 255
    assert 0 <= code < 16
    assert element.name in mx.formats.ELEMENTS
