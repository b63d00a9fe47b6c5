from __future__ import annotations

import numpy as np
import pytest

import mxnum as mx
from mxnum.conformance import ConformanceError, check, check_stochastic
from mxnum.conformance.bits import as_floats
from mxnum.conformance.calling import parts_of
from mxnum.conformance.judging.describe import NO_CODE
from mxnum.conformance.judging.right import expected
from mxnum.conformance.operations import make_task


def fake(fmt="mxfp4_e2m1", **modes):
    return lambda x: mx.fake_quantize(x, fmt, **modes)


@pytest.mark.parametrize("fmt", ["mxfp4_e2m1", "mxfp8_e4m3", "mxint8"])
def test_a_right_kernel_that_gives_values(fmt):
    assert check(fake(fmt), format=fmt).is_equal


def test_with_a_tensor_scale():
    def kernel(x, tensor_scale):
        return mx.fake_quantize(x, "nvfp4", tensor_scale=float(tensor_scale))

    assert check(kernel, format="nvfp4").is_equal


def test_random_words_and_random_bits_of_its_own():
    def with_words(x, words):
        return mx.fake_quantize(x, "mxfp4_e2m1", rounding="sr", sr_bits=8, random_bits=words)

    def with_a_seed(x, seed):
        return mx.fake_quantize(x, "mxfp4_e2m1", rounding="sr", sr_bits=8, seed=seed)

    assert check(with_words, format="mxfp4_e2m1", rounding="sr", sr_bits=8).is_equal
    assert check_stochastic(with_a_seed, format="mxfp4_e2m1", sr_bits=8, bias=1 / 8).conforms
    with pytest.raises(ConformanceError, match=r"Choice sr_bits|sr_bits"):
        check(with_words, format="mxfp4_e2m1", rounding="sr", sr_bits=6, strict=True, shrink=False)


@pytest.mark.parametrize(
    ("modes", "said"),
    [
        ({"rounding": "rna"}, "blocks of wrong codes are, given the scales in the answers, what rounding rna gives"),
        ({"scale_rule": "ceil"}, "wrong scales are what scale rule ceil gives"),
        ({"scale_rule": "even"}, "wrong scales are what scale rule even"),
    ],
)
def test_what_is_wrong_is_named(modes, said):
    with pytest.raises(ConformanceError, match=said):
        check(fake(**modes), format="mxfp4_e2m1", shrink=False)


def test_values_that_no_code_gives():
    with pytest.raises(ConformanceError, match=r"got a value without a code, want 0x7 \(6\)"):
        check(lambda x: fake()(x) * np.float32(1.001), format="mxfp4_e2m1", shrink=False)


def test_other_types_and_shapes():
    with pytest.raises(TypeError, match="'function: values' must be an array of float32, not 'float64'"):
        check(lambda x: fake()(x).astype(float), format="mxfp4_e2m1")
    with pytest.raises(ValueError, match=r"'function: values' must be of shape \(845, 32\), not \(845, 16\)"):
        check(lambda x: fake()(x)[:, :16], format="mxfp4_e2m1")


def test_values_that_no_code_gives_at_the_right_scale_are_tried_at_others():
    task = make_task("quantize", "mxfp4_e2m1")
    x = np.full((2, 32), 1.0, np.float32)
    values = x.copy()
    # Divided by the right scale, 2^-2, the value 1.125 gives 4.5, which is not an element of E2M1.
    # Other scales give 2.25, which is not an element either, or 9, beyond the largest element.
    values[1] = 1.125
    parts = parts_of(task, {"x": x.view(np.uint32)}, values)
    assert parts["scale"].tolist() == [[125], [125]]
    assert [set(codes) for codes in parts["codes"].tolist()] == [{6}, {NO_CODE}]
    values[1] = 0.0625  # 0.0625 is 0.5 * 2^-3; E2M1 lacks 0.25, so the scale is not 2^-2
    parts = parts_of(task, {"x": x.view(np.uint32)}, values)
    some = {"code": parts["codes"][:, :1].astype(np.uint8), "scale": parts["scale"].astype(np.uint8)}
    assert parts["scale"].tolist() == [[125], [124]]
    decoded = expected(make_task("dequantize", "mxfp4_e2m1"), some)["value"]
    assert as_floats(decoded, task.source)[:, 0].tolist() == [1.0, 0.0625]
