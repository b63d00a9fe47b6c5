"""Threads made for one call.

They inherit its floating-point environment, and the call raises their errors.
"""

from __future__ import annotations

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
