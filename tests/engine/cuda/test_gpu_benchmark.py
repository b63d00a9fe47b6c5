"""Tests that the GPU benchmark runs, and that it notices if GPU and CPU results differ.

The tests run in the simulator, where the measured times are meaningless.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

import mxnum as mx
from benchmarks import cuda as question
from benchmarks import cuda_bits, cuda_speed
from benchmarks.questions import Session
from benchmarks.record import Answer, Measurement
from tests.engine.cuda.conftest import SIMULATED

if not SIMULATED:
    pytest.skip("on a GPU, the benchmark runs these tests itself, and starts many processes", allow_module_level=True)

QUICK = Session(quick=True, sizes=(256,), rounds=1, seconds=0.0, least=1)


def test_everything_is_compared_and_equal():
    found = {(m.row, m.column): m for _, m in question._equality(QUICK)}
    powers = len(mx.formats.names("e8m0"))
    assert len(found) == 5 * powers + 1
    assert not [each for each in found.values() if each.failed]
    assert all(each.text for each in found.values())
    assert found["nvfp4", "random"].text == f"{256 * 7:,}"
    assert found["mxfp4_e2m1", "every float32"].text == "512"
    assert found["mxfp8_e4m3", "every 16-bit number"].text == f"{6 * 512:,}"


def test_what_an_interrupted_run_has_is_not_compared_again(monkeypatch: pytest.MonkeyPatch):
    cells = list(question._equality(QUICK))
    had = Answer("cuda", "", "")
    for table, measurement in cells[:-1]:
        had.add(table, measurement)
    ran = []
    monkeypatch.setattr(cuda_bits.Comparison, "run", lambda self: (ran.append(self.kind), (7, ""))[1])
    again = list(question._equality(replace(QUICK, earlier=had.known())))
    assert ran == ["every 16-bit number"]
    assert again[:-1] == cells[:-1]
    assert again[-1][1].text == "7"


@pytest.mark.parametrize("wrong", ["quantize", "fake_quantize", "matmul"])
def test_a_difference_is_reported(monkeypatch: pytest.MonkeyPatch, wrong):
    right = getattr(mx, wrong)

    def wrong_on_gpus(x, *others, **modes):
        on_gpu = hasattr(getattr(x, "codes", x), "copy_to_host")
        changed = {"accumulate": "sequential"} if wrong == "matmul" else {"rounding": "rtz", "seed": None}
        return right(x, *others, **(modes | changed if on_gpu else modes))

    monkeypatch.setattr(mx, wrong, wrong_on_gpus)
    kind, count = ("products", 1 << 12) if wrong == "matmul" else ("random", 256)
    _, difference = cuda_bits.Comparison(kind, "mxfp8_e4m3", count, 512, 1).run()
    assert difference.startswith(wrong)
    assert difference.endswith(" differs")


def test_libraries_are_compared_where_they_are():
    found = {(m.row, m.column): m for _, m in question._libraries(QUICK)}
    assert len(found) == 6
    assert found["numba", "arrays"].text == found["numba", "on a stream of its own"].text == "1,024"
    for name in ("CuPy", "PyTorch"):
        each = found[name, "arrays"]
        assert each.text == "1,024" or each.skipped


def test_the_tests_are_run_and_their_last_line_kept(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(question, "_TESTS", "tests/engine/cuda/test_driver.py")
    (_, passed), *_ = question._suite(replace(QUICK, quick=False))
    assert "3 passed" in passed.text
    monkeypatch.setattr(question, "_TESTS", "tests/engine/cuda/no_such_file.py")
    (_, failed), *_ = question._suite(replace(QUICK, quick=False))
    assert not failed.text
    assert failed.failed
    (_, skipped), *_ = question._suite(QUICK)
    assert skipped.skipped


def test_speed_is_measured_and_the_device_named(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(cuda_speed, "CALLS", 1)
    (_, device), *found = cuda_speed.measure(QUICK)
    assert device.text
    assert len(found) == 16
    assert all(measurement.median for _, measurement in found[:-1])
    assert found[-1][1].median or found[-1][1].skipped
    assert not any(measurement.failed for _, measurement in found)
    assert next(measurement.row for _, measurement in question.device_of(QUICK)) == "name"
    earlier = {("device", "name", "device"): Measurement("name", "device", text="another GPU")}
    with pytest.raises(RuntimeError, match="used another device, another GPU; leave out --resume"):
        next(question.device_of(replace(QUICK, earlier=earlier)))
