"""The Hadamard transform of numpy arrays of any strides, with blocks shared among threads."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np

from mxnum.engine.machine import workers
from mxnum.engine.machine.workers import bounds, run_in_threads, worth
from mxnum.engine.rotations import by_floats, by_integers
from mxnum.engine.traversal.parts import contiguous, copy, memory_order
from mxnum.formats import ElementFormat
from mxnum.memory.dtypes import Array, signed_bits, stored_bits

#: A thread with fewer than `_NUMBERS_PER_THREAD` numbers costs more time than it saves.
_NUMBERS_PER_THREAD = 1 << 16


def hadamard(
    x: Array,
    source: ElementFormat,
    axis: int,
    signs: Array,
    inverse: bool,
    out: Array | None = None,
    threads: int | None = None,
) -> Array:
    """Return the Hadamard transform of each block of ``size = len(signs)`` numbers along an axis.

    With H the Hadamard matrix, a block x becomes H (signs * x) / sqrt(size), or signs * (H x) /
    sqrt(size) if `inverse`. The length of the axis is a multiple of `size`, which is a power of 4.
    If `out` is given, the function writes the result to `out` and returns it. `out` may share
    memory with `x`.
    """
    order = memory_order(x)
    given = contiguous(x.transpose(order))
    made = np.empty(given.shape, x.dtype) if out is None else out.transpose(order)
    # The loops read a whole block before they write it, so each result may overwrite its own block
    # of `x`. If `out` overlaps `x` but begins at another address, results go to a buffer first.
    is_aside = not made.flags.c_contiguous or (
        np.may_share_memory(made, given) and made.ctypes.data != given.ctypes.data
    )
    room = np.empty(given.shape, x.dtype) if is_aside else made
    step = math.prod(given.shape[order.index(axis) + 1 :])
    _transform(given.reshape(-1), room.reshape(-1), source, step, signs, inverse, threads)
    if is_aside:
        copy(room, made)
    return made.transpose(np.argsort(order)) if out is None else out


def _transform(
    x: Array, out: Array, source: ElementFormat, step: int, signs: Array, inverse: bool, threads: int | None
) -> None:
    """Compute the Hadamard transform of a flat contiguous array.

    Consecutive numbers of a block are `step` elements apart in `x` and `out`.
    """
    size = len(signs)
    blocks = x.size // size
    halvings = (size.bit_length() - 1) // 2
    before, after = (np.ones(size), signs) if inverse else (signs, np.ones(size))
    lanes = max(by_floats.AT_ONCE // size, 8)
    is_exact = source.mantissa_bits < 24 and workers.may_use_floats()
    arrays, marks = (signed_bits(x), stored_bits(out)), np.ones(blocks, np.bool_)

    def work(part: tuple[int, int]) -> None:
        if is_exact:
            fast = by_floats.transform(source)
            if not fast(arrays, step, (before, after, 0.5**halvings), part, lanes, marks):
                return
        by_integers.transform(source)(arrays, step, (before, after, -halvings), part, marks)

    if blocks:
        shares = min(blocks, worth(x.size, _NUMBERS_PER_THREAD, threads))
        run_in_threads(work, list(pairwise(bounds(blocks, shares, lanes))))
