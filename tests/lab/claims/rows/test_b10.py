"""Tests of the transform of an outlier in B10."""

from __future__ import annotations

import numpy as np

from mxnum.lab.claims.rows import (
    b10,
)


def test_the_transform_of_an_outlier():
    """A number alone in a block loses only the rounding of a scale, a part in 17 at most."""
    x = np.zeros((4, 16), np.float32)
    x[:, 3] = 1, 2, 3, 5
    assert (b10.by_block(x, "nvfp4", False) < 1 / 17**2).all()
    assert (b10.by_block(x, "nvfp4", True) < 1 / 17**2).all()
