"""Measure the ratio of the times of two functions, which alternate in one process.

Because the functions alternate, other load on the machine slows both alike.

Times alone are not reported, because machines differ and are noisy. A round runs both functions, in
alternating order, and gives one ratio. The result is the median of the ratios and their quartiles.
"""

from __future__ import annotations

import gc
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import ceil
from time import perf_counter_ns

Function = Callable[[], object]

#: The shortest time to measure, in ns. Short calls are repeated, so that one measurement takes
#: about this long. Otherwise, reading the clock and calling the function would take most of the
#: measured time.
SHORTEST_NS = 1_000_000
#: In each round, the baseline is repeated for a quarter of the function's time, but at most for
#: `LONGEST_BASELINE_NS`.
LONGEST_BASELINE_NS = 50_000_000


@dataclass(frozen=True)
class Spread:
    """The median and the quartiles of repeated measurements."""

    median: float
    low: float
    high: float
    repetitions: int


def spread(values: Sequence[float]) -> Spread:
    """Return the median and the quartiles, interpolated linearly as in numpy."""
    if not values:
        raise ValueError("Argument 'values' must hold at least one number.")
    if len(values) == 1:
        return Spread(values[0], values[0], values[0], 1)
    low, median, high = statistics.quantiles(values, n=4, method="inclusive")
    return Spread(median, low, high, len(values))


def timed(function: Function, calls: int = 1) -> int:
    """Return the time of `calls` calls, in nanoseconds."""
    start = perf_counter_ns()
    for _ in range(calls):
        function()
    return perf_counter_ns() - start


def ratios(baseline: Function, function: Function, *, rounds: int, seconds: float, least: int = 3) -> list[float]:
    """Return for each round the time of `function` divided by the time of `baseline`.

    `ratios` runs `rounds` rounds. It stops early if `seconds` have passed and at least `least`
    rounds are done. The first calls of `function` and `baseline` are not timed, because these calls
    may compile.
    """
    baseline()
    function()
    once, reference = max(1, timed(function)), max(1, timed(baseline))
    calls, is_short = ceil(SHORTEST_NS / once), once < LONGEST_BASELINE_NS
    baseline_calls = ceil(max(SHORTEST_NS, min(once * calls / 4, LONGEST_BASELINE_NS)) / reference)
    found: list[float] = []
    collects = gc.isenabled()
    gc.disable()
    try:
        start = perf_counter_ns()
        while len(found) < rounds and (len(found) < least or perf_counter_ns() - start < seconds * 1e9):
            if len(found) % 2:
                time = _timed(function, calls, is_short)
                reference = _timed(baseline, baseline_calls, is_short)
            else:
                reference = _timed(baseline, baseline_calls, is_short)
                time = _timed(function, calls, is_short)
            found.append((time / calls) / (reference / baseline_calls))
    finally:
        if collects:
            gc.enable()
    return found


def _timed(function: Function, calls: int, is_short: bool) -> int:
    """Return the time of `calls` calls, in nanoseconds.

    If `is_short` is True, an extra call runs first, to bring the function's data back into the
    caches.
    """
    if is_short:
        function()
    return timed(function, calls)
