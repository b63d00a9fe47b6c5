from __future__ import annotations

import numpy as np
import pytest

from mxnum.conformance.bits import Generator
from mxnum.conformance.operations import OPERATIONS, make_task
from mxnum.conformance.shrink import search


def random_case(task):
    return {
        f.name: Generator(1).integers(0, (1 << min(f.bits, 30)) - 1, (1, f.count)).astype(f"u{max(8, f.bits) // 8}")
        for f in task.inputs
    }


@pytest.mark.parametrize("operation", OPERATIONS)
def test_what_always_fails_is_shrunk_to_nearly_nothing(operation):
    task = make_task(operation, "mxfp8_e4m3")
    name = task.inputs[-1].name
    found = search(task, lambda inputs: np.ones(len(inputs[name]), bool), [random_case(task)], 50)
    assert all(np.count_nonzero(column) <= 2 for n, column in found.items() if n in ("x", "a", "b", "code"))


def test_numbers_of_known_failures_are_found():
    task = make_task("encode", "mxfp8_e4m3")
    odd = np.uint32(0x47123457)
    known = [{"x": np.array([[odd]])}]
    found = search(task, lambda inputs: (inputs["x"] == odd).any(axis=1), known, 2000)
    assert found["x"].tolist() == [[int(odd)]]


def test_what_never_fails_is_not_found():
    task = make_task("encode", "mxfp8_e4m3")
    assert search(task, lambda inputs: np.zeros(len(inputs["x"]), bool), [random_case(task)], 20) is None
