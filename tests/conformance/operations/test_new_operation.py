"""Tests that defining one object is enough to check kernels of a new operation."""

from __future__ import annotations

import io

import numpy as np
import pytest

from mxnum.conformance import ConformanceError, check, make_task, operations, verify, write_vectors
from mxnum.conformance.bits import as_bits, as_floats
from mxnum.conformance.judging import describe
from mxnum.conformance.operations.rounding import of_field
from mxnum.conformance.operations.values import ValueOperation
from mxnum.conformance.task import Field


class Fma(ValueOperation):
    """Multiply two element codes and add a float32: d = a*b + c, rounded once."""

    name, settings, takes, level_2 = "fma", (), ("a", "b", "c"), 1000

    def inputs(self, task):
        bits = task.element.bits
        return [Field("a", bits, 1, "element"), Field("b", bits, 1, "element"), Field("c", 32, 1, "float")]

    def boundaries(self, task, rng):
        return self.samples(task, rng, 1 << 2 * task.element.bits, 0)

    def samples(self, task, rng, size, start):
        index, codes = np.arange(start, start + size).reshape(-1, 1), 1 << task.element.bits
        c = rng.integers(-8, 8, (size, 1)).astype(np.float32) + np.float32(2.0**-24)
        return {
            "a": (index // codes % codes).astype(np.uint8),
            "b": (index % codes).astype(np.uint8),
            "c": as_bits(c, task.source),
        }

    def possible(self, task):
        return "pairs of codes and a float32", None

    def expected(self, task, inputs):
        values = np.array(task.element.values())
        exact = values[inputs["a"]] * values[inputs["b"]] + as_floats(inputs["c"], task.source).astype(np.float64)
        return {"value": as_bits(exact.astype(np.float32), task.source)}

    def hypotheses(self, task):
        without = lambda t, i: self.expected(t, {**i, "c": i["c"] * np.uint32(0)})["value"]  # noqa: E731
        return of_field("value", [("no addend", without)])

    def given(self, task, inputs):
        return f"a = {describe.hexadecimal(int(inputs['a'][0, 0]), 4)}, c = {as_floats(inputs['c'], task.source)[0, 0]}"


@pytest.fixture(autouse=True)
def registered(monkeypatch):
    monkeypatch.setitem(operations.OPERATIONS, "fma", Fma())


VALUES = np.array(make_task("encode", "mxfp4_e2m1").element.values())


def right(a, b, c):
    return (VALUES[a] * VALUES[b] + c.astype(np.float64)).astype(np.float32)[:, 0]


def test_a_right_callable_is_right():
    report = check(right, format="mxfp4_e2m1", operation="fma")
    assert report.is_equal
    assert report.text().startswith("fma, mxfp4_e2m1: 256 cases, 256 right, 0 by choice, 0 wrong.")


def test_a_wrong_callable_is_diagnosed_and_shrunk():
    with pytest.raises(ConformanceError, match="what no addend gives") as caught:
        check(lambda a, b, c: right(a, b, np.zeros_like(c)), format="mxfp4_e2m1", operation="fma")
    assert caught.value.report.bugs > 200
    assert caught.value.report.unexplained == 0
    assert caught.value.smallest.inputs["a"].tolist() == [[0]]


def test_vectors_come_back():
    file = io.BytesIO()
    assert write_vectors(make_task("fma", "mxfp4_e2m1"), file, level=2, count=20) == 20
    assert verify(io.BytesIO(file.getvalue())).is_equal
