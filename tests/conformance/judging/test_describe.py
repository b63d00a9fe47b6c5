from __future__ import annotations

import numpy as np
import pytest

from mxnum.conformance.bits import ordinal
from mxnum.conformance.judging import describe
from mxnum.conformance.judging.right import expected
from mxnum.conformance.operations import make_task
from mxnum.formats import ELEMENTS, FLOATS


def column(values, dtype):
    return np.array([values], dtype)


def test_encode():
    task = make_task("encode", "mxfp8_e4m3")
    inputs = {"x": column([17.0], np.float32).view(np.uint32)}
    want = expected(task, inputs)
    text = task.operation.describe(task, inputs, {"code": column([0x59], np.uint8)}, want)
    assert text == (
        "x = bits:41880000 (17): got 0x59 (18), want 0x58 (16), 1 code too high. 17 lies between 16 (0x58) "
        "and 18 (0x59), at 1/2 of the gap; a tie, which rne rounds to the even code, here the one nearer zero."
    )


def test_sign_of_zero_and_random_words():
    task = make_task("encode", "mxfp8_e4m3", rounding="sr", sr_bits=4)
    inputs = {"x": column([-0.0], np.float32).view(np.uint32), "random": column([9], np.uint32)}
    text = task.operation.describe(task, inputs, {"code": column([0], np.uint8)}, expected(task, inputs))
    assert "the sign of zero" in text
    assert "random 0x00000009" in text


@pytest.mark.parametrize("operation", ["quantize", "scale"])
def test_scale(operation):
    task = make_task(operation, "mxfp8_e4m3")
    x = np.zeros((1, 32), np.float32)
    x[0, 3] = np.nextafter(np.float32(8), np.float32(0))
    inputs = {"x": x.view(np.uint32)}
    want = expected(task, inputs)
    got = {**want, "scale": want["scale"] + 1}
    text = task.operation.describe(task, inputs, got, want)
    assert "x = [0 x3 7.99999952 0 x28]" in text
    assert "got scale 0x7A (2^-5), want 0x79 (2^-6), 1 too high" in text
    assert "(element 3), emax is 8; floor takes E - emax" in text


def test_values():
    task = make_task("dequantize", "mxfp8_e4m3")
    inputs = {"scale": column([0], np.uint8), "code": column([0x38], np.uint8)}
    want = expected(task, inputs)
    text = task.operation.describe(task, inputs, {"value": column([0], np.uint32)}, want)
    assert "code 0x38 (1) at scale 0x00 (2^-127): got 0x00000000 (0), want 0x00400000" in text
    assert "4194304 floats apart" in text


def test_block_example_prefers_a_wrong_value_to_a_wrong_zero():
    """Check that the example in a report is a wrong value rather than a wrong sign of zero."""
    task = make_task("quantize", "mxfp4_e2m1")
    x = np.zeros((1, 32), np.float32)
    x[0, :4] = -0.0, 1, 2, 3
    inputs = {"x": x.view(np.uint32)}
    want = expected(task, inputs)
    got = {**want, "codes": want["codes"].reshape(-1, 2)[:, ::-1].reshape(1, 32)}
    text = task.operation.describe(task, inputs, got, want)
    assert "4 of its 32 codes are wrong; element 0" in text
    assert "the sign of zero" not in text
    signs = {**want, "codes": np.where(want["codes"] == 8, 0, want["codes"])}
    assert "got 0x0 (0), want 0x8 (-0), the sign of zero" in task.operation.describe(task, inputs, signs, want)


def test_numbers_that_are_not_codes_are_described():
    assert describe.misfit(0xA4, 4) == "0xA4, which does not fit in 4 bits"
    assert describe.misfit(-92, 8) == "-92, which is negative"
    task = make_task("quantize", "mxfp4_e2m1")
    inputs = {"x": np.ones((1, 32), np.float32).view(np.uint32)}
    want = expected(task, inputs)
    got = {**want, "scale": want["scale"].astype(np.int64) + 256}
    assert "got scale 0x17D, which does not fit in 8 bits, want 0x7D" in task.operation.describe(
        task, inputs, got, want
    )


def test_shortened():
    assert describe.shortened(["0"] * 31 + ["1"]) == "0 x31 1"
    assert describe.shortened([str(i) for i in range(20)]) == "0 1 2 3 4 ... 18 19"


def test_ordinals_follow_values():
    for element in (*ELEMENTS.values(), FLOATS["float16"]):
        codes = [c for c in range(1 << element.bits) if abs(element.value(c)) <= element.max]
        values = sorted(codes, key=lambda c: ordinal(element, c))
        assert [element.value(c) for c in values] == sorted(element.value(c) for c in codes)
