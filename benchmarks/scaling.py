"""Measure the time per call, the time per element for arrays up to 1 GiB, and the memory use."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import numpy as np

import mxnum as mx
from benchmarks import child, machine
from benchmarks.data import L2, Array, normal, one_thread, size_name
from benchmarks.questions import Case, Cells, Session
from benchmarks.record import Measurement, Table

TITLE = "Does the cost grow with the number of elements, and with nothing else?"
TEXT = """One thread, the common case. *Per element*: the time per element divided by the time per element in an array
of a million elements. The curve is flat where the time is proportional to the number of elements. It rises to the left
where the fixed cost of a call matters, and has a step where an array no longer fits a cache. *Beside a copy*: the
baseline is `np.copyto` of as many float32 values. *Fixed cost*: a call on one block; the baseline is a copy of 65,536
float32 values. *Memory*: the peak memory of a call in a fresh process, besides its input and its results, in MiB. Both
Python's allocator and the operating system measure it. The goal for `quantize` is 1 MiB."""

REFERENCE = 1 << 20
FULL = (32, 1 << 8, 1 << 11, 1 << 14, *(1 << power for power in range(16, 29, 2)))
QUICK = (32, 1 << 11, 1 << 16, 1 << 20, 1 << 22)
NAME = "mxfp8_e4m3"


def measure(session: Session) -> Cells:
    """Yield the measurements: time by array size, fixed cost of a call, and memory use."""
    one_thread()
    yield from _by_size(session)
    yield from _fixed(session)
    yield from _memory(session)


def _functions(x: Array) -> Iterator[tuple[str, Callable[[], object]]]:
    q, out = mx.quantize(x, NAME), np.empty_like(x)
    yield "fake_quantize, out=", partial(mx.fake_quantize, x, NAME, out=out)
    yield "quantize", partial(mx.quantize, x, NAME)
    yield "dequantize, out=", partial(q.dequantize, out=out)


def _by_size(session: Session) -> Cells:
    flat = Table("per_element", "Per element", f"× the time per element of {size_name(REFERENCE)} elements", "curve")
    beside = Table("beside_a_copy", "Beside a copy", "× np.copyto of as many float32 values", "curve")
    reference = dict(_functions(normal(REFERENCE, session.seed)))
    for size in session.sizes_or(FULL, QUICK):
        row = size_name(size)
        free = machine.available_bytes()
        if free is not None and 14 * size > free:  # bytes per element: x, out, codes, new codes, reserve
            reason = "more memory than the machine has"
            for table in (flat, beside):
                for column in reference:
                    yield table, Measurement(row, column, skipped=reason, x=size)
            continue
        x = normal(size, session.seed)
        copy = partial(np.copyto, np.empty_like(x), x)
        for column, run in _functions(x):
            yield from session.compare(flat, reference[column], Case(row, column, run, size / REFERENCE, x=size))
            yield from session.compare(beside, copy, Case(row, column, run, x=size))


def _fixed(session: Session) -> Cells:
    table = Table("fixed", "Fixed cost of a call", "× np.copyto of 65,536 float32 values")
    x = normal(L2, session.seed)
    copy = partial(np.copyto, np.empty_like(x), x)
    one = x[0, :32].copy()
    a, b = mx.quantize(one, NAME), mx.quantize(one, NAME)
    packed = mx.quantize(one, "mxfp4_e2m1")
    calls: dict[str, Callable[[], object]] = {
        **dict(_functions(one)),
        "quantize, rtz": partial(mx.quantize, one, NAME, rounding="rtz"),
        "quantize, sr": partial(mx.quantize, one, NAME, rounding="sr", seed=1),
        "quantize along columns": partial(mx.quantize, one.reshape(32, 1), NAME, axis=0),
        "quantize float64": partial(mx.quantize, one.astype(np.float64), NAME),
        "pack": packed.pack,
        "dot, block": partial(mx.dot, a, b),
        "matmul, block": partial(mx.matmul, mx.quantize(one[None], NAME), mx.quantize(one[:, None], NAME, axis=0)),
    }
    yield from session.compare(table, copy, *(Case(row, "one block", run) for row, run in calls.items()))


def _memory(session: Session) -> Cells:
    size = 1 << (22 if session.quick else 25)
    table = Table("memory", f"Memory beyond input and results, {size_name(size)} elements", "MiB", "none")
    for row in list(child.MEMORY)[: 2 if session.quick else None]:
        try:
            found = child.call("memory", row, str(size), str(session.seed))
        except child.ChildError as error:
            found = {}
            yield table, Measurement(row, "traced", failed=str(error))
        for column, value in found.items():
            if isinstance(value, str):
                yield table, Measurement(row, column, skipped=value)
            else:
                goal = 1.0 if row.startswith("quantize") else None
                yield table, Measurement(row, column, value, value, value, 1, limit=goal)
