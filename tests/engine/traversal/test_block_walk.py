"""Tests that arrays are divided among threads so that each element is processed once."""

from __future__ import annotations

import numpy as np
import pytest

from mxnum.engine.traversal.block_walk import ELEMENTS_PER_THREAD, Walk, walk_of
from mxnum.engine.traversal.parts import shares_of


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
    assert walk_of(shape, blocks) == Walk(*walk)


@pytest.mark.parametrize(("shape", "blocks"), [((4, 4, 4), (2, 2, 2)), ((6, 5, 9), (2, 1, 4))])
def test_blocks_over_axes_that_no_loop_has_have_to_become_rows(shape, blocks):
    assert walk_of(shape, blocks) is None


@pytest.mark.parametrize("threads", [1, 2, 3, 7])
@pytest.mark.parametrize(
    "walk", [Walk(1, 1, 8 * ELEMENTS_PER_THREAD + 5, 1, 32), Walk(1, 9, 500_001, 1, 32), Walk(2, 64, 70_001, 64, 1)]
)
def test_shares_cover_everything_once(walk, threads):
    shares = walk.shares(threads)
    assert len(shares) <= threads
    width = -(-walk.columns // walk.run) if walk.along_rows else walk.columns
    height = walk.planes * (walk.rows if walk.along_rows else -(-walk.rows // walk.k))
    covered = np.zeros((height, width), np.uint8)
    for first, last, begin, end in shares:
        covered[first:last, begin:end] += 1
        assert begin % (walk.group if walk.along_rows else walk.panel) == 0
    assert (covered == 1).all()


def test_small_arrays_stay_on_one_thread():
    assert Walk(1, 1, 2 * ELEMENTS_PER_THREAD - 1, 1, 32).shares(8) == [(0, 1, 0, 2 * ELEMENTS_PER_THREAD // 32)]


@pytest.mark.parametrize(("columns", "is_narrow"), [(1, True), (7, True), (8, False), (1000, False)])
def test_few_columns_are_narrow(columns, is_narrow):
    assert (walk_of((400, 64, columns), (1, 32, 1)) is None) == is_narrow
    assert walk_of((400, 64, columns), (1, 1, 32)) is not None
    assert walk_of((4, 64, columns), (1, 32, 1)) is not None


def test_things_are_shared_by_threads_that_are_worth_it():
    items = list(range(10))
    for threads, count in ((1, 1), (2, 2), (3, 3), (8, 4)):
        shares = shares_of(items, 4 * ELEMENTS_PER_THREAD, threads)
        assert len(shares) == count
        assert [item for share in shares for item in share] == items
    assert len(shares_of(items, ELEMENTS_PER_THREAD, 8)) == 1
