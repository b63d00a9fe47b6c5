"""The passes by the definition: what they fill."""

from __future__ import annotations

import numpy as np

from mxnum.engine import definition
from mxnum.formats import ELEMENTS, FLOATS
from mxnum.modes import Nonfinite, ScaleRule


def test_scales_of_any_layout():
    x = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    scales = np.zeros((1, 2, 2), np.uint8)
    arguments = FLOATS["float32"], ELEMENTS["e2m1"], (2, 2, 2), ScaleRule.FLOOR
    definition.shared_scale(x, *arguments, Nonfinite.BLOCK, scales)
    largest = np.array([[[17, 19], [21, 23]]])
    assert np.array_equal(scales, 127 + np.floor(np.log2(largest)).astype(int) - 2)
    x[1, 2, 3] = np.nan
    definition.shared_scale(x, *arguments, Nonfinite.BLOCK, scales)
    assert scales[0, 1, 1] == 255


def test_extents_of_views():
    x = np.array([[1.0, np.inf], [np.nan, -3.0]], np.float32)
    amax, state = definition.extents(x.T, FLOATS["float32"], (1, 2))
    assert amax.view(np.float32).tolist() == [[1.0], [3.0]]
    assert state.tolist() == [[2], [1]]
