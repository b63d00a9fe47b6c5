from __future__ import annotations

import math

import numpy as np
import pytest

from mxnum.conformance.cases.arrays import LAYOUTS, as_memory, checked_shapes, from_blocks, laid, shapes_of, to_blocks


@pytest.mark.parametrize("blocks", [(1, 32), (32, 1), (16, 32), (1, 16)])
def test_shapes_include_short_blocks_and_large_arrays(blocks):
    shapes = shapes_of(blocks)
    assert (1, 1) in shapes
    assert len(set(shapes)) == len(shapes)
    assert 1_000_000 < max(math.prod(shape) for shape in shapes) < 5_000_000
    for axis, block in enumerate(blocks):
        lengths = {shape[axis] for shape in shapes}
        assert block == 1 or {block - 1, block, block + 1} <= lengths
        assert block == 1 or any(length > block and length % block for length in lengths)
    if blocks == (1, 32):
        assert any(shape[0] > 65_535 for shape in shapes)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts_hold_the_same_elements(layout):
    array = np.arange(15).reshape(3, 5)
    first, second = laid(array, layout), laid(array, layout)
    assert np.array_equal(first, array)
    first[:] = 0
    assert np.array_equal(second, array)
    assert first.flags.c_contiguous == (layout == "contiguous")
    assert np.array_equal(as_memory(second), array) == (layout == "contiguous")
    one = np.array([[7]])
    assert laid(one, layout).tolist() == [[7]]


@pytest.mark.parametrize("blocks", [(1, 4), (4, 1), (2, 3)])
def test_to_blocks_and_from_blocks_are_inverse(blocks):
    array = np.arange(1, 36).reshape(5, 7)
    rows = to_blocks(array, blocks)
    assert rows.shape[1] == math.prod(blocks)
    assert np.array_equal(from_blocks(rows, array.shape, blocks), array)
    assert sorted(rows[rows > 0].tolist()) == list(range(1, 36))
    assert rows[0].tolist() == array[: blocks[0], : blocks[1]].ravel().tolist()


def test_wrong_shapes_raise():
    assert checked_shapes([(1, 2), [3, 4]]) == [(1, 2), (3, 4)]
    for wrong in ([3], [(1, 2, 3)], [], [(0, 3)]):
        with pytest.raises(ValueError, match="'shapes' must be"):
            checked_shapes(wrong)
