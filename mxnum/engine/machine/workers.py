"""Work in threads made for one call: they inherit its floating-point environment, and their errors are raised in it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from threading import Thread
from typing import Any

import numba


def run_in_threads(work: Callable[[Any], Any], pieces: Sequence[Any]) -> list[Any]:
    """What `work` returns for each piece, in order: the first in the thread of the caller, each other in its own."""
    if len(pieces) == 1:
        return [work(pieces[0])]
    results: list[Any] = [None] * len(pieces)
    errors: list[BaseException] = []

    def run(index: int) -> None:
        try:
            results[index] = work(pieces[index])
        except BaseException as error:  # raised below
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
    """Where to cut so many things into parts that differ by at most `step`, each but the last a multiple of it."""
    steps = -(-length // step)
    return [min(length, steps * part // parts * step) for part in range(parts + 1)]


def worth(work: int, least: int, threads: int | None) -> int:
    """How many threads to use, of those allowed, if each should have at least so much work."""
    if work < 2 * least:
        return 1
    return min(threads or usual_threads(), work // least)


def usual_threads() -> int:
    """How many threads numba would use in this thread.

    To ask it starts its own, and those of OpenMP forget what other libraries set, such as `torch.set_num_threads`. So
    it is asked only when they run already; nobody can have chosen another number before that.
    """
    try:
        numba.threading_layer()
    except ValueError:  # none run
        most: int = numba.config.NUMBA_NUM_THREADS
        return most
    return int(numba.get_num_threads())
