"""Several threads: how much faster, and whether every bit is the same."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numba
import numpy as np

import mxnum as mx
from benchmarks.data import Array, normal, size_name
from benchmarks.questions import Case, Cells, Session
from benchmarks.record import Measurement, Table

TITLE = "What do more threads bring, and do they change anything?"
TEXT = """The baseline is the same call on one thread; threads are set with `numba.set_num_threads`. With n cores that
share one memory bus, large arrays gain less than n times. Below a measured size mxnum uses one thread whatever is set.
*Same bits* compares every code, scale and value with those of one thread, on data with NaN in a few blocks and rows
that end in short blocks."""


def measure(session: Session) -> Cells:
    """Each function at each number of threads."""
    most: int = numba.config.NUMBA_NUM_THREADS
    powers = [1 << power for power in range(1, most.bit_length()) if 1 << power < most]
    counts = [*powers, most] if most > 1 else []
    sizes = session.sizes_or((1 << 24, 1 << 21, 1 << 18), (1 << 20,))
    for size in sizes:
        x = normal(size, session.seed)
        table = Table(f"time_{size}", f"Time, {size_name(size)} elements", "× the same on one thread")
        same = Table(f"same_{size}", f"Same bits, about {size_name(size)} elements", "", "none")
        if not counts:
            yield table, Measurement("any", "2 threads", skipped="one core only, or NUMBA_NUM_THREADS=1")
            continue
        y = x.ravel()[:-7].copy()
        y[5::100_003] = np.nan
        awkward = y[: y.size // 1003 * 1003].reshape(-1, 1003)
        for row, run in _functions(x):
            for count in counts:
                case = Case(row, f"{count} threads", _with(count, run))
                yield from session.compare(table, _with(1, run), case)
        for row, run in _functions(awkward):
            for count in counts:
                alike = _bits(_with(count, run)()) == _bits(_with(1, run)())
                yield same, _verdict(row, f"{count} threads", alike)
    numba.set_num_threads(most)


def _verdict(row: str, column: str, alike: bool) -> Measurement:
    return Measurement(row, column, text="same") if alike else Measurement(row, column, failed="different bits")


def _with(count: int, run: Callable[[], object]) -> Callable[[], object]:
    def function() -> object:
        numba.set_num_threads(count)
        return run()

    return function


def _functions(x: Array) -> Iterator[tuple[str, Callable[[], object]]]:
    q = mx.quantize(x, "mxfp8_e4m3")
    yield "quantize", lambda: mx.quantize(x, "mxfp8_e4m3")
    yield "quantize, rtz", lambda: mx.quantize(x, "mxfp8_e4m3", rounding="rtz")
    yield "quantize, sr, seed=", lambda: mx.quantize(x, "mxfp8_e4m3", rounding="sr", seed=1)
    yield "quantize along columns", lambda: mx.quantize(x, "mxfp8_e4m3", axis=0)
    yield "fake_quantize", lambda: mx.fake_quantize(x, "mxfp8_e4m3")
    yield "dequantize", lambda: q.dequantize()
    yield "quantize and pack, 4 bits", lambda: mx.quantize(x, "mxfp4_e2m1").pack()
    a = mx.quantize(x[:512], "mxfp8_e4m3")
    yield "matmul, block, of 512 rows", lambda: mx.matmul(a, a.T)


def _bits(found: Any) -> bytes:
    if isinstance(found, mx.MXArray):
        return found.codes.tobytes() + found.scales.tobytes()
    return bytes(np.asarray(found).tobytes())
