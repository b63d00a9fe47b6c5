"""Tests that the judge recognizes each permitted choice, and calls every other difference a bug."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from mxnum.conformance.cases.batches import cases
from mxnum.conformance.judging.judge import BUG, CHOICES, LABELS, Tallies, judge, nan_codes
from mxnum.conformance.judging.right import expected
from mxnum.conformance.operations import make_task
from mxnum.formats import ELEMENTS
from mxnum.memory.dtypes import numpy_dtype
from mxnum.modes import Nonfinite, Overflow


def batch(task):
    return next(cases(task))


def labels(task, answers, inputs):
    verdicts = judge(task, inputs, answers).verdicts
    return {name for name, bit in {"bug": BUG, **LABELS}.items() if (verdicts & bit).any()}


@pytest.mark.parametrize("fmt", ["mxfp8_e4m3", "mxfp8_e5m2", "mxfp4_e2m1", "mxint8"])
@pytest.mark.parametrize("operation", ["encode", "decode", "quantize", "scale", "dequantize", "dot"])
def test_right_answers_have_no_label(operation, fmt):
    task = make_task(operation, fmt)
    inputs = batch(task)
    assert labels(task, expected(task, inputs), inputs) == set()


def test_overflow_and_infinity_are_two_choices():
    task = make_task("encode", "mxfp8_e5m2")
    inputs = batch(task)
    ieee = expected(replace(task, overflow=Overflow.IEEE), inputs)
    assert labels(task, ieee, inputs) == {"overflow", "infinity"}
    infinite = (inputs["x"] & 0x7FFFFFFF) == 0x7F800000
    kept = {"code": np.where(infinite, ieee["code"], expected(task, inputs)["code"])}
    assert labels(task, kept, inputs) == {"infinity"}


def test_signs_of_zero_and_codes_of_nan():
    task = make_task("encode", "mxfp8_e5m2")
    inputs = batch(task)
    want = expected(task, inputs)["code"]
    assert labels(task, {"code": np.where(want == 0x80, 0, want)}, inputs) == {"minus_zero"}
    assert labels(task, {"code": np.where(want == 0, 0x80, want)}, inputs) == {"bug"}
    assert labels(task, {"code": np.where(want == 0x81, 0, want)}, inputs) == {"bug"}
    assert labels(task, {"code": np.where((want & 0x7F) == 0x7F, 0x7E, want)}, inputs) == {"nan_code"}
    assert labels(task, {"code": np.where((want & 0x7F) == 0x7F, 0x7C, want)}, inputs) == {"bug"}


def test_blocks_of_nan_and_of_zeros():
    task = make_task("quantize", "mxfp8_e4m3")
    inputs = batch(task)
    want = expected(task, inputs)
    nan = want["scale"] == 0xFF
    assert labels(task, {**want, "codes": np.where(nan, 5, want["codes"])}, inputs) == {"nan_block_codes"}
    by_element = expected(make_task("quantize", "mxfp8_e4m3", nonfinite="element"), inputs)
    assert labels(task, by_element, inputs) == {"nonfinite"}
    assert labels(make_task("quantize", "mxfp8_e4m3", nonfinite="element"), want, inputs) == {"nonfinite"}
    zero = (inputs["x"] & 0x7FFFFFFF).max(axis=1, keepdims=True) == 0
    assert labels(task, {**want, "scale": np.where(zero, 127, want["scale"]).astype(np.uint8)}, inputs) == {
        "zero_scale"
    }
    assert labels(task, {**want, "scale": np.where(zero, 255, want["scale"]).astype(np.uint8)}, inputs) == {"bug"}
    assert labels(task, {**want, "codes": np.where(zero, 1, want["codes"])}, inputs) == {"bug"}


def test_a_wrong_scale_is_a_bug_and_so_is_one_wrong_element():
    task = make_task("quantize", "mxfp8_e4m3")
    inputs = batch(task)
    want = expected(task, inputs)
    ordinary = np.flatnonzero(
        task.operation.classify(task, inputs, want) == task.operation.class_names(task).index("ordinary")
    )[:5]
    scale = want["scale"].copy()
    scale[ordinary] += 1
    found = judge(task, inputs, {**want, "scale": scale})
    assert np.flatnonzero(found.verdicts).tolist() == ordinary.tolist()
    assert {found.parts[row] for row in ordinary} == {"scale"}
    codes = want["codes"].copy()
    codes[ordinary, 3] ^= 1
    found = judge(task, inputs, {**want, "codes": codes})
    assert np.flatnonzero(found.verdicts & BUG).tolist() == ordinary.tolist()
    assert "scale" not in {found.parts[row] for row in ordinary}


@pytest.mark.parametrize("operation", ["dequantize", "dot"])
def test_values(operation):
    task = make_task(operation, "mxfp8_e4m3")
    inputs = batch(task)
    want = expected(task, inputs)["value"]
    nan = want == 0x7FC00000
    assert labels(task, {"value": np.where(nan, 0xFFC00001, want)}, inputs) == {"nan_code"}
    assert labels(task, {"value": np.where(nan, 0, want)}, inputs) == {"bug"}
    place = np.flatnonzero(~nan[:, 0] & (want[:, 0] > 0) & (want[:, 0] < 0x7F800000))[0]
    wrong = want.copy()
    wrong[place] += 1
    assert labels(task, {"value": wrong}, inputs) == {"bug"}


def test_every_choice_has_a_sentence():
    assert set(LABELS) == set(CHOICES)
    assert len({*LABELS.values(), BUG}) == len(CHOICES) + 1


def test_what_is_no_code_is_wrong_whatever_its_lower_bits_are():
    for operation, name in (("encode", "code"), ("scale", "scale"), ("quantize", "codes"), ("quantize", "scale")):
        task = make_task(operation, "mxfp4_e2m1")
        inputs = batch(task)
        want = expected(task, inputs)
        for change in (256, -256, 0xA0 if name != "scale" else 512):
            judged = judge(task, inputs, {**want, name: want[name].astype(np.int64) + change})
            assert (judged.verdicts & BUG).all()
            assert set(judged.parts) == {"does not fit"}


def test_a_block_without_finite_numbers_has_the_scale_of_a_block_of_zeros():
    task = make_task("scale", "mxfp4_e2m1")
    inputs = batch(task)
    want = expected(replace(task, nonfinite=Nonfinite.ELEMENT), inputs)["scale"]
    x = inputs["x"] & 0x7FFFFFFF
    empty = ((x == 0) | (x >= 0x7F800000)).all(axis=1, keepdims=True) & (x >= 0x7F800000).any(axis=1, keepdims=True)
    tallies = Tallies()
    judge(task, inputs, {"scale": np.where(empty, 254, want).astype(np.uint8)}, tallies)
    assert set(tallies.zero_scales) == {0, 254}


def test_nan_codes_are_those_that_are_documented():
    assert nan_codes(ELEMENTS["e2m1"])["zero of the other sign"] == (8, 0)
    assert nan_codes(ELEMENTS["int8"]) == {
        "the largest": (127, 127),
        "the largest of its sign": (127, 129),
        "zero": (0, 0),
        "the most negative": (128, 128),
    }
    nan = np.array([np.nan, -np.nan], np.float32)  # ml_dtypes documents these results
    for name in ("e2m1", "e2m3", "e3m2"):
        codes = nan.astype(numpy_dtype(ELEMENTS[name])).view(np.uint8).tolist()
        assert tuple(codes) == nan_codes(ELEMENTS[name])["zero of the other sign"]
