"""Check that a GPU gives the bits of the CPU, and time each kernel as a multiple of a copy."""

from __future__ import annotations

import importlib.util
import itertools
import multiprocessing
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from functools import cache, partial
from typing import Any

import numpy as np

import mxnum as mx
from benchmarks import cuda_bits, data, machine
from benchmarks.questions import Case, Cells, Session
from benchmarks.record import Measurement, Table

TITLE = "On a GPU: the same bits, and how close to a copy?"
TEXT = """First the bits. Arrays of each library, on the default stream and on one of their own. What kernels make
beside what the CPU makes: random numbers in every format and rounding, with types, scale rules, overflows and layouts
in turn; packed codes; products; every number of 16 bits; every float32 bit pattern under eight scales. Then the
speed: times are multiples of the device's own copy, counting bytes. 1.00 is a kernel that reads and writes as fast as a
copy does; the goal of 85 % of its bandwidth, for arrays of 2^28 numbers, is 1.18. Ten calls are queued at a time.
At last the tests of the CUDA engine."""

DEVICE = Table("device", "The device", "", plot="none")
SUITE = Table("suite", "Tests", "", plot="none")
LIBRARIES = Table("libraries", "Elements of arrays of each library, all equal", "elements", plot="none")
EQUALITY = Table("equality", "Elements compared with the CPU, all equal", "elements", plot="none")
SPEED = Table("speed", "Time per byte, in multiples of the device's copy", "the device's copy")

#: The goal as a multiple of a copy's time: 85 % of a copy's bandwidth.
LIMIT = 1 / 0.85
CALLS = 10
#: Bytes that a copy of float32 moves for each element.
COPIED = 8.0
#: The number of elements above which kernels take most of the time, and not Python.
LARGE = 1 << 28
#: Bytes that quantizing moves for each element: it reads a float32, and writes a code of one byte
#: and 1/32 of a scale.
_CODES = 5 + 1 / 32
_TESTS, _PATIENCE = "tests/engine/cuda", 480


def require() -> None:
    """Raise RuntimeError in one sentence unless there is a GPU, or numba's simulator."""
    if importlib.util.find_spec("numba_cuda") is None:
        raise RuntimeError("the question 'cuda' needs numba-cuda, which comes with: pip install -e \".[cuda]\"")
    from numba import cuda

    if not cuda.is_available():
        raise RuntimeError("the question 'cuda' needs a GPU that numba-cuda can use, and finds none")


def measure(session: Session) -> Cells:
    """Yield the cells: the device's properties, comparisons of its bits, and times."""
    require()
    yield from _device(session)
    yield from _libraries(session)
    yield from _equality(session)
    yield from _speed(session)
    yield from _suite(session)


def _device(session: Session) -> Cells:
    from numba import cuda
    from numba.cuda.core import config

    found = {"name": "numba's simulator"}
    if not config.ENABLE_CUDASIM:
        device = cuda.get_current_device()
        found = {
            "name": device.name.decode() if isinstance(device.name, bytes) else str(device.name),
            "compute capability": ".".join(map(str, device.compute_capability)),
            "multiprocessors": str(device.MULTIPROCESSOR_COUNT),
            "CUDA runtime": ".".join(map(str, cuda.runtime.get_version())),
        }
    before = session.known(DEVICE, "name", "device")
    if before is not None and before.text != found["name"]:
        raise RuntimeError(f"The interrupted run was on another device, {before.text}: leave out --resume.")
    for row, text in found.items():
        yield DEVICE, Measurement(row, "device", text=text)


# Bits


def _suite(session: Session) -> Cells:
    """Run the tests of the CUDA engine, as CI runs them in the simulator."""

    def run() -> Measurement:
        if session.quick:
            return Measurement(_TESTS, "passed", skipped="a quick run")
        workers = ["-n", str(_processes())] if importlib.util.find_spec("xdist") else []
        # Do not turn warnings of drivers into errors.
        options = ["-q", "-p", "no:benchmark", "-W", "default"]
        command = [sys.executable, "-m", "pytest", *options, _TESTS, *workers]
        try:
            done = subprocess.run(command, cwd=machine.ROOT, capture_output=True, text=True, timeout=_PATIENCE)
        except subprocess.TimeoutExpired:
            return Measurement(_TESTS, "passed", failed=f"not done after {_PATIENCE} s")
        last = (done.stdout.strip().splitlines() or [done.stderr.strip() or "the process printed nothing"])[-1].strip(
            "= "
        )
        failed = done.returncode != 0
        return Measurement(_TESTS, "passed", text="" if failed else last, failed=last if failed else "")

    yield session.cell(SUITE, _TESTS, "passed", run)


def _libraries(session: Session) -> Cells:
    count = 1 << 10 if session.quick else 1 << 24
    for name, on_stream in itertools.product(cuda_bits.LIBRARIES, (False, True)):
        column = "on a stream of its own" if on_stream else "arrays"
        yield session.cell(LIBRARIES, name, column, partial(_of_library, name, column, on_stream, count, session.seed))


def _of_library(name: str, column: str, on_stream: bool, count: int, seed: int) -> Measurement:
    try:
        number, wrong = cuda_bits.of_library(name, on_stream, count, seed)
    except ImportError as problem:
        return Measurement(name, column, skipped=str(problem))
    except Exception as problem:
        return Measurement(name, column, failed=f"{type(problem).__name__}: {problem}".splitlines()[0])
    return _said(name, column, number, wrong)


def _equality(session: Session) -> Cells:
    """Compare the bits of every format with the CPU.

    On a GPU each comparison runs in a process of its own, since each compiles its own kernels.
    """
    count, patterns = (1 << 12, 1 << 14) if session.quick else (1 << 22, 1 << 32)
    if session.sizes:
        count, patterns = min(session.sizes), 2 * min(session.sizes)
    every = list(cuda_bits.comparisons(count, patterns, session.seed))
    left = [one for one in every if session.known(EQUALITY, one.format, one.kind) is None]
    with _workers() as submit:
        answers = {one: submit(one.run) for one in left}
        for one in every:
            run = partial(_compared, one, answers.get(one))
            yield session.cell(EQUALITY, one.format, one.kind, run)


def _compared(one: cuda_bits.Comparison, answer: Any) -> Measurement:
    try:
        return _said(one.format, one.kind, *answer())
    except Exception as error:
        return Measurement(one.format, one.kind, failed=f"{type(error).__name__}: {error}".splitlines()[0])


def _said(row: str, column: str, compared: int, wrong: str) -> Measurement:
    return Measurement(row, column, text="" if wrong else f"{compared:,}", failed=wrong)


@contextmanager
def _workers() -> Iterator[Callable[[Callable[[], Any]], Callable[[], Any]]]:
    """Yield `start(function, ...)`, which runs a function in another process.

    `start` returns a function that waits for the result. In the simulator the function runs in this
    process.
    """
    from numba.cuda.core import config

    if config.ENABLE_CUDASIM:
        yield lambda run: run
        return
    # Each cell has a process of its own, since after an error of CUDA a process can no longer use
    # the GPU.
    pool = ProcessPoolExecutor(_processes(), multiprocessing.get_context("spawn"), max_tasks_per_child=1)
    try:
        yield lambda run: pool.submit(run).result
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def _processes() -> int:
    """Return the number of worker processes; each needs 3 GB on the host and on the GPU."""
    return max(1, min(14, (os.cpu_count() or 1) - 2))


# Speed


def _speed(session: Session) -> Cells:
    for size in session.sizes_or((1 << 26, 1 << 28), (1 << 20,)):
        x, out, copy = _arrays(data.normal(size, session.seed))
        for row, moved, limit, call in _calls(x, out):
            goal = limit if size >= LARGE else None
            case = Case(row, data.size_name(size), _queued(call), share=moved / COPIED, limit=goal)
            yield from session.compare(SPEED, _queued(copy), case)
        yield from session.compare(SPEED, _queued(copy), _torchao(x, data.size_name(size)))


def _arrays(x: Any) -> tuple[Any, Any, Callable[[], object]]:
    """Return the numbers on the GPU, a result array of the same size, and a function that copies.

    Arrays are those of CuPy if it finds a GPU, since their memory comes from a pool. numba asks the
    driver for memory at each call and frees memory in batches, which blocks all other work.
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
    """Return a case for torchao's conversion to codes, compiled by PyTorch."""
    row, share = "torchao to_mx mxfp8_e4m3, compiled", _CODES / COPIED
    try:
        import torch
        from torchao.prototype.mx_formats.mx_tensor import to_mx

        tensor = torch.as_tensor(x, device="cuda")
    except (ImportError, RuntimeError, AssertionError) as problem:
        return Case(row, column, None, skipped=str(problem).splitlines()[0])
    return Case(row, column, _queued(partial(torch.compile(to_mx), tensor, torch.float8_e4m3fn, 32)), share=share)


def _queued(call: Callable[[], object]) -> Callable[[], object]:
    """Return a function that queues several calls and then waits for all of them."""
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
    """Return a function that calls a method of `make()`, which runs once, at the first call."""
    kept = cache(make)
    return lambda: getattr(kept(), method)(**named)
