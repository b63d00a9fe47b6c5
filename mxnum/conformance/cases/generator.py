"""Random integers that are the same on every machine and in every version of numpy.

They are raw Philox integers, which this module maps to ranges itself.
"""

from __future__ import annotations

import numpy as np

from mxnum.formats import ElementFormat
from mxnum.memory.dtypes import Array


class Generator:
    """A source of random integers, fixed by its seed."""

    def __init__(self, seed: int) -> None:
        self._generator = np.random.Philox(key=seed)

    def integers(self, low: int, high: int, shape: int | tuple[int, ...]) -> Array:
        """Return random integers in low..high inclusive. The modulo bias is below 2**-32 for the ranges used here."""
        count = int(np.prod(shape))
        raw = self._generator.random_raw(count) >> np.uint64(11)
        return (raw % np.uint64(high - low + 1)).astype(np.int64).reshape(shape) + low

    def choice(self, values: Array, shape: int | tuple[int, ...]) -> Array:
        """Return random values out of `values`, all with equal probability."""
        chosen: Array = values[self.integers(0, len(values) - 1, shape)]
        return chosen

    def chance(self, share: float, shape: int | tuple[int, ...]) -> Array:
        """Return random booleans that are True with probability `share`."""
        return self.integers(0, (1 << 20) - 1, shape) < share * (1 << 20)

    def patterns(self, source: ElementFormat, shape: int | tuple[int, ...]) -> Array:
        """Return random bit patterns, all with equal probability, infinities and NaNs included."""
        count = int(np.prod(shape))
        raw = self._generator.random_raw(count)
        return (raw >> np.uint64(64 - source.bits)).astype(f"u{source.bits // 8}").reshape(shape)

    def bell(self, shape: tuple[int, ...]) -> Array:
        """Return numbers of mean 0 and variance about 1, sums of twelve uniform ones, as tensors of users have them."""
        total: Array = self.integers(0, 1 << 20, (12, *shape)).sum(axis=0)
        return (total - 6.0 * (1 << 20)) / (1 << 20)
