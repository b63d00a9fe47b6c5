"""Threads made for one call, and the floating-point environment of a thread.

Threads inherit the environment of their caller, and the call raises their errors.

Flush-to-zero and the rounding direction are thread state that other libraries change (torch has a
switch for flush-to-zero). Code that adds or multiplies floats checks once per call that they are
the defaults of IEEE 754 (`may_use_floats`). If the check fails, it computes with integers.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from threading import Thread
from typing import Any

import numba


def run_in_threads(work: Callable[[Any], Any], pieces: Sequence[Any]) -> list[Any]:
    """Return the results of `work` for each piece, in order.

    The first piece runs in the thread of the caller, and each other piece in a thread of its own.
    """
    if len(pieces) == 1:
        return [work(pieces[0])]
    results: list[Any] = [None] * len(pieces)
    errors: list[BaseException] = []

    def run(index: int) -> None:
        try:
            results[index] = work(pieces[index])
        except BaseException as error:  # The caller raises it below.
            errors.append(error)

    workers = [Thread(target=run, args=(index,)) for index in range(1, len(pieces))]
    for worker in workers:
        worker.start()
    run(0)
    for worker in workers:
        worker.join()
    if errors:
        raise errors[0]
    return results


def bounds(length: int, parts: int, step: int = 1) -> list[int]:
    """Return the `parts + 1` bounds that split `length` items into parts of nearly equal length.

    All bounds but the last are multiples of `step`, and the lengths of parts differ by at most
    `step`.
    """
    steps = -(-length // step)
    return [min(length, steps * part // parts * step) for part in range(parts + 1)]


def worth(work: int, least: int, threads: int | None) -> int:
    """Return how many threads to use, at most `threads`.

    Each has at least `least` units of `work`.
    """
    if work < 2 * least:
        return 1
    return min(threads or usual_threads(), work // least)


def usual_threads() -> int:
    """Return how many threads numba would use if called from this thread.

    Asking numba starts its own threads, and starting OpenMP threads undoes what other libraries
    set, such as `torch.set_num_threads`. So this asks only if numba's threads already run. Before
    that, nobody can have chosen another number than numba's default.
    """
    try:
        numba.threading_layer()
    except ValueError:  # numba has not started its threads.
        most: int = numba.config.NUMBA_NUM_THREADS
        return most
    return int(numba.get_num_threads())


def _number(bits: int) -> float:
    """Return the float64 number of a bit pattern.

    Arithmetic would depend on the floating-point environment at import time.
    """
    number: float = struct.unpack("<d", struct.pack("<Q", bits))[0]
    return number


#: 1 and the next float64 number; then 1/2 and 3/4 of the distance between the two.
_ONE, _NEXT = _number(1023 << 52), _number((1023 << 52) + 1)
_HALF_WAY, _NEARER = _number(970 << 52), _number((970 << 52) + (1 << 51))
#: The least positive normal number (half of it is subnormal), 1/2 and 2.
_TINY, _HALF, _TWO = (_number(bits) for bits in (1 << 52, 1022 << 52, 1024 << 52))


def has_default_floats() -> bool:
    """Return True if float arithmetic follows the defaults of IEEE 754 on this thread.

    These are rounding to nearest even, and subnormals.

    Python's float64 arithmetic decides for float32 too: processors have one state for both widths.
    """
    return (
        # The sum is larger if the thread rounds up, and 1 if it rounds down or toward zero.
        _ONE + _HALF_WAY + _NEARER == _NEXT
        # The product is 0 if the thread flushes subnormal results or reads subnormal operands as 0.
        and _TINY * _HALF * _TWO == _TINY
    )


def may_use_floats() -> bool:
    """Return True if compiled code may use float arithmetic.

    It may with `has_default_floats()` if numba compiles: with NUMBA_DISABLE_JIT=1 the loops that
    rely on float arithmetic cannot run.
    """
    return has_default_floats() and not numba.config.DISABLE_JIT
