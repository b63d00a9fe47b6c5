"""Copies by tiles against numpy's."""

from __future__ import annotations

import itertools

import numba
import numpy as np
import pytest

from mxnum.engine import turning
from tests import samples

TYPES = (np.uint8, np.uint16, np.float32, np.float64)


def numbers(shape, dtype):
    return samples.generator("turning", shape, dtype.__name__).integers(0, 250, shape).astype(dtype)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize(
    "shape", [(64, 64), (131, 75), (75, 131), (8, 600), (600, 9), (7, 700), (20, 33, 17), (3, 40, 5, 30)]
)
def test_every_order_of_axes(shape, dtype):
    x = numbers(shape, dtype)
    for order in itertools.permutations(range(len(shape))):
        out = np.zeros([shape[axis] for axis in order], dtype)
        turning.copy(x.transpose(order), out)
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
            turning.copy(view, target)
            assert np.array_equal(target, view)
            assert np.count_nonzero(out == 255) == out.size - target.size


@pytest.mark.parametrize("dtype", TYPES)
def test_rows_backwards(dtype, monkeypatch):
    x = numbers((3, 40, 140), dtype)
    wanted = x[..., ::-1].copy()
    reverse, taken = turning._reverse(), []
    monkeypatch.setattr(turning, "_reverse", lambda: lambda *arguments: taken.append(1) or reverse(*arguments))
    for source, target in ((x[..., ::-1], np.zeros_like(x)), (x, np.zeros_like(x)[..., ::-1])):
        turning.copy(source, target)
        assert np.array_equal(target, source)
    assert np.array_equal(x[..., ::-1], wanted)
    part = np.zeros((3, 40, 100), dtype)
    turning.copy(x[..., 99::-1], part)  # parts of rows: numpy's copy
    assert np.array_equal(part, x[..., 99::-1])
    assert len(taken) == (0 if numba.config.DISABLE_JIT else 1)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("length", [65, 128, 200])
def test_every_other_element(dtype, length, monkeypatch):
    x = numbers((3, 200, 2 * length - 1), dtype)  # nothing lies behind the last element
    wanted = x[..., ::2].copy()
    make, taken = turning._every_other, []
    monkeypatch.setattr(turning, "_every_other", lambda size: taken.append(size) or make(size))
    for source in (x[..., ::2], x[1, ::3, ::2], x[2, :, 4:90:2], x[::-1, :, ::2]):
        target = np.zeros(source.shape, dtype)
        turning.copy(source, target)
        assert np.array_equal(target, source)
    assert np.array_equal(x[..., ::2], wanted)
    is_taken = dtype != np.float64 and not numba.config.DISABLE_JIT  # and the last is none of rows equally far apart
    assert len(taken) == (3 if is_taken else 0)
    assert turning._is_every_other(x[..., ::2], np.zeros_like(wanted)) == (dtype != np.float64)


def test_what_numpy_copies():
    """Few elements, memory out of line, types of other sizes, and everything where nothing is compiled."""
    raw = np.zeros(1 + 8 * 80 * 80, np.uint8)
    unaligned = raw[1:].view(np.float64).reshape(80, 80)
    unaligned[...] = numbers((80, 80), np.float64)
    for x in (np.arange(6.0).reshape(2, 3), unaligned, numbers((80, 80), np.float64).astype(np.complex128)):
        out = np.zeros(x.T.shape, x.dtype)
        turning.copy(x.T, out)
        assert np.array_equal(out, x.T)


def test_tiles_are_taken_where_axes_cross(monkeypatch):
    if numba.config.DISABLE_JIT:
        pytest.skip("nothing is compiled")
    taken = []
    monkeypatch.setattr(turning, "_turn", lambda size: lambda source, target: taken.append((size, source.shape)))
    x = numbers((64, 4, 96), np.float32)
    turning.copy(x.transpose(2, 1, 0), np.zeros((96, 4, 64), np.float32))
    turning.copy(x.transpose(1, 0, 2), np.zeros((4, 64, 96), np.float32))
    assert taken == [(4, (4, 96, 64))]


def test_contiguous_copies_only_what_is_not():
    x = numbers((80, 80), np.float32)
    assert turning.contiguous(x) is x
    turned = turning.contiguous(x.T)
    assert turned.flags.c_contiguous
    assert np.array_equal(turned, x.T)


def test_steps_between_rows():
    x = np.arange(6 * 10 * 20, dtype=np.float32).reshape(6, 10, 20)
    steps = {
        20: x, 40: x[:, ::2], 200: x[:, 0], 0: np.broadcast_to(x[:1, :1], x.shape), 60: x[0, ::3, :7],
    }  # fmt: skip
    for step, view in steps.items():
        assert turning.row_step(view) == step
    for view in (x[::2], x[:, :9], x[::-1], x[:, ::-1], x.transpose(1, 0, 2)):
        assert turning.row_step(view) is None
    assert turning.row_step(x[0, 0]) == 0
    assert turning.row_step(x[:, :1]) == 200


def test_rows_in_line_with_what_lies_between():
    x = np.arange(60, dtype=np.float32).reshape(6, 10)
    assert np.array_equal(turning.in_line(x[1:4, 2:9]), np.arange(12, 39))
    assert np.array_equal(turning.in_line(x[1:4]), np.arange(10, 40))
