"""Tests of cutting arrays into pieces of whole blocks, of block sums, and of random words."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mxnum import reference
from mxnum.definition.chunks import chunks, gather, of_blocks, positions, random_words, spread
from mxnum.layout import scales_shape

SHAPES = st.lists(st.tuples(st.integers(0, 9), st.integers(1, 4)), max_size=3)


@given(SHAPES, st.integers(1, 60))
def test_every_element_is_in_one_piece_of_whole_blocks(axes, limit):
    shape, blocks = tuple(a for a, _ in axes), tuple(b for _, b in axes)
    seen, scales = np.zeros(shape, int), np.zeros(scales_shape(shape, blocks), int)
    for part in chunks(shape, blocks, limit):
        seen[part] += 1
        scales[of_blocks(part, blocks)] += 1
        assert all(piece.start % block == 0 for piece, block in zip(part, blocks, strict=True))
        assert seen[part].size <= max(limit, np.prod(blocks))
    assert (seen == 1).all()
    assert (scales == 1).all()


def test_pieces_come_in_c_order_and_as_large_as_allowed():
    assert [p[0].start for p in chunks((10, 8), (1, 4), 32)] == [0, 4, 8]
    assert len(list(chunks((10, 8), (1, 4), 10**6))) == 1


@given(SHAPES.filter(lambda axes: all(a for a, _ in axes)))
def test_gather_undoes_spread(axes):
    shape, blocks = tuple(a for a, _ in axes), tuple(b for _, b in axes)
    numbers = np.arange(np.prod(scales_shape(shape, blocks), dtype=int)).reshape(scales_shape(shape, blocks))
    each = spread(numbers, blocks, shape)
    assert each.shape == shape
    sizes = gather(np.add, np.ones(shape, int), blocks)
    assert np.array_equal(gather(np.maximum, each, blocks), numbers)
    assert np.array_equal(gather(np.add, each, blocks), numbers * sizes)


@pytest.mark.parametrize("seed", [0, 7, (1 << 64) - 1])
def test_random_words_are_those_of_the_whole_array(seed):
    shape, stream = (6, 10), (1 << 40) + 3
    whole = reference.random_words(shape, seed=seed, stream=stream)
    for part in chunks(shape, (2, 4), 16):
        assert np.array_equal(random_words(positions(part, shape), seed, stream), whole[part])
