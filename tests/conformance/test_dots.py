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


@pytest.mark.parametrize("fmt", ["nvfp4", "e5m2:block=16,scale=float32"])
def test_accumulations_under_float_scales_can_be_told_apart(fmt):
    inputs = dots.boundary_dots(make_task("dot", fmt), Words(0))
    one, other = (expected(make_task("dot", fmt, accumulate=how), inputs)["value"] for how in ("exact", "sequential"))
    assert 0.001 < (one != other).mean() < 0.9


def test_what_float_scales_have_no_sum_for():
    assert make_task("dot", "nvfp4").accumulate == "exact"
    assert make_task("dot", "mxfp4_e2m1").accumulate == "block"
    with pytest.raises(ValueError, match="'accumulate' must be 'exact' or 'sequential' for nvfp4, whose scales are"):
        make_task("dot", "nvfp4", accumulate="block")


@pytest.mark.parametrize("fmt", ["mxfp8_e5m2", "e5m2:block=32,scale=float32"])
def test_every_kind_of_result(fmt):
    task = make_task("dot", fmt)
    values = as_floats(expected(task, dots.boundary_dots(task, Words(0)))["value"], task.source)
    assert np.isnan(values).any()
    assert (values == np.inf).any()
    assert (values == -np.inf).any()
    assert (values == 0).any()
    assert ((np.abs(values) > 0) & (np.abs(values) < task.source.min_normal)).any()


@pytest.mark.parametrize("fmt", ["mxfp8_e4m3", "nvfp4", "e4m3:block=32,scale=bfloat16"])
def test_random_rows_are_mostly_finite(fmt):
    task = make_task("dot", fmt)
    values = as_floats(expected(task, dots.random_dots(task, Words(0), 400))["value"], task.source)
    assert 0.85 < np.isfinite(values).mean() < 1
