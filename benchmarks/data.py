"""Make the input data of the benchmarks from seeds, so that all questions use equal data."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

OCP = ("mxfp8_e4m3", "mxfp8_e5m2", "mxfp6_e3m2", "mxfp6_e2m3", "mxfp4_e2m1", "mxint8")
#: One format of each width, for quick runs.
FEW = ("mxfp8_e4m3", "mxfp6_e2m3", "mxfp4_e2m1")

#: `DRAM` float32 numbers take 64 MiB, more than most caches hold. `L2` float32 numbers take 256
#: KiB.
DRAM, L2 = 1 << 24, 1 << 16


def shape(size: int) -> tuple[int, int]:
    """Return the shape of a matrix with `size` elements.

    Every row holds whole blocks of 32. The matrix is as square as this condition allows.
    """
    rows = 1 << ((size.bit_length() - 1) // 2)
    while size % (32 * rows):
        rows //= 2
    return rows, size // rows


def normal(size: int, seed: int) -> Array:
    """Return a float32 matrix from N(0, 1)."""
    return np.random.default_rng(seed).standard_normal(shape(size), dtype=np.float32)


def size_name(size: int) -> str:
    """Return a number of elements as text with a binary prefix, such as ``16M`` for 2**24."""
    for shift, unit in ((30, "G"), (20, "M"), (10, "K")):
        if size >= 1 << shift and size % (1 << shift) == 0:
            return f"{size >> shift}{unit}"
    return str(size)


def one_thread() -> None:
    """Limit mxnum to one thread.

    `benchmarks.__main__` limits BLAS and torch to one thread.
    """
    numba.set_num_threads(1)
