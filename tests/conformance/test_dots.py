from __future__ import annotations

import numpy as np
import pytest

from mxnum.conformance import dots
from mxnum.conformance.expected import as_floats, expected
from mxnum.conformance.randomness import Words
from mxnum.conformance.task import make_task


@pytest.mark.parametrize("fmt", ["mxfp8_e5m2", "mxfp4_e2m1", "mxint8"])
def test_accumulations_can_be_told_apart(fmt):
    task = make_task("dot", fmt)
    inputs = dots.boundary_dots(task, Words(0))
    answers = [
        expected(make_task("dot", fmt, accumulate=how), inputs)["value"] for how in ("block", "exact", "sequential")
    ]
    assert (answers[0] != answers[1]).any()
    assert (answers[0] != answers[2]).any()
    assert (answers[1] != answers[2]).any()


def test_every_kind_of_result():
    task = make_task("dot", "mxfp8_e5m2")
    values = as_floats(expected(task, dots.boundary_dots(task, Words(0)))["value"], task.source)
    assert np.isnan(values).any()
    assert (values == np.inf).any()
    assert (values == -np.inf).any()
    assert (values == 0).any()
    assert ((np.abs(values) > 0) & (np.abs(values) < task.source.min_normal)).any()


def test_random_rows_are_mostly_finite():
    task = make_task("dot", "mxfp8_e4m3")
    values = as_floats(expected(task, dots.random_dots(task, Words(0), 400))["value"], task.source)
    assert 0.85 < np.isfinite(values).mean() < 1
