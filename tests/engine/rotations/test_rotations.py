"""Tests that the Hadamard transform equals the reference in all blocks not marked as inexact."""

from __future__ import annotations

from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest

from mxnum import reference, rotations
from mxnum.engine.machine import workers
from mxnum.engine.rotations import by_floats, by_integers, host
from mxnum.formats import FLOATS
from mxnum.memory.dtypes import numpy_dtype, signed_bits, stored_bits
from tests import samples

SIZE = 16


def words(array):
    return np.ascontiguousarray(array).view(f"u{array.itemsize}")


def blocks(dtype, *key):
    """Return blocks of many kinds: ordinary and tiny numbers, ties, NaN, random bits and more."""
    source, rng = FLOATS[dtype], samples.generator("rotations", dtype, *key)
    plain = rng.standard_normal((4, SIZE)).astype(numpy_dtype(source))
    spread = np.ldexp(rng.standard_normal((6, SIZE)), rng.integers(-60, 60, (6, SIZE)))
    with np.errstate(over="ignore"):
        spread = spread.astype(plain.dtype)
    special = rng.choice(samples.special_patterns(source), (8, SIZE)).view(plain.dtype)
    largest = np.full((2, SIZE), np.array(source.max_code, f"u{plain.itemsize}").view(plain.dtype))
    largest[1, ::2] = -largest[1, ::2]
    tiny = rng.integers(0, 5, (3, SIZE)).astype(f"u{plain.itemsize}").view(plain.dtype)
    any_bits = samples.random_patterns(source, 8 * SIZE, *key).reshape(8, SIZE).view(plain.dtype)
    beside = np.zeros((3, SIZE), plain.dtype)  # the sum of a row is just beyond a tie
    kind = ml_dtypes.finfo(plain.dtype)
    beside[:2, :3] = 1, kind.eps / 2, kind.smallest_subnormal
    beside[1] = -beside[1]
    # In float64, each number of this row is a multiple of the last place of 1, but not of 8.
    beside[2, :8], beside[2, 8:10] = 1, (4 * kind.eps, max(2.0**-52, float(kind.smallest_subnormal)))
    one = plain.copy()
    one[0, 3], one[1, 5], one[2, 7], one[2, 8] = np.inf, np.nan, -np.inf, np.inf
    one[3] = -0.0
    return np.concatenate([plain, spread, special, largest, tiny, beside, any_bits, one])


def run(loop, x, scale, *more, marks):
    """Run a loop of the transform over contiguous blocks, with all signs +1."""
    out = np.zeros_like(x)
    ones, count = np.ones(SIZE), x.size // SIZE
    flat = signed_bits(x.ravel()), stored_bits(out.reshape(-1))
    return loop(flat, 1, (ones, ones, scale), (0, count), *more, marks), out


@pytest.mark.parametrize("dtype", samples.FLOATS)
def test_integers_are_the_reference(dtype):
    x = blocks(dtype, "integers")
    _, out = run(by_integers.transform(FLOATS[dtype]), x, -2, marks=np.ones(len(x), np.bool_))
    assert words(out).tolist() == words(reference.hadamard(x)).tolist()


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.skipif(not workers.may_use_floats(), reason="this process may not use compiled float arithmetic")
def test_floats_are_the_reference_or_leave_a_mark(dtype):
    x = blocks(dtype, "floats")
    marks = np.zeros(len(x), np.bool_)
    left, out = run(by_floats.transform(FLOATS[dtype]), x, 0.25, 64, marks=marks)
    assert left == marks.sum()
    assert 0 < left < len(x)
    assert not marks[:4].any()
    assert marks[-3]  # the third block from the end has one NaN
    assert words(out)[~marks].tolist() == words(reference.hadamard(x))[~marks].tolist()
    assert not words(out)[marks].any()


@pytest.mark.skipif(not workers.may_use_floats(), reason="this process may not use compiled float arithmetic")
def test_the_mark_comes_before_the_first_inexact_sum():
    """Check that a block is marked if any sum of its numbers is inexact, even if errors cancel."""
    x = np.zeros((120, SIZE), np.float32)
    x[:, 0], x[:, 1] = 1.0, -1.0
    x[:, 2] = np.ldexp(np.float32(1 + 2.0**-23), -np.arange(120))
    marks = np.zeros(len(x), np.bool_)
    _, out = run(by_floats.transform(FLOATS["float32"]), x, 0.25, 64, marks=marks)
    assert not marks[:24].any()
    assert marks[30:].all()
    assert words(out)[~marks].tolist() == words(reference.hadamard(x))[~marks].tolist()
    sums = [Fraction(1) + Fraction(float(v)) for v in x[:, 2]]
    assert all(Fraction(float(s)) == s for s, marked in zip(sums, marks, strict=True) if not marked)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("inverse", [False, True])
def test_large_blocks(dtype, inverse):
    rng = samples.generator("large", dtype)
    signs = rng.choice([1.0, -1.0], 64)
    x = np.ldexp(rng.standard_normal((3, 64)), rng.integers(-200, 200, (3, 1))).astype(dtype)
    made = host.hadamard(x, FLOATS[dtype], 1, signs, inverse)
    want = reference.hadamard(x, size=64, signs=signs.tolist(), inverse=inverse)
    assert words(made).tolist() == words(want).tolist()


def test_the_largest_blocks_have_room_for_their_digits():
    size = max(rotations._SIZES)
    x = np.full(size, np.nextafter(2.0, 0.0))
    x[1] = 2.0**-48
    made = host.hadamard(x, FLOATS["float64"], 0, np.ones(size), False)
    total = Fraction(float(x[0])) * (size - 1) + Fraction(float(x[1]))
    assert made[0] == float(total / 128)  # `float` rounds a fraction to nearest even
    assert made[1] == float((Fraction(float(x[0])) - Fraction(float(x[1]))) / 128)
