from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import mxnum as mx
from mxnum.conformance.cases.arrays import as_memory, laid
from mxnum.conformance.hypotheses.arrangements import ARRANGEMENTS, Answered, arrangements
from mxnum.conformance.operations import make_task
from mxnum.interop.swizzle import swizzle_scales, unswizzle_scales

TASK = make_task("quantize", "mxfp4_e2m1")
X = np.random.default_rng(5).standard_normal((128, 128), np.float32) * np.exp2(np.arange(128, dtype=np.float32) / 2)


def answered(change, x=X, layout="contiguous"):
    q = mx.quantize(x, "mxfp4_e2m1")
    scale, codes = change(q.scales, q.codes)
    return Answered({"x": x.view(np.uint32)}, {"scale": scale, "codes": codes}, (1, 32), layout, 1)


def by_columns(array):
    return np.ascontiguousarray(array.T).reshape(array.shape)


CHANGES = {
    "scales are read in column-major order": lambda s, c: (by_columns(s), c),
    "scales are read as swizzled": lambda s, c: (swizzle_scales(s).reshape(s.shape), c),
    "scales are read as plain, not as swizzled": lambda s, c: (unswizzle_scales(s.ravel(), s.shape), c),
    "codes are read in column-major order": lambda s, c: (s, by_columns(c)),
    "codes and scales are read in column-major order": lambda s, c: (by_columns(s), by_columns(c)),
}


@pytest.mark.parametrize("name", CHANGES)
def test_each_order_is_recognized_and_no_other(name):
    assert arrangements(TASK, [answered(CHANGES[name])]) == [name]
    assert arrangements(TASK, [answered(CHANGES[name]), answered(lambda s, c: (s, c))]) == []


def test_memory_axis_and_tails():
    q = mx.quantize(as_memory(laid(X, "transposed")), "mxfp4_e2m1")
    one = replace(answered(lambda s, c: (s, c), layout="transposed"), answers={"scale": q.scales, "codes": q.codes})
    assert arrangements(TASK, [one]) == ["x is read as contiguous memory from its first element on"]
    x = X[:32, :32]
    other = mx.quantize(x, "mxfp4_e2m1", axis=0)
    scales = other.scales.reshape(32, 1)
    one = Answered({"x": x.view(np.uint32).copy()}, {"scale": scales, "codes": other.codes}, (1, 32), "contiguous", 1)
    assert arrangements(TASK, [one]) == ["blocks lie along the other axis"]
    one = replace(
        answered(lambda s, c: (s, c), x[:, :31].copy()),
        answers={"scale": np.zeros((32, 1), np.uint8), "codes": np.zeros((32, 31), np.uint8)},
    )
    assert arrangements(TASK, [one]) == ["short last blocks are left zero"]


def test_every_arrangement_has_a_test():
    assert set(ARRANGEMENTS) - set(CHANGES) == {
        "x is read as contiguous memory from its first element on",
        "blocks lie along the other axis",
        "short last blocks are left zero",
        "short last blocks are left out",
    }
