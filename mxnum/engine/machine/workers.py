"""Threads that run for one call, and the floating-point environment of a thread.

Threads inherit the floating-point environment of their caller. If a thread raises an error, its
caller raises this error too.

Other libraries change a thread's flush-to-zero mode and rounding direction. For example, torch has
a switch for flush-to-zero. So each call that adds or multiplies floats first calls
`may_use_floats`. That function checks that the thread rounds to nearest even and flushes no
subnormal number to zero. If `may_use_floats` returns False, the code computes with integers instead
of floats.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from threading import Thread
from typing import Any

import numba


def run_in_threads(work: Callable[[Any], Any], pieces: Sequence[Any]) -> list[Any]:
    """Return the results of `work` for each piece, in order.

    The caller's thread processes the first piece. Each of the other pieces runs in a thread of its
    own.
    """
    if len(pieces) == 1:
        return [work(pieces[0])]
    results: list[Any] = [None] * len(pieces)
    errors: list[BaseException] = []

    def run(index: int) -> None:
        try:
            results[index] = work(pieces[index])
        except BaseException as error:  # The caller's thread raises this error below.
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
    """Return how many threads to use for an amount of `work`, at most `threads`.

    With two threads or more, each thread has at least `least` units of work.
    """
    if work < 2 * least:
        return 1
    return min(threads or usual_threads(), work // least)


def usual_threads() -> int:
    """Return how many threads numba would use if called from this thread.

    Calling `numba.get_num_threads` starts numba's threads. Starting OpenMP threads undoes settings
    of other libraries, such as `torch.set_num_threads`. So this function asks numba only if numba's
    threads are already running; otherwise, it returns `NUMBA_NUM_THREADS`.
    """
    try:
        numba.threading_layer()
    except ValueError:  # numba has not started its threads.
        most: int = numba.config.NUMBA_NUM_THREADS
        return most
    return int(numba.get_num_threads())


def _number(bits: int) -> float:
    """Return the float64 number with the bit pattern `bits`.

    Computing the number by float arithmetic would depend on the floating-point environment at
    import time.
    """
    number: float = struct.unpack("<d", struct.pack("<Q", bits))[0]
    return number


#: Numbers for the test of the rounding direction. `_NEXT` is the float64 number after 1.
#: `_HALF_WAY` and `_NEARER` are 1/2 and 3/4 of the distance between `_ONE` and `_NEXT`.
_ONE, _NEXT = _number(1023 << 52), _number((1023 << 52) + 1)
_HALF_WAY, _NEARER = _number(970 << 52), _number((970 << 52) + (1 << 51))
#: Numbers for the test of flushing to zero: the least positive normal number (half of it is
#: subnormal), 1/2 and 2.
_TINY, _HALF, _TWO = (_number(bits) for bits in (1 << 52, 1022 << 52, 1024 << 52))


def has_default_floats() -> bool:
    """Return True if this thread rounds to nearest even and does not flush subnormal numbers.

    Rounding to nearest even, and subnormal numbers, are the defaults of IEEE 754. The check uses
    Python's float64 arithmetic. Its result is valid for float32 too, because the same processor
    settings apply to both types.
    """
    return (
        # Rounding up makes the sum greater than `_NEXT`; rounding down or toward zero makes it 1.
        _ONE + _HALF_WAY + _NEARER == _NEXT
        # The product is 0 if the thread flushes subnormal results or reads subnormal operands as 0.
        and _TINY * _HALF * _TWO == _TINY
    )


def may_use_floats() -> bool:
    """Return True if compiled code may use float arithmetic.

    Compiled float arithmetic is right only if `has_default_floats()` is True. With
    NUMBA_DISABLE_JIT=1, loops that rely on float arithmetic cannot run.
    """
    return has_default_floats() and not numba.config.DISABLE_JIT
