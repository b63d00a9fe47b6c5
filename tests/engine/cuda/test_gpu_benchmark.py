"""The question about GPUs runs, and notices a difference; its times in the simulator mean nothing."""

from __future__ import annotations

import pytest

import mxnum as mx
from benchmarks import cuda as question
from benchmarks.questions import Session

QUICK = Session(quick=True, sizes=(256,), rounds=1, seconds=0.0, least=1)


def test_everything_is_compared_and_equal():
    found = list(question._equality(QUICK))
    assert len(found) == 2 * len(mx.formats.names("e8m0"))
    assert not [measurement for _, measurement in found if measurement.failed]
    assert {measurement.text for _, measurement in found} == {f"{256 * 7:,}", "512"}


def test_a_difference_is_reported(monkeypatch: pytest.MonkeyPatch):
    right = mx.quantize

    def wrong_on_gpus(x, fmt, **modes):
        return right(x, fmt, **(modes | {"rounding": "rtz"} if hasattr(x, "copy_to_host") else modes))

    monkeypatch.setattr(mx, "quantize", wrong_on_gpus)
    _, first = next(question._equality(QUICK))
    assert "quantize differs: " in first.failed


def test_speed_is_measured_and_the_device_named(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(question, "CALLS", 1)
    found = list(question._speed(QUICK))
    assert len(found) == 13
    assert all(measurement.median and not measurement.failed for _, measurement in found)
    assert next(measurement.row for _, measurement in question._device()) == "name"
