"""Tests that measuring the tensors again gives the stored results."""

from __future__ import annotations

from mxnum.analysis import measure, synthetic
from mxnum.lab.claims import (
    tensors,
)


def test_errors_are_those_of_the_tensor():
    x = synthetic.gradients(*tensors.SHAPE, seed=tensors.SEED)
    fresh = measure(x, "mxint4", scale_rule="ceil", block_shape=(4, 4))
    assert tensors.error("gradients", "mxint4", "ceil", block=(4, 4)) == fresh.normalized_rmse
    assert tensors.found("gradients", "mxint4", "ceil", block=(4, 4)).underflow_rate == fresh.underflow_rate


def test_best_rule_is_the_least_error(monkeypatch):
    errors = {"floor": 0.3, "ceil": 0.2, "even": 0.1, "rceil": 0.1}
    monkeypatch.setattr(tensors, "error", lambda tensor, fmt, rule: errors[rule])
    assert tensors.best_rule("weights", "mxint4") == "even"
