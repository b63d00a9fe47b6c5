"""Tests of `mxnum.layout`: arguments for blocks, shapes of scales, and merging of axes."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mxnum.layout import collapse, element_strides, resolve_blocks, scales_shape


@pytest.mark.parametrize(
    ("arguments", "want"),
    [
        ({}, (1, 1, 32)),
        ({"axis": 0}, (32, 1, 1)),
        ({"axis": -2, "block_size": 16}, (1, 16, 1)),
        ({"block_shape": (4, 8)}, (1, 4, 8)),
        ({"blocks": (2, 3, 4)}, (2, 3, 4)),
        ({"block_size": np.int64(5)}, (1, 1, 5)),
    ],
)
def test_sugar(arguments, want):
    assert resolve_blocks((5, 6, 7), 32, **arguments) == want


def test_scalars():
    assert resolve_blocks((), 32) == ()
    assert resolve_blocks((), 32, axis=-1) == ()
    assert scales_shape((), ()) == ()


def test_short_blocks_count():
    assert scales_shape((5, 64, 33), (1, 32, 32)) == (5, 2, 2)
    assert scales_shape((0, 5), (32, 1)) == (0, 5)


@given(st.lists(st.tuples(st.integers(1, 4), st.sampled_from([1, 1, 2, 3])), min_size=1, max_size=5))
def test_collapsing_keeps_which_elements_share_a_block(axes):
    shape, blocks = tuple(a for a, _ in axes), tuple(b for _, b in axes)
    new_shape, new_blocks = collapse(shape, blocks)
    assert len(new_shape) >= 2
    assert np.prod(new_shape, dtype=int) == np.prod(shape, dtype=int)

    def block_of_each_element(shape, blocks):
        strides = element_strides(scales_shape(shape, blocks))
        index = np.indices(shape).reshape(len(shape), -1)
        return sum((i // b * s for i, b, s in zip(index, blocks, strides, strict=True)), np.zeros(index.shape[1], int))

    assert np.array_equal(block_of_each_element(shape, blocks), block_of_each_element(new_shape, new_blocks))
    assert not any(a == b == 1 for a, b in pairwise(new_blocks)) or len(new_shape) == 2
