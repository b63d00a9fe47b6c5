"""Each choice is recognized, and what is no choice is a bug."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from mxnum.conformance.cases import cases
from mxnum.conformance.expected import expected
from mxnum.conformance.judge import BUG, CHOICES, LABELS, class_names, classify, judge
from mxnum.conformance.task import make_task
from mxnum.modes import Overflow


def batch(task):
    return next(cases(task))


def labels(task, answers, inputs):
    verdicts = judge(task, inputs, answers, {}).verdicts
    return {name for name, bit in {"bug": BUG, **LABELS}.items() if (verdicts & bit).any()}


@pytest.mark.parametrize("fmt", ["mxfp8_e4m3", "mxfp8_e5m2", "mxfp4_e2m1", "mxint8"])
@pytest.mark.parametrize("operation", ["encode", "quantize", "scale", "dequantize", "dot"])
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
    ordinary = np.flatnonzero(classify(task, inputs, want) == class_names(task).index("ordinary"))[:5]
    scale = want["scale"].copy()
    scale[ordinary] += 1
    found = judge(task, inputs, {**want, "scale": scale}, {})
    assert np.flatnonzero(found.verdicts).tolist() == ordinary.tolist()
    assert {found.parts[row] for row in ordinary} == {"scale"}
    codes = want["codes"].copy()
    codes[ordinary, 3] ^= 1
    found = judge(task, inputs, {**want, "codes": codes}, {})
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
