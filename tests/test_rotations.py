"""Tests of the Hadamard transform as users call it."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

import mxnum as mx
from mxnum import reference, rotations
from mxnum.formats import FLOATS
from mxnum.memory.dtypes import numpy_dtype
from tests import samples

TE = rotations.SIGNS["transformer_engine"]
#: The first rows of the Hadamard matrix in TransformerEngine's nvfp4_tensor.py.
TE_ROWS = (
    "++++++++++++++++", "+-+-+-+-+-+-+-+-", "++--++--++--++--", "+--++--++--++--+", "++++----++++----",
)  # fmt: skip


def words(array):
    return np.ascontiguousarray(array).view(f"u{array.itemsize}").tolist()


def normal(*shape, dtype="float32"):
    return samples.generator("rotation", *shape).standard_normal(shape).astype(numpy_dtype(FLOATS[dtype]))


@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("inverse", [False, True])
@pytest.mark.parametrize("size", [4, 16])
def test_transform_equals_the_reference_along_any_axis(axis, inverse, size):
    x = np.moveaxis(normal(6, 32, 5)[::2], 1, axis)
    signs = samples.generator("signs", size).choice([1, -1], size)
    made = mx.hadamard(x, axis, size=size, signs=signs, inverse=inverse)
    want = reference.hadamard(x, axis=axis, size=size, signs=signs.tolist(), inverse=inverse)
    assert words(made) == words(want)


def test_the_matrix_is_that_of_transformer_engine():
    matrix = mx.hadamard(np.eye(16, dtype=np.float32)) * 4
    for row, signs in zip(matrix, TE_ROWS, strict=False):
        assert ["+" if v > 0 else "-" for v in row] == list(signs)
    assert (matrix == matrix.T).all()
    assert (abs(matrix) == 1).all()
    with_signs = mx.hadamard(np.eye(16, dtype=np.float32), signs="transformer_engine") * 4
    # The transform of the rows x is x diag(signs) H.
    assert with_signs.tolist() == (np.diag(TE) @ matrix).tolist()


def test_transforming_twice_gives_the_input_if_nothing_is_rounded():
    x = samples.generator("integers").integers(-1000, 1000, (8, 64)).astype(np.float32)
    # Regression: unsigned integers raised an error that asked for integers.
    assert (mx.hadamard(x, signs=np.ones(16, np.uint8)) == mx.hadamard(x)).all()
    for signs in (None, "transformer_engine"):
        once = mx.hadamard(x, signs=signs)
        assert (mx.hadamard(once, signs=signs, inverse=True) == x).all()
    assert (mx.hadamard(mx.hadamard(x)) == x).all()


def test_transforming_both_operands_changes_no_exact_product():
    rng = samples.generator("products")
    a, b = (rng.integers(-100, 100, (5, 32)).astype(np.float64) for _ in range(2))
    transformed = [mx.hadamard(v, signs="transformer_engine") for v in (a, b)]

    def product(u, v):
        return [[sum(Fraction(p) * Fraction(q) for p, q in zip(r, s, strict=True)) for s in v] for r in u]

    assert product(*transformed) == product(a, b)


def test_an_outlier_is_spread():
    x = np.zeros(16, np.float32)
    x[5] = 12.0
    assert (abs(mx.hadamard(x)) == 3).all()


def test_zeros_infinities_and_overflow():
    inf, largest = np.inf, np.finfo(np.float32).max
    x = np.zeros((6, 4), np.float32)
    x[0] = -0.0
    x[1] = 1, -1, 1, -1
    x[2] = inf, 1, 2, 3
    x[3] = inf, inf, 1, 2
    x[4] = largest
    x[5] = np.nan, inf, 1, 2
    y = mx.hadamard(x, size=4)
    assert words(y[0]) == [0, 0, 0, 0]
    assert y[1].tolist() == [0, 2, 0, 0]
    assert not np.signbit(y[1]).any()
    assert y[2].tolist() == [inf] * 4
    assert y[3, [0, 2]].tolist() == [inf, inf]
    assert words(y[3])[1] == words(y[3])[3] == words(y[5])[0] == 0x7FC00000
    assert y[4].tolist() == [inf, 0, 0, 0]
    small = np.zeros(4, np.float16)
    small[0] = -np.finfo(np.float16).smallest_subnormal
    # Half of the smallest positive number rounds to a zero with the sign of the number.
    assert words(mx.hadamard(small, size=4)) == [0x8000] * 4


@pytest.mark.parametrize("dtype", samples.FLOATS)
def test_layouts_and_results_in_place(dtype):
    x = normal(6, 32, 48, dtype=dtype)
    want = mx.hadamard(x, 1)
    for view in (x.transpose(2, 0, 1), x[::-1, :, ::-1], x[:, :, 5:21], np.asfortranarray(x)):
        axis = next(a for a, n in enumerate(view.shape) if n == 32)
        plain = mx.hadamard(np.ascontiguousarray(view), axis)
        made = mx.hadamard(view, axis)
        assert words(made) == words(plain)
        assert made.dtype == view.dtype
        out = np.empty(view.shape[::-1], x.dtype).T
        assert mx.hadamard(view, axis, out=out) is out
        assert words(out) == words(plain)
    own = x.copy()
    assert mx.hadamard(own, 1, out=own) is own
    assert words(own) == words(want)
    shifted = np.concatenate([x[:1], x])
    mx.hadamard(shifted[1:], 1, out=shifted[:-1])  # memory overlaps, but does not coincide
    assert words(shifted[:-1]) == words(want)
    assert mx.hadamard(x.T, 1).strides == x.T.strides
    swapped = x.astype(x.dtype.newbyteorder(">")) if dtype != "bfloat16" else x
    assert words(mx.hadamard(swapped, 1)) == words(want)


def test_threads_and_empty_arrays():
    x = normal(2048, 128)
    assert words(mx.hadamard(x, threads=2)) == words(mx.hadamard(x, threads=1))
    assert words(mx.hadamard(x, 0, threads=2)) == words(mx.hadamard(x, 0, threads=1))
    assert mx.hadamard(x[:0]).shape == (0, 128)
    assert mx.hadamard(x[:, :0]).shape == (2048, 0)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"size": 8}, "Argument 'size' must be a power of 4 from 4 to 16384, not 8."),
        ({"size": 64}, "Argument 'x' must be of a length along axis 1 that is a multiple of 64, not 48."),
        ({"axis": 2}, "Argument 'axis' must be between -2 and 1, not 2."),
        ({"signs": [1] * 4}, "Argument 'signs' must be of shape (16,), not (4,)."),
        ({"signs": [1] * 15 + [2]}, "Argument 'signs' must be 1 or -1, not 2 at index 15."),
        ({"signs": [float("nan")] * 16}, "Argument 'signs' must be 1 or -1, not nan at index 0."),
        ({"signs": [True] * 16}, "Argument 'signs' must be an array of integers or floats, not 'bool'."),
        ({"signs": "transformer"}, "'transformer_engine'"),
        ({"signs": "transformer_engine", "size": 4}, "must be 16 for these signs, not 4."),
        ({"inverse": 1}, "Argument 'inverse' must be True or False, not 1."),
        ({"out": np.zeros((2, 48))}, "Argument 'out' must be of dtype float32, not dtype('float64')."),
    ],
)
def test_what_is_refused(change, message):
    with pytest.raises((ValueError, TypeError)) as caught:
        mx.hadamard(normal(2, 48), **change)
    assert message in str(caught.value)


def test_scalars_and_integers_are_refused():
    with pytest.raises(ValueError, match="at least one axis"):
        mx.hadamard(np.float32(1))
    with pytest.raises(TypeError, match="'x' must be an array of float64"):
        mx.hadamard(np.arange(16))


def test_tensors_give_tensors():
    torch = pytest.importorskip("torch", reason="the extra torch is not installed")
    tensor = torch.from_numpy(normal(4, 32)).to(torch.bfloat16)
    made = mx.hadamard(tensor, signs="transformer_engine")
    assert made.dtype == torch.bfloat16
    plain = tensor.view(torch.int16).numpy().view(numpy_dtype(FLOATS["bfloat16"]))
    assert made.view(torch.int16).numpy().view(np.uint16).tolist() == words(mx.hadamard(plain, signs=TE))
    assert mx.hadamard(tensor, signs=TE, out=tensor) is tensor
    assert torch.equal(tensor, made)
