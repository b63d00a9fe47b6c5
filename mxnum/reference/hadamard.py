"""The Hadamard transform of blocks of an array."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from mxnum import errors
from mxnum.formats import FLOATS
from mxnum.reference.blocks import Array, float_array, from_bits
from mxnum.reference.numbers import ZERO, Exact, exact, plus, round_to, times


def hadamard(
    x: Any, *, axis: int = -1, size: int = 16, signs: Sequence[int] | None = None, inverse: bool = False
) -> Array:
    """Return the Hadamard transform H (d * x) / sqrt(size) of every `size` numbers along an axis.

    H is the Hadamard matrix: H[i, j] is -1 if the bitwise AND of i and j has an odd number of ones,
    else 1. d is the vector of `signs`. If `inverse` is True, return the inverse transform d * (H x)
    / sqrt(size). Each result is the exact sum of its terms, starting from +0, rounded once to
    nearest even in the type of x.
    """
    array = float_array(x)
    root = int(size**0.5 + 0.5)
    errors.require(root * root == size and (size & (size - 1)) == 0, "size", "a power of 4", size)
    d = [1] * size if signs is None else [int(sign) for sign in signs]
    errors.require(len(d) == size and set(d) <= {1, -1}, "signs", f"{size} numbers 1 or -1", signs)
    rows = np.moveaxis(array, axis, -1)
    errors.require(rows.shape[-1] % size == 0, "x", f"of a length divisible by {size}", rows.shape[-1])
    result = np.empty_like(rows)
    target = FLOATS[array.dtype.name]
    for where in np.ndindex(*rows.shape[:-1]):
        for start in range(0, rows.shape[-1], size):
            values = [exact(float(v)) for v in rows[where][start : start + size]]
            for i in range(size):
                total = ZERO
                for j in range(size):
                    sign = (-1) ** (i & j).bit_count() * d[i if inverse else j]
                    total = plus(total, times(values[j], exact(Fraction(sign))))
                y = times(total, Exact("finite", False, Fraction(1, root)))
                result[(*where, start + i)] = from_bits([round_to(y, target)], target)[0]
    return np.moveaxis(result, -1, axis)
