"""Time the common case: six OCP formats, float32, blocks of 32 along rows, nearest even."""

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
writes the same number of float32 values; a conversion to bytes or bits writes less and can be faster. In rows with
*new*, the call allocates its results, and the system has to map fresh pages for large results; with *out=*, the call
writes into an existing array. The first row compares the baseline with itself: its spread is the noise of the
measurement."""

#: The goal for each row of the table, for arrays in DRAM, as a multiple of the time of a copy. The
#: goals for packed codes depend on the number of bits of an element.
GOALS_DRAM = {
    "fake_quantize, out=": 1.0,
    "quantize, out=": 0.85,
    "quantize, packed=True, out=, 4 bits": 0.85,
    "quantize, packed=True, out=, 6 bits": 1.1,
    "dequantize, out=": 0.68,
    "from_packed and dequantize, out=, 4 bits": 0.62,
    "from_packed and dequantize, out=, 6 bits": 0.8,
}
#: The goal for arrays in the second-level cache comes from a count of instructions. `fake_quantize`
#: executes 36 vector instructions for a block of 32, which take 18 cycles. Copying a block (128
#: bytes in, 128 out) takes about 9 cycles, so `fake_quantize` takes 2.0 times as long as a copy.
#: The fixed cost of a call adds 1.2 times the time of copying 64K elements.
GOALS_L2 = {"fake_quantize, out=": 3.3}


def measure(session: Session) -> Cells:
    """Yield the cells of the tables: a table is a size, a row a conversion, a column a format."""
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
