"""Operands of products: arrays of floats, or the parts of MX arrays. Products sum along rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from mxnum.formats import ElementFormat
from mxnum.layout import Blocks
from mxnum.memory.dtypes import Array


@dataclass(frozen=True)
class Operand:
    """One operand of a product: floats, or the parts of an MX array.

    An operand has at least two axes, and products sum over the last axis.
    """

    #: Float values, or element codes.
    array: Array
    #: The float type, or the element format.
    format: ElementFormat
    #: The block length along each axis of an MX array. `blocks` is empty for floats.
    blocks: Blocks = ()
    #: The scales of an MX array, as E8M0 codes, or as float32 values if the format's scales are
    #: floats.
    scales: Array | None = None
    offsets: Array | None = None
    #: The number of bits of a scale's significand; 1 if scales are powers of two.
    scale_bits: int = 1

    def viewed(self, view: Callable[[Array], Array], blocks: Blocks) -> Operand:
        """Return this operand with `view` applied to its arrays, and with new block lengths."""
        scales = None if self.scales is None else view(self.scales)
        offsets = None if self.offsets is None else view(self.offsets)
        blocks = blocks if self.blocks else ()
        return Operand(view(self.array), self.format, blocks, scales, offsets, self.scale_bits)

    def row(self) -> Operand:
        """Return this vector as a matrix of one row."""
        return self.viewed(lambda x: x[np.newaxis], (1, *self.blocks))

    def swapped(self) -> Operand:
        """Return this operand with its last two axes exchanged."""
        return self.viewed(lambda x: x.swapaxes(-1, -2), (*self.blocks[:-2], *self.blocks[:-3:-1]))

    def by_rows(self) -> Operand:
        """Return this operand with its scales and offsets repeated for each row.

        The rows of the result can be sliced.
        """
        if all(block == 1 for block in self.blocks[:-1]):
            return self
        scales, offsets = (None if part is None else self._for_each_row(part) for part in (self.scales, self.offsets))
        blocks = *(1,) * (self.array.ndim - 1), self.blocks[-1]
        return Operand(self.array, self.format, blocks, scales, offsets, self.scale_bits)

    @property
    def has_float_scales(self) -> bool:
        """True if scales are float32 values, not E8M0 codes."""
        return self.scales is not None and self.scales.dtype == np.float32

    def joined(self, multiple: int) -> Operand:
        """Return this stack of matrices as one matrix.

        Each matrix of the stack is padded with rows of zeros until its number of rows is a multiple
        of `multiple`.
        """

        def join(x: Array) -> Array:
            rest = -x.shape[1] % multiple
            return (np.pad(x, ((0, 0), (0, rest), (0, 0))) if rest else x).reshape(-1, x.shape[-1])

        return self.viewed(join, self.blocks[-2:])

    def _for_each_row(self, per_block: Array) -> Array:
        for axis, (block, length) in enumerate(zip(self.blocks[:-1], self.array.shape, strict=False)):
            if block > 1:
                per_block = np.repeat(per_block, min(block, length), axis)[(slice(None),) * axis + (slice(length),)]
        return per_block

    def rows(self, some: slice) -> Operand:
        """Return a slice of the rows of this matrix, which must come from `by_rows`."""
        return self.viewed(lambda x: x[some], self.blocks)


#: A function that returns the values of an operand in float32, rounded once to nearest even. Its
#: second argument is the number of threads.
ToFloat32 = Callable[[Operand, int | None], Array]


def stack(out: Array, a: Operand, b: Operand) -> tuple[Array, Operand, Operand]:
    """Return `out` and both operands, with their batch axes joined into one axis.

    Operands are broadcast over the whole batch.
    """
    batch = out.shape[:-2]

    def joined(x: Array) -> Array:
        return np.broadcast_to(x, (*batch, *x.shape[-2:])).reshape(-1, *x.shape[-2:])

    x, y = (operand.viewed(joined, (1, *operand.blocks[-2:])) for operand in (a, b))
    return out.reshape(-1, *out.shape[-2:]), x, y


def matrices(out: Array, a: Operand, b: Operand) -> Iterator[tuple[Array, Operand, Operand]]:
    """Yield, for each index of the batch, a matrix of `out` and the matrices of both operands.

    The batch axes of the operands are broadcast. Both operands must come from `Operand.by_rows`.
    """
    if out.ndim == 2:  # Fast path: making views would take a tenth of the time of a small product.
        yield out, a, b
        return
    if b.array.ndim == 2 and out.size and a.array.size:
        # If the right operand is a single matrix, one product suffices: join the left matrices
        # of the batch into one matrix.
        a = a.viewed(lambda x: x.reshape(-1, x.shape[-1]), a.blocks[-2:])
        out = out.reshape(-1, out.shape[-1])
    batch = out.shape[:-2]
    for place in np.ndindex(batch):
        yield out[place], _at(a, place), _at(b, place)


def _at(x: Operand, place: tuple[int, ...]) -> Operand:
    """Return the matrix of `x` for one index of the batch, after broadcasting the batch axes."""
    own = x.array.shape[:-2]
    index: Any = tuple(0 if n == 1 else i for n, i in zip(own, place[len(place) - len(own) :], strict=True))
    return x.viewed(lambda part: part[index], x.blocks[-2:])
