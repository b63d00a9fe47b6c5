"""The common case: the six OCP formats, blocks of 32 along rows of float32, to nearest even."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import numpy as np

import mxnum as mx
from benchmarks.data import DRAM, FEW, L2, OCP, Array, normal, one_thread, size_name
from benchmarks.questions import Case, Cells, Session
from benchmarks.record import Table

TITLE = "How fast are the common conversions?"
TEXT = """One thread, float32, blocks of 32 along rows, rounding to nearest even, floor scales. The baseline reads and
writes the same number of float32 values; a conversion to bytes or bits writes less and can be faster. *New*: the call
allocates its results, and the system has to map fresh pages for large ones; *out=*: it writes into an array that
exists. The first line is the baseline against itself: its spread is the noise of the measurement."""

#: Goals by line, for arrays of DRAM size and of L2 size; goals of packed codes by bits of an
#: element.
GOALS_DRAM = {
    "fake_quantize, out=": 1.0,
    "quantize, out=": 0.85,
    "quantize, packed=True, out=, 4 bits": 0.85,
    "quantize, packed=True, out=, 6 bits": 1.1,
    "dequantize, out=": 0.68,
    "from_packed and dequantize, out=, 4 bits": 0.62,
    "from_packed and dequantize, out=, 6 bits": 0.8,
}
#: In the second-level cache, by count: a block of 32 takes 36 vector instructions, two a cycle,
#: while a copy moves 256 bytes in about 9 cycles (2.0), and the call takes as long as the copy of
#: 64K elements (1.2).
GOALS_L2 = {"fake_quantize, out=": 3.3}


def measure(session: Session) -> Cells:
    """Yield a table a size: conversions as lines, formats as columns."""
    one_thread()
    for size in session.sizes_or((DRAM, L2), (1 << 20, L2)):
        x = normal(size, session.seed)
        copy = partial(np.copyto, np.empty_like(x), x)
        goals = GOALS_DRAM if size >= DRAM else GOALS_L2 if size <= L2 else {}
        table = Table(f"size_{size}", f"{size_name(size)} elements", "× np.copyto of the float32 array")
        for name in FEW if session.quick else OCP:
            yield from session.compare(table, copy, Case("np.copyto itself", name, copy), *_cases(x, name, goals))


def _cases(x: Array, name: str, goals: dict[str, float]) -> Iterator[Case]:
    q = mx.quantize(x, name)
    bits = q.format.element.bits
    values = np.empty_like(x)
    packed, held = q.pack(), q.packed()

    def case(row: str, run: Callable[[], object]) -> Case:
        return Case(row, name, run, limit=goals.get(row, goals.get(f"{row}, {bits} bits")))

    def from_packed() -> mx.MXArray:
        return mx.MXArray.from_packed(packed, q.scales, name, length=x.shape[-1], axis=-1)

    yield case("fake_quantize, new", lambda: mx.fake_quantize(x, name))
    yield case("fake_quantize, out=", lambda: mx.fake_quantize(x, name, out=values))
    yield case("quantize, new", lambda: mx.quantize(x, name))
    yield case("quantize, out=", lambda: mx.quantize(x, name, out=q))
    yield case("dequantize, new", q.dequantize)
    yield case("dequantize, out=", lambda: q.dequantize(out=values))
    if bits < 8:
        yield case("pack, new", q.pack)
        yield case("pack, out=", lambda: q.pack(out=packed))
        yield case("unpack, new", lambda: from_packed().unpacked())
        yield case("quantize, packed=True, new", lambda: mx.quantize(x, name, packed=True))
        yield case("quantize, packed=True, out=", lambda: mx.quantize(x, name, out=held))
        yield case("from_packed and dequantize, out=", lambda: from_packed().dequantize(out=values))
