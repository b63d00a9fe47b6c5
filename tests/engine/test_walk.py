"""How arrays are gone through: every element once, by whichever thread."""

from __future__ import annotations

import numpy as np
import pytest

from mxnum.engine.walk import CHUNK, ELEMENTS_PER_THREAD, Walk, chunks, overlaps_partly, plan, plan_apart
from mxnum.layout import scales_shape


@pytest.mark.parametrize(
    ("shape", "blocks", "walk"),
    [
        ((8, 64), (1, 32), (1, 1, 512, 1, 32)), ((8, 70), (1, 32), (1, 8, 70, 1, 32)),
        ((64, 8), (32, 1), (1, 64, 8, 32, 1)),
        ((2, 64, 8), (1, 32, 1), (2, 64, 8, 32, 1)), ((64, 4, 8), (32, 1, 1), (1, 64, 32, 32, 1)),
        ((6, 4, 8), (2, 1, 4), (1, 6, 32, 2, 4)), ((5,), (32,), (1, 1, 5, 1, 5)), ((), (), (1, 1, 1, 1, 1)),
        ((1000, 3), (1, 32), (1, 1, 3000, 1, 3)),
    ],
)  # fmt: skip
def test_arrays_are_seen_as_planes_rows_and_columns(shape, blocks, walk):
    assert plan(shape, blocks) == Walk(*walk)


@pytest.mark.parametrize(("shape", "blocks"), [((4, 4, 4), (2, 2, 2)), ((6, 5, 9), (2, 1, 4))])
def test_blocks_over_axes_that_no_loop_has_are_left_to_the_definition(shape, blocks):
    assert plan(shape, blocks) is None


@pytest.mark.parametrize("threads", [1, 2, 3, 7])
@pytest.mark.parametrize(
    "walk", [Walk(1, 1, 8 * ELEMENTS_PER_THREAD + 5, 1, 32), Walk(1, 9, 500_001, 1, 32), Walk(2, 64, 70_001, 64, 1)]
)
def test_pieces_cover_everything_once(walk, threads):
    pieces = walk.pieces(threads)
    assert len(pieces) <= threads
    width = -(-walk.columns // walk.run) if walk.along_rows else walk.columns
    height = walk.planes * (walk.rows if walk.along_rows else -(-walk.rows // walk.k))
    covered = np.zeros((height, width), np.uint8)
    for first, last, begin, end in pieces:
        covered[first:last, begin:end] += 1
        assert begin % (walk.group if walk.along_rows else walk.panel) == 0
    assert (covered == 1).all()


def test_small_arrays_stay_on_one_thread():
    assert Walk(1, 1, 2 * ELEMENTS_PER_THREAD - 1, 1, 32).pieces(8) == [(0, 1, 0, 2 * ELEMENTS_PER_THREAD // 32)]


@pytest.mark.parametrize(
    ("shape", "blocks"),
    [
        ((1000, 700), (16, 1)), ((1, 500_000), (1, 32)), ((3, 9), (1, 32)), ((3, 500_000), (1, 32)), ((), ()),
        ((5, 3, 200_000), (1, 2, 7)), ((2, 300_001), (4, 32)), ((1, 1), (1, 1)), ((CHUNK + 1,), (1,)),
    ],
)  # fmt: skip
def test_chunks_cover_everything_once(shape, blocks):
    covered, scales = np.zeros(shape, np.uint8), np.zeros(scales_shape(shape, blocks), np.uint8)
    index = np.arange(covered.size).reshape(shape)
    for where, blocks_where, first in chunks(shape, blocks):
        covered[where] += 1
        scales[blocks_where] += 1
        assert covered[where].size <= CHUNK
        assert covered[where].shape == () or scales[blocks_where].shape == scales_shape(covered[where].shape, blocks)
        assert covered[where].flags.c_contiguous or first is None
        assert first is None or index[where].flat[0] == first
    assert (covered == 1).all()
    assert (scales == 1).all()


def test_chunks_are_about_as_large_as_asked_for():
    assert [chunk.where[0] for chunk in chunks((10, 5), (3, 1), 40)] == [slice(0, 6), slice(6, 10)]
    assert [chunk.where[1].stop for chunk in chunks((1, 100), (1, 8), 40)] == [40, 80, 100]


def test_blocks_too_large_to_copy_have_no_chunks():
    assert chunks((CHUNK + 1, 2), (CHUNK + 1, 1)) is None
    assert chunks((CHUNK, 2), (CHUNK, 2)) is None
    assert len(chunks((CHUNK, 2), (CHUNK, 1))) == 2


@pytest.mark.parametrize(("columns", "is_narrow"), [(1, True), (7, True), (8, False), (1000, False)])
def test_few_columns_are_narrow(columns, is_narrow):
    assert plan((400, 64, columns), (1, 32, 1)).is_narrow == is_narrow
    assert not plan((400, 64, columns), (1, 1, 32)).is_narrow
    assert not plan((4, 64, columns), (1, 32, 1)).is_narrow


def test_writing_over_what_is_still_to_be_read():
    x = np.zeros(10, np.float32)
    assert not overlaps_partly(x, x)
    assert not overlaps_partly(x, np.zeros(10, np.float32))
    assert overlaps_partly(x[1:], x[:-1])
    assert overlaps_partly(x.reshape(2, 5), x.reshape(5, 2).T)


@pytest.mark.parametrize(
    ("shape", "blocks", "walk"),
    [
        ((40, 128), (1, 32), (1, 40, 128, 1, 32, 200)),
        ((40, 100), (1, 32), (1, 40, 100, 1, 32, 200)),
        ((5, 8, 128), (1, 1, 32), (1, 40, 128, 1, 32, 200)),
        ((5, 8, 128), (1, 4, 1), (5, 8, 128, 4, 1, 200)),
        ((40, 128), (8, 8), (1, 40, 128, 8, 8, 200)),
    ],
)
def test_rows_that_lie_apart_are_not_joined(shape, blocks, walk):
    assert plan_apart(shape, blocks, 200) == Walk(*walk)
    assert plan_apart(shape, blocks, 200).shape[-1] == 200
    assert plan(shape, blocks).shape[-1] == plan(shape, blocks).columns


def test_rows_that_lie_apart_and_are_copied():
    assert plan_apart((400, 63), (1, 32), 200) is None
    assert plan_apart((4, 3, 100), (4, 1, 4), 200) is None
