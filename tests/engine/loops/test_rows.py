"""Tests that loops over rows cut each row into groups of blocks that cover the row."""

from __future__ import annotations

import numpy as np
import pytest

from mxnum.engine.loops import rows
from mxnum.engine.loops.panels import greatest_magnitude, panel_at, panels
from mxnum.engine.traversal.block_walk import Walk
from mxnum.formats import FLOATS


@pytest.mark.parametrize(("length", "run"), [(64, 32), (70, 32), (20, 32), (4096, 32), (3000, 100), (20_000, 9000)])
def test_groups_cover_a_row(length, run):
    walk = Walk(1, 2, length, 1, min(run, length))
    shape, seen, numbers = walk.shape, [], set()
    for row in (0, 1):
        at = 0
        while at < -(-length // walk.run):
            number, blocks, width = rows.group_of(row, at, shape)
            numbers.add(number)
            seen.append((number, blocks * width))
            at += blocks
    assert sum(width for _, width in seen) == 2 * length
    assert numbers == set(range(walk.groups))
    again = walk.redone
    share = again.shape, again.whole
    all_panels = panels(share)
    redone = [panel_at(i, share, all_panels) for i in range(all_panels.total)]
    assert [(panel.number, panel.width) for panel in redone] == seen, "groups to redo differ from the loop's groups"
    assert again.groups == walk.groups


def test_greatest_magnitude():
    x = np.array([1.0, -np.inf, 0.5])
    assert greatest_magnitude(FLOATS["float64"])(x.view(np.int64)) == 0x7FF << 52
    assert greatest_magnitude(FLOATS["float16"])(x.astype(np.float16).view(np.int16)) == 0x7C00
