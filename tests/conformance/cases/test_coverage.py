from __future__ import annotations

import numpy as np
import pytest

import mxnum as mx
from mxnum.conformance import ConformanceError, check
from mxnum.conformance.cases.batches import Coverage, cases
from mxnum.conformance.operations import make_task

ENCODE = {"format": "mxfp4_e2m1", "operation": "encode"}


def after_nan(code):
    """Return an encoder to E2M1 that returns `code` for every NaN."""

    def encode(x):
        nan = np.isnan(x)
        return np.where(nan, code, mx.encode(np.where(nan, 0, x.astype(np.float32)), "e2m1"))

    return encode


@pytest.mark.parametrize("source", ["float16", "bfloat16"])
def test_mistake_at_a_single_nan_is_found(source):
    # Regression: the kernel `wrong` passed the check, because no test case contained a NaN if the
    # element format had no NaN code.
    def wrong(x):
        return np.where(x.view(np.uint16) == 0x7FC1, 3, after_nan(7)(x))

    report = check(after_nan(7), **ENCODE, source=source, strict=True)
    assert report.text() == (
        f"encode, mxfp4_e2m1: 65536 cases, 65536 right, 0 by choice, 0 wrong. Tried: all 65,536 {source} patterns."
    )
    with pytest.raises(ConformanceError, match=r"(?s)65535 right, 0 by choice, 1 wrong.*got 0x3 \(1.5\), want one of"):
        check(wrong, **ENCODE, source=source, shrink=False)


def test_result_of_nan_is_a_choice_and_may_be_an_exception():
    report = check(after_nan(0), **ENCODE)
    assert report.choices == {"nan_element": 8}
    assert "with NaN and infinity." in report.text()
    with pytest.raises(ConformanceError, match="8 by choice"):
        check(after_nan(0), **ENCODE, strict=True, shrink=False)
    report = check(lambda x: mx.encode(x, "e2m1"), **ENCODE, strict=True)
    assert "with infinity, without NaN (for which the function raises ValueError)." in report.text()
    with pytest.raises(ValueError, match="NaN"):  # E4M3 has a code for NaN, so a kernel must not raise an error
        check(lambda x: mx.encode(x, "e2m1"), format="mxfp8_e4m3", operation="encode")


@pytest.mark.parametrize(
    ("operation", "fmt", "modes", "says"),
    [
        ("encode", "mxint8", {"source": "float16", "rounding": "sr"},
         "all 65,536 float16 patterns, with a sample of random words"),
        ("encode", "mxfp8_e4m3", {"source": "float64"}, "a sample of the 2^64 float64 patterns, with NaN and infinity"),
        ("quantize", "mxfp4_e2m1", {"nonfinite": "element"},
         "a sample of blocks of 32 float32 numbers, with NaN and infinity"),
        ("scale", "nvfp4", {}, "a sample of blocks of 16 float32 numbers, with NaN and infinity"),
        ("dequantize", "mxfp6_e3m2", {}, "all 16,384 pairs of a scale code and an element code"),
        ("dequantize", "nvfp4", {}, "a sample of pairs of a scale code and an element code, with NaN"),
        ("dot", "mxfp4_e2m1", {}, "a sample of pairs of rows of 4 blocks, with NaN"),
        ("dot", "mxfp8_e5m2", {}, "a sample of pairs of rows of 4 blocks, with NaN and infinity"),
    ],
)  # fmt: skip
def test_report_says_what_level_1_tries(operation, fmt, modes, says):
    task = make_task(operation, fmt, **modes)
    covered = Coverage(task)
    for inputs in cases(task):
        covered.add(inputs)
    assert covered.sentence() == f"Tried: {says}."


def test_report_of_a_few_cases_says_how_many():
    covered = Coverage(make_task("encode", "mxfp4_e2m1", source="float16"))
    covered.add({"x": np.array([[0x3C00], [0x3C00], [0x7C01]], np.uint16)})
    assert covered.sentence() == "Tried: 2 of 65,536 float16 patterns, with NaN, without infinity."
