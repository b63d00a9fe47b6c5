"""Time each kernel on a GPU as a multiple of the time of a copy on the device."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache, partial
from typing import Any

import numpy as np

import mxnum as mx
from benchmarks import cuda, data
from benchmarks.questions import Case, Cells, Session
from benchmarks.record import Table

TITLE = "How close do GPU kernels come to the speed of a copy?"
TEXT = """Each number is the time per byte of a kernel divided by the time per byte of the device's own copy. A kernel
with 1.00 reads and writes as fast as a copy. The goal for arrays of 2^28 numbers is 85 % of the copy's bandwidth, a
ratio of 1.18. Ten calls are queued at a time."""

SPEED = Table("speed", "Time per byte, in multiples of the device's copy", "the device's copy")

#: The goal, 85 % of a copy's bandwidth, as a multiple of the copy's time.
LIMIT = 1 / 0.85
CALLS = 10
#: The bytes that a copy of float32 moves for each element.
COPIED = 8.0
#: From `LARGE` elements on, a call spends more time in the kernel than in Python code.
LARGE = 1 << 28
#: The bytes that quantizing and dequantizing move for each element: a float32, a code of one byte,
#: and 1/32 of a scale.
_CODES = 5 + 1 / 32


def measure(session: Session) -> Cells:
    """Yield the properties of the device, and the time of each kernel."""
    cuda.require()
    yield from cuda.device_of(session)
    for size in session.sizes_or((1 << 26, 1 << 28), (1 << 20,)):
        x, out, copy = _arrays(data.normal(size, session.seed))
        for row, moved, limit, call in _calls(x, out):
            goal = limit if size >= LARGE else None
            case = Case(row, data.size_name(size), _queued(call), share=moved / COPIED, limit=goal)
            yield from session.compare(SPEED, _queued(copy), case)
        yield from session.compare(SPEED, _queued(copy), _torchao(x, data.size_name(size)))


def _arrays(x: Any) -> tuple[Any, Any, Callable[[], object]]:
    """Return x on the GPU, an array for results, and a function that copies x to this array.

    If CuPy finds a GPU, the arrays are CuPy's, because CuPy takes memory from a pool. numba asks
    the driver for memory at each call, and all work on the GPU waits while numba frees memory.
    """
    from numba import cuda

    try:
        import cupy

        there = cupy.asarray(x)
        out = cupy.empty_like(there)
        return there, out, partial(out.data.copy_from_device_async, there.data, there.nbytes)
    except Exception:  # CuPy is not installed, or finds no GPU, as in the simulator
        there = cuda.to_device(x)
        out = cuda.device_array(x.shape, np.float32)
        return there, out, partial(out.copy_to_device, there)


def _torchao(x: Any, column: str) -> Case:
    """Return the benchmark case for torchao's conversion to codes, compiled by PyTorch."""
    row, share = "torchao to_mx mxfp8_e4m3, compiled", _CODES / COPIED
    try:
        import torch
        from torchao.prototype.mx_formats.mx_tensor import to_mx

        tensor = torch.as_tensor(x, device="cuda")
    except (ImportError, RuntimeError, AssertionError) as problem:
        return Case(row, column, None, skipped=str(problem).splitlines()[0])
    return Case(row, column, _queued(partial(torch.compile(to_mx), tensor, torch.float8_e4m3fn, 32)), share=share)


def _queued(call: Callable[[], object]) -> Callable[[], object]:
    """Return a function that starts `CALLS` calls and then waits for the GPU."""
    from numba import cuda

    def run() -> None:
        for _ in range(CALLS):
            call()
        cuda.synchronize()

    return run


def _calls(x: Any, out: Any) -> Iterator[tuple[str, float, float | None, Callable[[], object]]]:
    """Yield (name, bytes moved for each element, goal, call)."""
    for fmt in ("mxfp8_e4m3", "mxfp4_e2m1", "mxint8"):
        yield f"fake_quantize {fmt}", COPIED, LIMIT, partial(mx.fake_quantize, x, fmt, out=out)
        yield f"quantize {fmt}", _CODES, LIMIT, partial(mx.quantize, x, fmt)
        yield f"dequantize {fmt}", _CODES, None, _later(partial(mx.quantize, x, fmt), "dequantize", out=out)
    fake = partial(mx.fake_quantize, x, "mxfp8_e4m3", out=out)
    yield "fake_quantize mxfp8_e4m3, rtz", COPIED, None, partial(fake, rounding="rtz")
    yield "fake_quantize mxfp8_e4m3, sr by seed", COPIED, None, partial(fake, rounding="sr", seed=1)
    yield "fake_quantize mxfp8_e4m3, columns", COPIED + 4, None, partial(fake, axis=0)
    yield "fake_quantize mxfp8_e4m3, tiles", COPIED + 4, None, partial(fake, block_shape=(16, 16))
    yield "quantize mxfp4_e2m1, packed", 4.5 + 1 / 32, None, partial(mx.quantize, x, "mxfp4_e2m1", packed=True)
    yield "pack mxfp4_e2m1", 1.5, None, _later(partial(mx.quantize, x, "mxfp4_e2m1"), "pack")


def _later(make: Callable[[], Any], method: str, **named: Any) -> Callable[[], object]:
    """Return a function that calls a method of the object that `make` creates at the first call."""
    kept = cache(make)
    return lambda: getattr(kept(), method)(**named)
