"""Tests that the check of claim B9 notices a wrong figure."""

from __future__ import annotations

import numpy as np

from mxnum.lab.claims import (
    reproduce,
)
from mxnum.lab.claims.rows import (
    b09,
)


def test_a_wrong_figure_is_noticed(monkeypatch):
    monkeypatch.setattr(b09, "TENSOR_SCALE", float(np.float32(3 / 2688)))
    evidence = reproduce(["B9"])["B9"].evidence
    assert not evidence.comparisons[0].agrees
