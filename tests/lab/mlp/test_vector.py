from __future__ import annotations

import inspect

import numpy as np
import pytest

from mxnum.lab.mlp import kernels, vector

NAMES = [name for name, f in vars(vector).items() if inspect.isfunction(f) and not name.startswith("_")]
F = np.float32


def floats(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def test_every_kernel_has_its_like():
    public = {n: f for n, f in vars(kernels).items() if hasattr(f, "py_func") and not n.startswith("_")}
    assert set(NAMES) == set(public)
    for name, kernel in public.items():
        assert list(inspect.signature(kernel.py_func).parameters) == list(
            inspect.signature(getattr(vector, name)).parameters
        )


RUNS, SAMPLES, WIDTH = 2, 24, 40
#: Arguments of each function: arrays, copies of which are written, then numbers. `bf16` is added.
TALL, ROW, FLAT = (RUNS, SAMPLES, WIDTH), (RUNS, WIDTH), (960,)
CASES = {
    "add_rounded_bias": ((TALL, ROW, TALL), ()),
    "layer_norm": ((TALL, ROW, ROW, TALL, (RUNS, SAMPLES), TALL), (F(1e-5),)),
    "layer_norm_backward": ((TALL, TALL, (RUNS, SAMPLES), ROW, ROW, ROW, TALL), ()),
    "relu": ((FLAT, FLAT), ()),
    "relu_backward": ((FLAT, FLAT, FLAT), ()),
    "gelu_tanh": ((FLAT, FLAT, FLAT), ()),
    "gelu_exact": ((FLAT, FLAT, FLAT), ()),
    "scaled_backward": ((FLAT, FLAT, FLAT), ()),
    "swiglu": (((48, 80), (48, 40), (48, 40)), ()),
    "swiglu_backward": (((48, 80), (48, 40), (48, 40), (48, 80)), ()),
    "round_and_sum": ((TALL, TALL, ROW), ()),
}


@pytest.mark.parametrize("bf16", [0, 1, 2])
@pytest.mark.parametrize("name", CASES)
def test_the_same_as_the_compiled_loops(name, bf16):
    shapes, numbers = CASES[name]
    arrays = [3 * floats(*shape, seed=i) for i, shape in enumerate(shapes)]
    theirs, ours = [a.copy() for a in arrays], [a.copy() for a in arrays]
    getattr(kernels, name)(*theirs, *numbers, bf16)
    getattr(vector, name)(*ours, *numbers, bf16)
    changed = [not np.array_equal(a, b) for a, b in zip(arrays, theirs, strict=True)]
    assert any(changed)
    for a, b, c in zip(theirs, ours, changed, strict=True):
        if not c:
            assert np.array_equal(a, b)
        # A sum in another order may fall on the other side of a tie: a last place of bfloat16, rarely.
        close = np.isclose(a, b, rtol=2e-6, atol=2e-5)
        assert close.mean() >= (0.99 if bf16 and c else 1)
        assert np.allclose(a, b, rtol=0.01, atol=0.01 if bf16 else 2e-5)


def test_rounding_is_bit_for_bit_the_same():
    bits = np.random.default_rng(1).integers(-(2**31), 2**31, 100_000).astype(np.int32)
    for code in (0, 1, 2):
        theirs, ours, in_place = np.empty_like(bits), np.empty_like(bits), bits.copy()
        kernels.round_bf16(bits, theirs, code)
        vector.round_bf16(bits, ours, code)
        vector.round_in_place(in_place, code)
        assert np.array_equal(ours, theirs)
        assert np.array_equal(in_place, theirs)


def test_largest_of_blocks_and_what_is_taken():
    x, other = floats(3, 4, 5), floats(3, 4, 5, seed=1)
    x[0, 1, 2], x[1, 0, 0], x[2, 3, 4] = np.nan, -np.inf, -0.0
    where = np.random.default_rng(2).random((3, 5)) < 0.5
    for module in (kernels, vector):
        largest, taken = np.empty((3, 5), np.int32), x.copy()
        module.largest_of_blocks(x.view(np.int32), largest)
        module.take_where(taken, other, where)
        assert np.array_equal(largest.view(np.float32), np.abs(x).max(axis=1), equal_nan=True)
        assert np.array_equal(taken, np.where(where[:, None], other, x), equal_nan=True)


def test_loss_and_optimizers():
    prediction, target = floats(*TALL), floats(*TALL, seed=1)
    results = []
    for module in (kernels, vector):
        loss, d = np.empty(RUNS), np.empty(TALL, np.float32)
        module.residual_gradient(prediction, target, loss, d)
        p, g, first, second = (floats(50, seed=i) for i in range(4))
        second = np.abs(second)
        module.adam(p, g, first, second, F(0.01), F(0.9), F(0.99), F(0.1), F(0.2), F(1e-8))
        q, velocity = floats(50, seed=7), floats(50, seed=8)
        module.sgd(q, g, velocity, F(0.1), F(0.9))
        results.append((loss, d, p, first, second, q, velocity))
    for a, b in zip(*results, strict=True):
        assert np.allclose(a, b, rtol=1e-5, atol=1e-6)
