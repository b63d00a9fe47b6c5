"""Tests of loops over bands; a band is the group of rows that one row of blocks spans."""

from __future__ import annotations

import numpy as np
import pytest

import mxnum as mx
from mxnum.definition.random import philox4x32
from mxnum.engine.loops.panels import rows_of
from mxnum.engine.quantizing import host
from mxnum.engine.request import RandomBits
from mxnum.engine.traversal.block_walk import walk_of
from mxnum.modes import Rounding
from tests import samples
from tests.engine import naive
from tests.engine.quantizing.test_host import request


def test_bands_of_all_planes():
    shape = 70, 8, 32, 1, 8
    assert [rows_of(band, shape) for band in range(6)] == [
        (0, 32), (32, 64), (64, 70), (70, 102), (102, 134), (134, 140),
    ]  # fmt: skip


@pytest.mark.parametrize("width", [8, 9, 20, 33, 64, 130])
@pytest.mark.parametrize("blocks", [(32, 1), (30, 1), (8, 4), (32, 8)])
def test_short_rows_have_the_results_of_long_ones(width, blocks):
    """Check that a short row has the same codes on its own as within a longer row."""
    rng = samples.generator("short rows", width, blocks)
    x = (rng.standard_normal((3, 90, width)) * np.exp2(rng.integers(-20, 20, (3, 90, width)))).astype(np.float32)
    x[0, 3, 5], x[2, 89, 0], x[1, 40:60] = np.nan, 1e-42, 0
    padded = -(-width // blocks[1]) * blocks[1]
    wide = np.zeros((3, 90, 20 * padded), np.float32)
    for copy in range(20):
        wide[..., copy * padded : copy * padded + width] = x
    words = rng.integers(0, 1 << 32, x.shape, dtype=np.uint32)
    words_wide = np.zeros(wide.shape, np.uint32)
    words_wide[..., 7 * padded : 7 * padded + width] = words
    for more, same in (
        ({}, {}),
        ({"rounding": "sr", "random_bits": words}, {"rounding": "sr", "random_bits": words_wide}),
    ):
        options = {"format": "mxfp8_e4m3", "block_shape": blocks}
        q, r = mx.quantize(x, **options, **more), mx.quantize(wide, **options, **same)
        here = slice(7 * padded, 7 * padded + width)
        samples.assert_same("codes", None, q.codes, r.codes[..., here])
        samples.assert_same("values", None, q.dequantize().view(np.uint32), r.dequantize()[..., here].view(np.uint32))


@pytest.mark.parametrize("width", [8, 20])
def test_seeded_bits_follow_the_order_of_elements_in_short_rows(width):
    x = samples.generator("seeded short rows").standard_normal((4, 64, width), np.float32)
    options = {"format": "mxfp4_e2m1", "axis": 1, "rounding": "sr"}
    words = [philox4x32(counter, 0, 0, 0, 3, 0) for counter in range(x.size // 4)]
    bits = np.array(words, np.uint32).reshape(x.shape)
    got, want = mx.quantize(x, seed=3, **options), mx.quantize(x, random_bits=bits, **options)
    samples.assert_same("codes", None, got.codes, want.codes)


@pytest.mark.parametrize("random", [None, RandomBits(30, seed=3)], ids=["rne", "sr"])
@pytest.mark.parametrize("blocks", [(32, 1), (32, 8)])
def test_panels_and_what_is_left_of_them(blocks, random):
    """Check a last block with missing columns, next to a panel of large numbers.

    A panel is a group of columns that a loop processes together. The last block must not read
    numbers of another panel in place of its missing columns.
    """
    x = samples.generator("panels", blocks).standard_normal((64, 1030)).astype(np.float32)
    assert columns_of_a_panel(x.shape, blocks) < 1000
    x[:, :1000] *= 1 << 20
    x[5, 700], x[40, 600] = np.nan, np.inf
    asked = request(x, "e4m3", blocks, rounding=Rounding.RNE if random is None else Rounding.SR, random=random)
    codes, scales, _ = host.quantize(asked)
    want_codes, want_scales, _ = naive.quantize(asked)
    samples.assert_same("scales", None, scales, want_scales)
    samples.assert_same("codes", None, codes, want_codes)


def columns_of_a_panel(shape, blocks):
    return walk_of(shape, blocks).panel
