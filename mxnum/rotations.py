"""Compute Hadamard transforms, which spread an outlier over its neighbours before quantization."""

from __future__ import annotations

from typing import Any

import numpy as np

from mxnum import errors
from mxnum.array.arguments import checked_out, checked_threads
from mxnum.memory.dtypes import Array, as_array, float_array
from mxnum.memory.tensors import answer, host_view

#: Fixed signs of Hadamard transforms in other software, by name. TransformerEngine transforms the
#: operands of the weight gradient with its signs (`get_wgrad_sign_vector` in
#: transformer_engine/pytorch/tensor/nvfp4_tensor.py).
SIGNS = {"transformer_engine": (1, 1, 1, -1, 1, -1, -1, -1, -1, -1, -1, 1, -1, 1, -1, -1)}
_SIZES = tuple(4**n for n in range(1, 8))


def hadamard(
    x: Any,
    axis: int = -1,
    *,
    size: int = 16,
    signs: Any = None,
    inverse: bool = False,
    threads: int | None = None,
    out: Array | None = None,
) -> Array:
    """Return the Hadamard transform of each group of `size` consecutive numbers along an axis.

    The transform is divided by sqrt(size), so its matrix is orthogonal.

    Each result is the exact sum y[i] = (signs[0] x[0] ± signs[1] x[1] ± ...) / sqrt(size), rounded
    once to the type of x, to nearest even. Term j is subtracted if the bitwise AND of i and j has
    an odd number of ones. If both operands of a product are transformed along the summed axis, the
    product changes only by rounding. The transform spreads an outlier over `size` numbers.

    Parameters
    ----------
    x
        An array of float64, float32, bfloat16 or float16 in host memory, or a tensor. The length of
        the axis must be a multiple of `size`.
    size
        The length of a group: a power of 4 from 4 to 16384, so that sqrt(size) is a power of 2.
    signs
        An array of `size` signs, each 1 or -1 (default: all 1). The name ``"transformer_engine"``
        selects the fixed signs of TransformerEngine's random Hadamard transform, for `size` 16.
    inverse
        True for the inverse transform, whose matrix is the transpose. The inverse transform
        multiplies by the signs after it sums, not before.
    threads
        The number of threads that may work on a large array (default: as many as numba uses).
    out
        The array to write to, with the shape and type of x. `out` may be x itself.

    A sum that is exactly zero becomes +0. A nonzero sum that rounds to zero keeps its sign. The
    result is NaN if a term is NaN or if infinite terms have both signs. Otherwise the result is
    infinite if a term is infinite. A sum too large for the type becomes infinite.

    >>> import numpy as np, mxnum as mx
    >>> mx.hadamard(np.array([8.0, 0.0, 0.0, 0.0], np.float32), size=4)
    array([4., 4., 4., 4.], dtype=float32)
    >>> x = np.arange(32, dtype=np.float32)
    >>> y = mx.hadamard(x, signs="transformer_engine")
    >>> np.array_equal(mx.hadamard(y, signs="transformer_engine", inverse=True), x)
    True
    """
    array, source = float_array("x", x)
    errors.require(array.ndim > 0, "x", "an array of at least one axis", array.shape)
    along = errors.integer("axis", axis, -array.ndim, array.ndim - 1) % array.ndim
    length = errors.integer("size", size, -(1 << 63), (1 << 63) - 1)
    errors.require(length in _SIZES, "size", "a power of 4 from 4 to 16384", size)
    whole = array.shape[along] % length == 0
    errors.require(whole, "x", f"of a length along axis {along} that is a multiple of {length}", array.shape[along])
    errors.require_type(isinstance(inverse, bool), "inverse", "True or False", inverse)
    d = _checked_signs(signs, length)
    into = checked_out(host_view("out", out), array.shape, array.dtype)
    errors.require_type(into is None or isinstance(into, np.ndarray), "out", "in host memory", "an array on a GPU")
    from mxnum.engine.rotations import host  # imported late, because the import loads numba

    made = host.hadamard(array, source, along, d, inverse, into, checked_threads(threads))
    return answer(made, x, out)


def _checked_signs(signs: Any, size: int) -> Array:
    """Return `signs` as float64 numbers, all 1 if `signs` is None.

    Raise an error unless each sign is 1 or -1.
    """
    if signs is None:
        return np.ones(size)
    if isinstance(signs, str):
        signs = SIGNS[errors.choose("signs", signs, tuple(SIGNS))]
        errors.require(size == len(signs), "size", f"{len(signs)} for these signs", size)
    given = as_array("signs", signs, anywhere=False)
    errors.require(given.shape == (size,), "signs", f"of shape {(size,)}", given.shape)
    errors.require_type(given.dtype.kind in "iuf", "signs", "an array of integers or floats", given.dtype.name)
    wrong = np.flatnonzero(abs(given) != 1)
    if wrong.size:
        raise errors.outside("signs", (int(wrong[0]),), "1 or -1", given[wrong[0]].item())
    checked: Array = given.astype(np.float64)
    return checked
