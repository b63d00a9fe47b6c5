"""Measure how much faster several threads are than one, and check that all bits stay the same."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numba
import numpy as np

import mxnum as mx
from benchmarks.data import Array, normal, size_name
from benchmarks.questions import Case, Cells, Session
from benchmarks.record import Measurement, Table

TITLE = "How much faster are several threads, and do they give the same bits?"
TEXT = """The baseline is the same call on one thread; threads are set with `numba.set_num_threads`. On n cores that
share one memory bus, large arrays gain less than a factor of n. Arrays below a certain size use one thread, whatever is
set. *Same bits* compares every code, scale and value with the results of one thread, on data with NaN in a few blocks
and rows that end in short blocks."""


def measure(session: Session) -> Cells:
    """Yield the time of each function at each number of threads, then comparisons of bits."""
    most: int = numba.config.NUMBA_NUM_THREADS
    powers = [1 << power for power in range(1, most.bit_length()) if 1 << power < most]
    counts = [*powers, most] if most > 1 else []
    for size in session.sizes_or((1 << 24, 1 << 21, 1 << 18), (1 << 21,)):
        table = Table(f"time_{size}", f"Time, {size_name(size)} elements", "× the same on one thread")
        if counts:
            yield from _times(table, normal(size, session.seed), counts, session)
        else:
            yield table, Measurement("any", "2 threads", skipped="there is only one core, or NUMBA_NUM_THREADS=1")
    if counts:
        yield from _sameness(counts, session)
    numba.set_num_threads(most)


def _times(table: Table, x: Array, counts: list[int], session: Session) -> Cells:
    for row, run in _functions(x):
        for count in counts:
            yield from session.compare(table, partial(run, 1), Case(row, f"{count} threads", partial(run, count)))
    keyword = partial(_by_keyword, x)
    for count in counts:
        case = Case("quantize, threads=", f"{count} threads", partial(keyword, count))
        yield from session.compare(table, partial(keyword, 1), case)


def _sameness(counts: list[int], session: Session) -> Cells:
    """Compare the results at all numbers of threads, on an array large enough for all threads."""
    size = min(1 << 26, max(1 << 22, counts[-1] << 20))
    y = normal(size, session.seed).ravel()
    y[5::100_003] = np.nan
    awkward = y[: y.size // 1003 * 1003].reshape(-1, 1003)
    table = Table("same", f"Same bits, {size_name(size)} elements in rows of 1003", "", "none")
    for row, run in _functions(awkward):
        expected = _bits(run(1))
        for count in counts:
            yield table, _verdict(row, f"{count} threads", _bits(run(count)) == expected)


def _verdict(row: str, column: str, alike: bool) -> Measurement:
    return Measurement(row, column, text="same") if alike else Measurement(row, column, failed="different bits")


def _by_keyword(x: Array, count: int) -> object:
    numba.set_num_threads(numba.config.NUMBA_NUM_THREADS)
    return mx.quantize(x, "mxfp8_e4m3", threads=count)


def _functions(x: Array) -> Iterator[tuple[str, Callable[[int], object]]]:
    """Yield each row's name, and a function that runs its call on a given number of threads."""
    q, a = mx.quantize(x, "mxfp8_e4m3"), mx.quantize(x[:512], "mxfp8_e4m3")
    wide = x.astype(np.float64)
    calls: dict[str, Callable[[], object]] = {
        "quantize": lambda: mx.quantize(x, "mxfp8_e4m3"),
        "quantize, rtz": lambda: mx.quantize(x, "mxfp8_e4m3", rounding="rtz"),
        "quantize, sr, seed=": lambda: mx.quantize(x, "mxfp8_e4m3", rounding="sr", seed=1),
        "quantize along columns": lambda: mx.quantize(x, "mxfp8_e4m3", axis=0),
        "quantize float64": lambda: mx.quantize(wide, "mxfp8_e4m3"),
        "fake_quantize": lambda: mx.fake_quantize(x, "mxfp8_e4m3"),
        "dequantize": lambda: q.dequantize(),
        "quantize, packed=True, 4 bits": lambda: mx.quantize(x, "mxfp4_e2m1", packed=True),
        "matmul, block, of 512 rows": lambda: mx.matmul(a, a.T),
    }
    for row, call in calls.items():

        def run(count: int, call: Callable[[], object] = call) -> object:
            numba.set_num_threads(count)
            return call()

        yield row, run


def _bits(found: Any) -> bytes:
    if isinstance(found, mx.MXArray):
        return found.codes.tobytes() + found.scales.tobytes()
    return bytes(np.asarray(found).tobytes())
