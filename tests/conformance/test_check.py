from __future__ import annotations

import sys

import ml_dtypes
import numpy as np
import pytest

import mxnum as mx
from mxnum.conformance import ConformanceError, check


def ours(fmt, **modes):
    def quantize(x):
        q = mx.quantize(x, fmt, **modes)
        return q.codes, q.scales

    return quantize


@pytest.mark.parametrize("fmt", ["mxfp8_e4m3", "mxint8"])
def test_mxnum_passes(fmt):
    element = mx.formats.get(fmt).element
    assert check(ours(fmt), format=fmt).is_equal
    assert check(lambda x: mx.encode(x, element), format=fmt, operation="encode").is_equal
    assert check(lambda x: mx.shared_scale(x, fmt), format=fmt, operation="scale").is_equal

    def dequantize(codes, scales):
        blocks = mx.MXFormat(element, block=1)
        return mx.MXArray.from_parts(codes, scales, blocks).dequantize()

    assert check(dequantize, format=fmt, operation="dequantize").is_equal

    def dot(a, a_scales, b, b_scales):
        rows = zip(*(mx.MXArray.from_parts(c, s, fmt) for c, s in ((a, a_scales), (b, b_scales))), strict=True)
        return np.array([mx.dot(p, q) for p, q in rows])

    assert check(dot, format=fmt, operation="dot", level=2, count=50).is_equal


@pytest.mark.parametrize("fmt", ["nvfp4", "e4m3:block=16,scale=float32"])
def test_dot_products_under_float_scales(fmt):
    """Check a right kernel, and a wrong kernel that uses a row's first scale for all blocks."""
    blocks = mx.formats.get(fmt)

    def dot(a, a_scales, b, b_scales, of=slice(None)):
        sides = []
        for codes, scales in ((a, a_scales), (b, b_scales)):
            wide = mx.decode(scales, "e4m3") if scales.dtype == np.uint8 else scales
            wide = np.broadcast_to(wide[:, of], wide.shape).astype(np.float64).repeat(blocks.block, axis=1)
            sides.append(mx.decode(codes, blocks.element).astype(np.float64) * wide)
        return (sides[0] * sides[1]).sum(axis=1).astype(np.float32)

    how = {"format": fmt, "operation": "dot", "level": 2, "count": 60, "dot_blocks": 4, "shrink": False}
    assert check(dot, **how).conforms
    with pytest.raises(ConformanceError, match="the scales of the first block for all") as caught:
        check(lambda *x: dot(*x, of=slice(1)), **how)
    assert "a = " in str(caught.value)


def test_stochastic():
    def encode(x, words):
        return mx.encode(x, "e2m1", rounding="sr", random_bits=words, sr_bits=10)

    assert check(encode, format="mxfp4_e2m1", operation="encode", rounding="sr", sr_bits=10).is_equal


def test_float32_log2_mistake_shrinks_to_a_number_below_a_power_of_two():
    """Check that scales found by a float32 log2 first fail at a number below a power of two."""

    def quantize(x):
        q = mx.quantize(x, "mxfp8_e4m3")
        scales = q.scales.copy().ravel()
        amax = np.abs(x).max(axis=1)
        usable = np.isfinite(amax) & (amax > 1e-30)
        scales[usable] = (np.floor(np.log2(amax[usable])) - 8 + 127).astype(np.uint8)
        return mx.quantize(x, "mxfp8_e4m3", scales=scales.reshape(-1, 1)).codes, scales

    with pytest.raises(ConformanceError) as caught:
        check(quantize, format="mxfp8_e4m3")
    x = caught.value.smallest.inputs["x"].view(np.float32)[0]
    assert np.count_nonzero(x) == 1
    value = abs(x[x != 0][0])
    assert np.log2(np.nextafter(value, np.float32(np.inf))) % 1 == 0
    assert 2.0**-9 < value < 2.0**9
    assert "1 too high" in str(caught.value)


def test_ties_away_are_shrunk_to_a_tie():
    with pytest.raises(ConformanceError, match="what rounding rna gives") as caught:
        check(ours("mxfp4_e2m1", rounding="rna"), format="mxfp4_e2m1")
    x = caught.value.smallest.inputs["x"].view(np.float32)[0]
    assert np.count_nonzero(x) <= 2
    assert all(float(v).as_integer_ratio()[0] in (0, 1, -1, 3, 5, -3, -5) for v in x)


def test_without_hypothesis_the_report_says_that_the_search_needs_it(monkeypatch):
    # Regression: if hypothesis was not installed, the report silently lacked the smallest input.
    monkeypatch.delitem(sys.modules, "mxnum.conformance.shrink", raising=False)
    monkeypatch.setitem(sys.modules, "hypothesis", None)
    with pytest.raises(
        ConformanceError, match=r"smallest failing input needs Hypothesis \(pip install \"mxnum\[test\]\"\)"
    ):
        check(lambda x: np.zeros(len(x), np.uint8), format="mxfp4_e2m1", operation="encode")


def test_choices_and_strictness():
    cast = lambda x: x.astype(ml_dtypes.float8_e5m2)  # noqa: E731
    report = check(cast, format="mxfp8_e5m2", operation="encode")
    assert set(report.choices) >= {"overflow", "infinity"}
    with pytest.raises(ConformanceError):
        check(cast, format="mxfp8_e5m2", operation="encode", strict=True)
    assert check(
        cast, format="mxfp8_e5m2", operation="encode", overflow="ieee", accept="nan_code", strict=True
    ).is_equal


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda x: x[:3], r"must be of shape \(845, 32\), not \(3, 32\)"),
        (lambda x: (np.zeros((3, 32), np.uint8), np.zeros(845, np.uint8)), r"must be of shape \(845, 32\)"),
        (lambda x: (x, np.zeros(845, np.uint8)), "must be an array of integers or float4_e2m1fn, not 'float32'"),
        (lambda x: (np.zeros(845), np.zeros((845, 32))), r"must return \(codes, scales\), not \(scales, codes\)\.$"),
    ],
)
def test_answers_of_the_wrong_shape(function, message):
    with pytest.raises((TypeError, ValueError), match=message):
        check(function, format="mxfp4_e2m1")


def test_a_value_of_the_wrong_type():
    with pytest.raises(TypeError, match="must be an array of float32, not"):
        check(lambda c, s: np.zeros(len(c)), format="mxfp4_e2m1", operation="dequantize")


def test_why_the_smallest_input_is_missing(monkeypatch):
    """Check that the report says why no smallest input was found."""

    def many_only(x):
        assert len(x) > 1000, "too few"
        return mx.encode(x, "e2m1", rounding="rna")

    with pytest.raises(
        ConformanceError, match=r"not found: given fewer cases at once, the function raised AssertionError.'too few"
    ):
        check(many_only, format="mxfp4_e2m1", operation="encode")
    monkeypatch.setitem(sys.modules, "hypothesis", None)
    monkeypatch.delitem(sys.modules, "mxnum.conformance.shrink", raising=False)
    with pytest.raises(
        ConformanceError, match=r"smallest failing input needs Hypothesis \(pip install \"mxnum\[test\]\"\)\.$"
    ):
        check(ours("mxfp4_e2m1", rounding="rna"), format="mxfp4_e2m1")


def test_a_kernel_that_writes_into_its_argument_is_shrunk_all_the_same():
    def wiping(x):
        codes = mx.encode(x, "e2m1", rounding="rna")
        x.fill(0)
        return codes

    with pytest.raises(ConformanceError) as caught:
        check(wiping, format="mxfp4_e2m1", operation="encode")
    assert caught.value.smallest.inputs["x"].view(np.float32)[0, 0] in (0.25, -0.25, 1.25, -1.25)


@pytest.mark.parametrize(("below", "is_choice"), [(256, True), (127, False)])
def test_lost_minus_zero_is_a_choice_only_if_lost_in_all_cases(below, is_choice):
    def dequantize(codes, scales):
        right = mx.MXArray.from_parts(codes, scales, mx.MXFormat("e2m1", block=1)).dequantize()
        return np.where((right == 0) & (scales < below), np.float32(0), right)

    if is_choice:
        assert set(check(dequantize, format="mxfp4_e2m1", operation="dequantize").choices) == {"minus_zero"}
        return
    with pytest.raises(ConformanceError) as caught:
        check(dequantize, format="mxfp4_e2m1", operation="dequantize", shrink=False)
    assert caught.value.report.bugs == 127
