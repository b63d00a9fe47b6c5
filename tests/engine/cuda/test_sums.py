"""Tests that products of arrays on a GPU have the same bits as on the CPU."""

from __future__ import annotations

import numpy as np
import pytest

import mxnum as mx
from tests.samples import generator

PAIRS = [
    ("mxfp8_e4m3", "mxfp4_e2m1"),
    ("mxfp8_e5m2", "mxfp8_e5m2"),  # the sums of blocks need more than 64 bits
    ("mxint8", "mxfp6_e3m2"),
    ("mxfp4_e3m0", "mxint4"),
]


def operands(*key: object, special: bool = True) -> tuple[np.ndarray, np.ndarray]:
    """Return two operands of a product; with `special`, they contain NaN and infinities."""
    rng = generator("sums", *key)
    x = (rng.standard_normal((3, 70)) * np.exp2(rng.integers(-20, 20, (3, 70)))).astype(np.float32)
    w = rng.standard_normal((70, 2)).astype(np.float32)
    if special:
        x[0, 3], x[1, 40], w[69, 1] = np.inf, np.nan, -np.inf
    return x, w


def assert_same_bits(got: object, want: object) -> None:
    got, want = np.asarray(got.copy_to_host()), np.asarray(want)
    assert (got.dtype, got.shape) == (want.dtype, want.shape)
    assert got.tobytes() == want.tobytes(), (got, want)


@pytest.mark.parametrize("accumulate", ["block", "sequential"])
@pytest.mark.parametrize(("first", "second"), PAIRS)
def test_matmul(device, first, second, accumulate):
    for nonfinite in ("block", "element") if first == "mxfp8_e5m2" else ("block",):
        x, w = operands(first, second)
        qa, qb = mx.quantize(x, first, nonfinite=nonfinite), mx.quantize(w, second, axis=0, nonfinite=nonfinite)
        da = mx.quantize(device(x), first, nonfinite=nonfinite)
        db = mx.quantize(device(w), second, axis=0, nonfinite=nonfinite)
        for out_dtype in ("float32", "bfloat16", "float16"):
            modes = {"accumulate": accumulate, "out_dtype": out_dtype}
            assert_same_bits(mx.matmul(da, db, **modes), mx.matmul(qa, qb, **modes))
        assert_same_bits(mx.dot(da[2], db.T[0], accumulate=accumulate), mx.dot(qa[2], qb.T[0], accumulate=accumulate))


def test_batches_broadcast(device):
    rng = generator("batches")
    a, b = rng.standard_normal((2, 1, 3, 33)).astype(np.float32), rng.standard_normal((4, 33, 2)).astype(np.float32)
    here = mx.quantize(a, "mxint8"), mx.quantize(b, "mxint8", axis=-2)
    there = mx.quantize(device(a), "mxint8"), mx.quantize(device(b), "mxint8", axis=-2)
    for accumulate in ("block", "sequential"):
        assert_same_bits(mx.matmul(*there, accumulate=accumulate), mx.matmul(*here, accumulate=accumulate))


def test_tiles_and_transposes(device):
    a = generator("tiles").standard_normal((4, 40)).astype(np.float32)
    here, there = (mx.quantize(x, "mxfp8_e4m3", block_shape=(2, 8)) for x in (a, device(a)))
    assert_same_bits(mx.matmul(there, there.T), mx.matmul(here, here.T))


def test_operands_that_are_floats(device):
    x, w = operands("floats")
    q, there = (
        mx.quantize(w, "mxint4", axis=0, offset="float16"),
        mx.quantize(device(w), "mxint4", axis=0, offset="float16"),
    )
    for dtype in (np.float64, np.float32, np.float16):
        with np.errstate(over="ignore"):
            narrow = x.astype(dtype)
        want = mx.matmul(narrow, q, accumulate="sequential")
        assert_same_bits(mx.matmul(device(narrow), there, accumulate="sequential"), want)


def test_empty_sums_and_overflow(device):
    for length in (0, 1, 64):
        x = np.full((2, length), 3e38, np.float32)
        here, there = mx.quantize(x, "mxfp8_e4m3"), mx.quantize(device(x), "mxfp8_e4m3")
        for accumulate in ("block", "sequential"):
            assert_same_bits(
                mx.matmul(there, there.T, accumulate=accumulate), mx.matmul(here, here.T, accumulate=accumulate)
            )


def test_products_that_a_gpu_does_not_compute_raise(device):
    x, w = operands("errors", special=False)
    q, host = mx.quantize(device(x), "mxint8"), mx.quantize(w, "mxint8", axis=0)
    with pytest.raises(ValueError, match="must be on a GPU, like argument 'a', not in host memory"):
        mx.matmul(q, host)
    for accumulate in ("exact", "blas"):
        with pytest.raises(ValueError, match=f"'block' or 'sequential' for arrays on a GPU, not '{accumulate}'"):
            mx.matmul(q, mx.quantize(device(w), "mxint8", axis=0), accumulate=accumulate)
    with pytest.raises(TypeError, match="'x' must be in host memory, not on a GPU"):
        mx.linear_forward(device(x), w.T)
