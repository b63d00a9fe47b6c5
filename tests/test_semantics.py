"""Tests of sentences in `docs/reference/semantics.md` that no other test file covers.

The code cells of semantics.md check the other sentences of the page.
"""

from __future__ import annotations

import numpy as np
import pytest

import mxnum as mx
from mxnum import reference

FORMAT = "mxfp8_e4m3"


def bits(values):
    return np.asarray(values, np.float32).view(np.uint32).tolist()


def asymmetric(x, **options):
    """Return offsets and values of one block; assert that mxnum and its reference agree."""
    x = np.array(x, np.float32)
    q = mx.quantize(x, FORMAT, offset="float16", **options)
    r = reference.quantize(x, FORMAT, offset="float16", **options)
    values = q.dequantize()
    assert q.offsets.tobytes() == r.offsets.tobytes()
    assert bits(values) == bits(reference.dequantize(r.codes, r.scales, FORMAT, offsets=r.offsets))
    return q.offsets, values


@pytest.mark.parametrize(
    ("x", "offset", "values"),
    [
        ([-0.0, 0.0], 0.0, [0.0, 0.0]),
        ([-0.0, -0.0], 0.0, [0.0, 0.0]),
        ([-1.0, 1.0, -0.0], 0.0, [-1.0, 1.0, 0.0]),
        ([-(2.0**-30), -(2.0**-30), -0.0], -0.0, [-(2.0**-30), -(2.0**-30), 0.0]),
        ([0.5, 0.5], 0.5, [0.5, 0.5]),
    ],
)
def test_signs_of_zero_with_an_offset(x, offset, values):
    # Regression: semantics.md did not say which sign a zero has.
    offsets, got = asymmetric(x)
    assert offsets.tobytes() == np.float16(offset).tobytes()
    assert bits(got) == bits(values)


def test_offsets_without_a_finite_element():
    offsets, values = asymmetric([np.inf, -np.inf, np.nan], nonfinite="element")
    assert offsets.tobytes() == np.float16(0).tobytes()
    assert np.isfinite(values[:2]).all()
    assert np.isnan(values[2])


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_infinite_and_nan_offsets_give_infinite_and_nan_values(dtype):
    codes, scales = np.array([[0x38, 0xB8]] * 3, np.uint8), np.full((3, 1), 127, np.uint8)
    offsets = np.array([[np.inf], [-np.inf], [np.nan]], np.float16)
    got = mx.MXArray.from_parts(codes, scales, FORMAT, offsets=offsets).dequantize(dtype)
    assert got[:2].tolist() == [[np.inf] * 2, [-np.inf] * 2]
    assert np.isnan(got[2]).all()
    assert not np.signbit(got[2]).any()


def test_float64_is_rounded_with_an_offset():
    # Regression: semantics.md said that decoding to float64 is exact even with an offset.
    one = mx.MXArray.from_parts(np.array([0x38], np.uint8), np.array([0], np.uint8), FORMAT, offsets=np.float16([1]))
    assert one.dequantize("float64").tolist() == [1.0]


def test_equal_arrays_have_equal_names_and_blocks():
    q = mx.quantize(np.ones((2, 32), np.float32), FORMAT)
    parts = q.codes, q.scales
    assert q.equals(mx.MXArray.from_parts(np.asfortranarray(q.codes), q.scales, FORMAT))
    assert not q.equals(mx.MXArray.from_parts(*parts, mx.MXFormat("e4m3", name="mine")))
    assert not q.equals(mx.MXArray.from_parts(*parts, mx.MXFormat("e4m3", block=16), block_size=32))
    assert not q.equals(mx.MXArray.from_parts(*parts, FORMAT, block_size=33))


def test_the_first_index_is_that_of_c_order():
    x = np.zeros((4, 3), np.float32, order="F")
    x[3, 0] = x[1, 2] = np.nan
    with pytest.raises(ValueError, match=r"at index \(1, 2\)"):
        mx.quantize(x, FORMAT, nonfinite="raise")


def test_fake_quantize_gives_native_byte_order():
    # Regression: semantics.md said that results have the byte order of the input.
    got = mx.fake_quantize(np.array([1.1, 2.0], ">f4"), FORMAT)
    assert got.dtype == np.dtype("=f4")
    assert got.dtype.isnative


def test_terms_of_the_bias_and_of_its_gradient_are_float32_first():
    # Regression: semantics.md did not say that the bias, and each term of its gradient, is first
    # rounded to float32.
    small = 2.0**-24 + 2.0**-50
    plain = {"activations": None, "weights": None, "accumulate": "exact"}
    y, context = mx.linear_forward(np.ones((2, 1)), np.ones((1, 1)), np.array([small]), **plain)
    assert y.tolist() == [[1.0], [1.0]]
    gradients = mx.linear_backward(np.array([[1.0], [small]]), context, gradients=None)
    assert gradients.bias.tolist() == [1.0]


def test_operands_with_one_seed_and_one_stream_draw_the_same_words():
    x = np.random.default_rng(7).standard_normal((32, 32)).astype(np.float32)
    sr = {"format": FORMAT, "rounding": "sr", "seed": 3}
    _, context = mx.linear_forward(x, x, activations=sr, weights=sr)
    assert context.operand_x.equals(context.operand_weight)
    _, context = mx.linear_forward(x, x, activations=sr, weights={**sr, "stream": 1})
    assert not context.operand_x.equals(context.operand_weight)
    assert context.operand_weight.equals(mx.quantize(x, **sr, stream=2))
