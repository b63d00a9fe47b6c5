"""Check that a GPU gives the same bits as the CPU."""

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
from functools import partial
from typing import Any

from benchmarks import cuda_bits, machine
from benchmarks.questions import Cells, Session
from benchmarks.record import Measurement, Table

TITLE = "Does a GPU give the same bits as the CPU?"
TEXT = """All results of the GPU are compared with results of the CPU. One table has the results for arrays of each
library, on the default stream and on a stream of their own. The next table has the outcome of the CUDA engine's tests.
The last table has the results for random numbers in every format and rounding, with varying types, scale rules,
overflow modes and layouts, and for packed codes, products, every 16-bit number, and every float32 bit pattern under
eight scales."""

DEVICE = Table("device", "The device", "", plot="none")
SUITE = Table("suite", "Tests", "", plot="none")
LIBRARIES = Table("libraries", "Elements of each library's arrays with the CPU's bits", "elements", plot="none")
EQUALITY = Table("equality", "Elements with the CPU's bits", "elements", plot="none")
_TESTS, _PATIENCE = "tests/engine/cuda", 480


def require() -> None:
    """Raise RuntimeError unless there is a GPU, or numba's simulator."""
    if importlib.util.find_spec("numba_cuda") is None:
        raise RuntimeError("the question 'cuda' needs numba-cuda, which comes with: pip install -e \".[cuda]\"")
    from numba import cuda

    if not cuda.is_available():
        raise RuntimeError("the question 'cuda' needs a GPU that numba-cuda can use, but there is none")


def measure(session: Session) -> Cells:
    """Yield the properties of the GPU, and the comparisons of its bits with the CPU's bits."""
    require()
    yield from device_of(session)
    yield from _libraries(session)
    yield from _suite(session)
    yield from _equality(session)


def device_of(session: Session) -> Cells:
    """Yield the device's properties."""
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
        raise RuntimeError(f"The interrupted run used another device, {before.text}; leave out --resume.")
    for row, text in found.items():
        yield DEVICE, Measurement(row, "device", text=text)


def _suite(session: Session) -> Cells:
    """Run the tests of the CUDA engine; CI runs the same tests in numba's simulator."""

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
    """Compare the GPU's bits with the CPU's bits in every format.

    On a GPU, each comparison compiles its own kernels and runs in its own process.
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
    """Yield a function `start(function)`, which runs a function in another process.

    `start` returns a function that waits for the result. In numba's simulator the function runs in
    the calling process.
    """
    from numba.cuda.core import config

    if config.ENABLE_CUDASIM:
        yield lambda run: run
        return
    # Each cell has its own process, because a process cannot use the GPU after a CUDA error.
    pool = ProcessPoolExecutor(_processes(), multiprocessing.get_context("spawn"), max_tasks_per_child=1)
    try:
        yield lambda run: pool.submit(run).result
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def _processes() -> int:
    """Return the number of worker processes; each needs 3 GB on the host and 3 GB on the GPU."""
    return max(1, min(14, (os.cpu_count() or 1) - 2))
