"""Arrays of any strides in parts: contiguous, everything once, random bits with their elements."""

from __future__ import annotations

import numpy as np
import pytest

from mxnum.engine import parts, walk
from mxnum.engine.request import RandomBits
from mxnum.layout import scales_shape
from mxnum.scalar.random import philox4x32
from tests import samples

VIEWS = {
    "as it is": lambda x: x,
    "Fortran": np.asfortranarray,
    "every other row": lambda x: np.repeat(x, 2, axis=0)[::2],
    "every other column": lambda x: np.repeat(x, 2, axis=-1)[..., ::2],
    "backwards": lambda x: np.ascontiguousarray(x[:, ::-1])[:, ::-1],
    "axes turned": lambda x: np.ascontiguousarray(np.moveaxis(x, 0, -1)).transpose(-1, *range(x.ndim - 1)),
    "wider": lambda x: np.pad(x, ((0, 0),) * (x.ndim - 1) + ((2, 3),))[..., 2:-3],
    "Fortran, every other": lambda x: np.asfortranarray(np.repeat(x, 2, axis=0))[::2],
    "repeated": lambda x: np.broadcast_to(x[:1], x.shape),
}


@pytest.mark.parametrize("limit", [walk.CHUNK, 1000])
@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize(
    ("shape", "blocks"),
    [
        ((40, 96), (1, 32)),
        ((40, 96), (32, 1)),
        ((6, 70, 50), (1, 8, 1)),
        ((6, 70, 5), (1, 8, 1)),
        ((30, 4, 50), (2, 1, 8)),
    ],
)
def test_parts_are_contiguous_and_cover_everything_once(shape, blocks, view, limit, monkeypatch):
    monkeypatch.setattr(parts, "chunks", lambda shape, blocks, _=0: walk.chunks(shape, blocks, limit))
    x = VIEWS[view](np.arange(np.prod(shape), dtype=np.float32).reshape(shape))
    for out in (np.zeros(shape, np.float32), np.zeros(shape, np.float32, order="F"), np.zeros(shape, np.uint8)):
        side = np.zeros(scales_shape(shape, blocks), np.uint8)
        for part in parts.cut(blocks, x, out, (side,), writes_sides=True).each():
            assert all(array.flags.c_contiguous for array in (part.x, part.out, *part.sides))
            assert part.walk.elements == part.x.size == part.out.size
            part.out[...] = part.x
            part.sides[0][...] += 1
        assert np.array_equal(out, x.astype(out.dtype))
        assert (side == 1).all()


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("shape", [(40, 96), (6, 70, 50), (3, 5, 7, 11), (300,)])
def test_random_bits_go_with_their_elements(shape, view, monkeypatch):
    if len(shape) == 1 and view == "backwards":
        pytest.skip("for arrays of two axes")
    monkeypatch.setattr(parts, "chunks", lambda shape, blocks, _=0: walk.chunks(shape, blocks, 64))
    x = VIEWS[view](np.zeros(shape, np.float32))
    seeded = RandomBits(30, seed=77, stream=3)
    words = _words(seeded, shape)
    given = samples.generator("given", shape).integers(0, 1 << 32, shape, dtype=np.uint32)
    for random, want in ((seeded, words), (RandomBits(9, words=given), given)):
        out = np.zeros(shape, np.uint32)
        blocks = (1,) * (len(shape) - 1) + (4,)
        for part in parts.cut(blocks, x, out, random=random, most=64).each():
            if part.random.words is None:
                part.out[...] = words.reshape(-1)[part.first : part.first + part.x.size].reshape(part.x.shape)
            else:
                assert part.random.words.flags.c_contiguous
                part.out[...] = part.random.words
        assert np.array_equal(out, want)


def _words(random, shape):
    """The low 30 bits of the words of Philox, by the definition."""
    low, high, stream_low, stream_high = random.key
    made = []
    for counter in range(-(-int(np.prod(shape)) // 4)):
        made += philox4x32(counter, 0, stream_low, stream_high, low, high)
    words = np.array([int(word) & ((1 << 30) - 1) for word in made], np.uint32)
    return words[: int(np.prod(shape))].reshape(shape)


def test_new_arrays_lie_as_those_beside_them():
    x = np.zeros((4, 5, 6), np.float32)
    for order in ((0, 1, 2), (2, 1, 0), (1, 0, 2), (2, 0, 1)):
        view = np.ascontiguousarray(x.transpose(order)).transpose(np.argsort(order))
        new = parts.new_beside(view, (4, 5, 3), np.uint8)
        assert new.shape == (4, 5, 3)
        assert new.transpose(order).flags.c_contiguous
        assert new.strides == np.empty_like(view[:, :, :3], np.uint8).strides
    assert parts.new_beside(np.broadcast_to(x[0], x.shape), x.shape, np.uint8).flags.c_contiguous
    assert parts.new_beside(x[::-1, ::2], (4, 3, 6), np.uint8).flags.c_contiguous


def test_arrays_in_one_order_are_one_part():
    x = np.zeros((700, 600), np.float32, order="F")
    side = np.zeros((700, 19), np.uint8, order="F")
    out = np.empty_like(x)
    whole = parts.cut((1, 32), x, out, (side,))
    assert whole.is_whole
    assert next(whole.each()).x.base is not None
    assert not parts.cut((1, 32), x, np.zeros(x.shape, np.uint8), (side,)).is_whole
    assert not parts.cut((1, 32), x, out, (side,), RandomBits(30, seed=1)).is_whole


def test_results_that_go_over_the_array_are_written_beside_it_first():
    x = np.arange(700 * 640, dtype=np.float32).reshape(700, 640)
    want = x + 1
    for part in parts.cut((32, 1), x, x).each():
        assert not np.may_share_memory(part.x, part.out)
        part.out[...] = part.x + 1
    assert np.array_equal(x, want)


def test_threads_share_the_chunks():
    x = np.zeros((4 * walk.ELEMENTS_PER_THREAD // 64, 128), np.float32)[:, ::2]
    cut = parts.cut((1, 32), x)
    assert [len(cut.shares(threads)) for threads in (1, 2, 3)] == [1, 2, 3]
    assert [chunk for share in cut.shares(3) for chunk in share] == list(cut.chunks)


def test_no_parts_for_blocks_that_no_loop_takes():
    assert parts.cut((2, 2, 2), np.zeros((4, 4, 4), np.float32)) is None
    assert parts.cut((1 << 21,), np.zeros(1 << 22, np.uint8)[::2]) is None
