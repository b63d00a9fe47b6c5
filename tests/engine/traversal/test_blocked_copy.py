"""Tests of the order of axes in memory, and of copies made tile by tile, compared with numpy's."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from mxnum.engine.traversal import parts
from tests import samples

TYPES = (np.uint8, np.float32, np.float64)


def numbers(shape, dtype):
    return samples.generator("copies", shape, dtype.__name__).integers(0, 250, shape).astype(dtype)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize(
    "shape", [(), (5,), (64, 64), (131, 75), (8, 600), (600, 9), (7, 700), (20, 33, 17), (3, 40, 5, 30)]
)
def test_every_order_of_axes(shape, dtype):
    x = numbers(shape, dtype)
    for order in itertools.permutations(range(len(shape))):
        out = np.zeros([shape[axis] for axis in order], dtype)
        parts.copy(x.transpose(order), out)
        assert np.array_equal(out, x.transpose(order))


@pytest.mark.parametrize("dtype", TYPES)
def test_every_stride(dtype):
    x = numbers((100, 140), dtype)
    for view in (x.T[::2], x.T[:, ::-1], x[::-1].T[3:, 1:], np.broadcast_to(x[0], (90, 140)).T):
        out = np.zeros((view.shape[0] + 2, 2 * view.shape[1] + 1), dtype)
        for target in (
            out[1:-1, : view.shape[1]],
            out[1:-1, : 2 * view.shape[1] : 2],
            out[-2:0:-1, 1 : view.shape[1] + 1],
        ):
            out[...] = 255
            parts.copy(view, target)
            assert np.array_equal(target, view)
            assert np.count_nonzero(out == 255) == out.size - target.size


def test_contiguous_copies_only_what_is_not():
    x = numbers((80, 80), np.float32)
    assert parts.contiguous(x) is x
    turned = parts.contiguous(x.T)
    assert turned.flags.c_contiguous
    assert np.array_equal(turned, x.T)


def test_the_order_of_axes_in_memory():
    x = np.zeros((4, 5, 6), np.float32)
    for order in itertools.permutations(range(3)):
        view = np.ascontiguousarray(x.transpose(order)).transpose(np.argsort(order))
        assert parts.memory_order(view) == order
        assert parts.memory_order(view[::-1, ::2]) == order
    assert parts.memory_order(np.broadcast_to(x[0], x.shape)) == (0, 1, 2)
    # An axis of length 1 may have any position in the order.
    assert parts.memory_order(x[:, :1].transpose(2, 1, 0)) == (1, 2, 0)
