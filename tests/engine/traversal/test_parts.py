"""Tests that arrays of any strides are cut into contiguous parts, or into one row per block."""

from __future__ import annotations

import numpy as np
import pytest

from mxnum.definition.random import philox4x32
from mxnum.engine.loops.random_bits import SeedWords
from mxnum.engine.traversal import block_walk, parts
from mxnum.engine.traversal.parts import CHUNK, Arrays, Plain, chunks
from mxnum.layout import element_strides, scales_shape
from tests import samples

VIEWS = {
    "as it is": lambda x: x,
    "Fortran": np.asfortranarray,
    "every other row": lambda x: np.repeat(x, 2, axis=0)[::2],
    "every other column": lambda x: np.repeat(x, 2, axis=-1)[..., ::2],
    "backwards": lambda x: np.ascontiguousarray(x[:, ::-1])[:, ::-1],
    "axes turned": lambda x: np.ascontiguousarray(np.moveaxis(x, 0, -1)).transpose(-1, *range(x.ndim - 1)),
    "wider": lambda x: np.pad(x, ((0, 0),) * (x.ndim - 1) + ((2, 3),))[..., 2:-3],
    "repeated": lambda x: np.broadcast_to(x[:1], x.shape),
}
LAYOUTS = [
    ((40, 96), (1, 32)), ((40, 96), (32, 1)), ((6, 70, 50), (1, 8, 1)), ((6, 70, 5), (1, 8, 1)),
    ((30, 4, 50), (2, 1, 8)), ((7, 9, 11), (2, 4, 3)), ((5000, 5), (32, 1)), ((2, 3, 4, 5), (9, 2, 3, 1)),
]  # fmt: skip


@pytest.mark.parametrize("limit", [CHUNK, 1000])
@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize(("shape", "blocks"), LAYOUTS)
def test_parts_are_contiguous_and_cover_everything_once(shape, blocks, view, limit, monkeypatch):
    monkeypatch.setattr(parts, "chunks", lambda *layout: chunks.__wrapped__(*layout[:3], limit))
    x = VIEWS[view](np.arange(np.prod(shape), dtype=np.float32).reshape(shape))
    for out in (np.zeros(shape, np.float32), np.zeros(shape, np.float32, order="F"), np.zeros(shape, np.uint16)):
        side = np.zeros((*scales_shape(shape, blocks), 2), np.uint8)[..., 0]  # not contiguous

        def work(part):
            assert all(array.flags.c_contiguous for array in (part.x, part.out, *part.sides))
            assert part.walk.elements == part.x.size == part.out.size
            part.out[...] = part.x
            part.sides[0][...] += 1

        Arrays(shape, blocks, Plain(x), Plain(out), (side,), writes_sides=True).run(work, 1)
        assert np.array_equal(out, x.astype(out.dtype))
        assert (side == 1).all()


@pytest.mark.parametrize(("shape", "blocks"), LAYOUTS[-3:])
def test_each_block_is_a_row(shape, blocks):
    """Check that each row is a block, and that a short block is padded with its own elements."""
    x = samples.generator("rows", shape).standard_normal(shape).astype(np.float32)
    rows = parts.as_rows(x, blocks)
    assert rows.shape[0] == np.prod(scales_shape(shape, blocks))
    for row, place in zip(rows, np.ndindex(scales_shape(shape, blocks)), strict=True):
        block = x[tuple(slice(i * k, (i + 1) * k) for i, k in zip(place, blocks, strict=True))]
        assert set(row.tolist()) == set(block.reshape(-1).tolist())
    assert np.array_equal(parts.from_rows(rows, shape, blocks), x)


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 2, 0)])
def test_seeded_words_go_with_their_elements(order):
    shape = 6, 7, 50
    key = 77, 0, 3, 0
    made = [philox4x32(counter, 0, 3, 0, 77, 0) for counter in range(-(-6 * 7 * 50 // 4))]
    words = (np.array(made, np.int64).reshape(-1)[: 6 * 7 * 50] & ((1 << 30) - 1)).reshape(shape).transpose(order)
    turned = tuple(shape[axis] for axis in order)
    out = np.zeros(turned, np.uint32)

    def work(part):
        if part.words is None:
            part.out[...] = words.reshape(-1)[part.first : part.first + part.x.size].reshape(part.out.shape)
        else:
            part.out[...] = part.words

    in_order = order == (0, 1, 2)
    drawn = SeedWords(key, 30, element_strides(shape), order)
    Arrays(
        turned, (1, 1, 4), Plain(np.zeros(turned)), Plain(out), (), drawn, first_will_do=in_order
    ).run(work, 1)  # fmt: skip
    assert np.array_equal(out, words)
    assert drawn.read((slice(1, 3), slice(2, 5), slice(0, 4))).tolist() == words[1:3, 2:5, :4].tolist()
    assert SeedWords(key, 30, (), ()).read((...,)) == words.reshape(-1)[0] if in_order else True


def test_results_that_go_over_the_array_are_made_of_a_copy():
    x = np.arange(700 * 640, dtype=np.float32).reshape(700, 640)
    want = x + 1

    def work(part):
        assert not np.may_share_memory(part.x, part.out)
        part.out[...] = part.x + 1

    Arrays(x.shape, (32, 1), Plain(x), Plain(x), (), in_place=True).run(work, 1)
    assert np.array_equal(x, want)


def test_threads_share_the_chunks():
    x = np.zeros((4 * block_walk.ELEMENTS_PER_THREAD // 64, 128), np.float32)[:, ::2]
    out, seen = np.zeros(x.shape, np.uint8), []

    def work(part):
        seen.append(part.x.size)
        part.out[...] += 1

    for threads in (1, 2, 3):
        out[...], seen[:] = 0, []
        Arrays(x.shape, (1, 32), Plain(x), Plain(out), ()).run(work, threads)
        assert sum(seen) == x.size
        assert (out <= 1).all()


@pytest.mark.parametrize(
    ("shape", "blocks"),
    [
        ((1000, 700), (16, 1)), ((1, 500_000), (1, 32)), ((3, 9), (1, 32)), ((3, 500_000), (1, 32)), ((), ()),
        ((5, 3, 200_000), (1, 2, 7)), ((2, 300_001), (4, 32)), ((1, 1), (1, 1)), ((CHUNK + 1,), (1,)),
        ((CHUNK + 1, 2), (CHUNK + 1, 1)), ((CHUNK, 2), (CHUNK, 2)),
    ],
)  # fmt: skip
def test_chunks_cover_everything_once(shape, blocks):
    covered, scales = np.zeros(shape, np.uint8), np.zeros(scales_shape(shape, blocks), np.uint8)
    index = np.arange(covered.size).reshape(shape)
    for where, blocks_where, first in chunks(shape, blocks, blocks):
        covered[where] += 1
        scales[blocks_where] += 1
        assert covered[where].size <= max(CHUNK, np.prod(blocks))
        assert covered[where].shape == () or scales[blocks_where].shape == scales_shape(covered[where].shape, blocks)
        assert covered[where].flags.c_contiguous or first is None
        assert first is None or index[where].flat[0] == first
    assert (covered == 1).all()
    assert (scales == 1).all()


def test_chunks_are_about_as_large_as_asked_for_and_cut_where_it_is_allowed():
    assert [chunk.where[0] for chunk in chunks((10, 5), (3, 1), (3, 1), 40)] == [slice(0, 6), slice(6, 10)]
    assert [chunk.where[1].stop for chunk in chunks((1, 100), (1, 8), (1, 8), 40)] == [40, 80, 100]
    assert [chunk.where[1].stop for chunk in chunks((1, 100), (1, 24), (1, 8), 40)] == [24, 48, 72, 96, 100]
