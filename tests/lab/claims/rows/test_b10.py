"""Tests of claim B10 on blocks with a single nonzero number, an outlier."""

from __future__ import annotations

import numpy as np

from mxnum.lab.claims.rows import (
    b10,
)


def test_the_transform_of_an_outlier():
    """Check that a block's relative error is below 1/17, the most that rounding a scale causes."""
    x = np.zeros((4, 16), np.float32)
    x[:, 3] = 1, 2, 3, 5
    assert (b10.by_block(x, "nvfp4", False) < 1 / 17**2).all()
    assert (b10.by_block(x, "nvfp4", True) < 1 / 17**2).all()
