"""Measure the time of first calls, and memory use, in fresh processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import Any

ROOT = Path(__file__).parents[1]


class ChildError(RuntimeError):
    """Raised if a fresh process ended with an error."""


def call(*arguments: str, **environment: str) -> dict[str, Any]:
    """Run this module with the arguments in a fresh process, and return the JSON that it prints."""
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")]))
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.child", *arguments],
        env={**os.environ, "PYTHONPATH": path, "NUMBA_NUM_THREADS": "1", **environment},
        capture_output=True,
        text=True,
    )
    if done.returncode:
        raise ChildError((done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1])
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def _first_calls() -> dict[str, Callable[[Any, Any], object]]:
    def product(mx: Any, x: Any) -> object:
        return mx.matmul(mx.quantize(x, "mxfp8_e4m3"), mx.quantize(x, "mxfp8_e4m3").T)

    return {
        "quantize": lambda mx, x: mx.quantize(x, "mxfp8_e4m3"),
        "fake_quantize": lambda mx, x: mx.fake_quantize(x, "mxfp8_e4m3"),
        "quantize and dequantize": lambda mx, x: mx.quantize(x, "mxfp8_e4m3").dequantize(),
        "quantize, sr": lambda mx, x: mx.quantize(x, "mxfp8_e4m3", rounding="sr", seed=1),
        "quantize and pack": lambda mx, x: mx.quantize(x, "mxfp4_e2m1").pack(),
        "quantize both, matmul, block": product,
    }


#: For each row of the table, the function whose first call is timed.
FIRST_CALLS = _first_calls()


def _start(name: str, _: str = "without", hidden: str | None = None) -> dict[str, float]:
    """Return the seconds that the imports of numpy, mxnum and numba and a first call take.

    If `hidden` is given, an import of the package `hidden` fails, as if it were not installed.
    """
    if hidden is not None:
        sys.modules[hidden] = None  # type: ignore[assignment]
    times = [perf_counter()]

    def lap() -> None:
        times.append(perf_counter())

    import numpy as np

    lap()
    import mxnum as mx

    lap()
    import numba  # noqa: F401

    lap()
    x = np.linspace(-3, 3, 4096, dtype=np.float32).reshape(64, 64)
    times[-1] = perf_counter()
    FIRST_CALLS[name](mx, x)
    lap()
    laps = ("import numpy", "import mxnum", "import numba", "first")
    return {lap: b - a for lap, a, b in zip(laps, times, times[1:], strict=False)}


#: Two functions for each row of the table. The first makes x from an array of float32 values. The
#: memory use of the second is measured.
MEMORY: dict[str, tuple[Callable[[Any], Any], Callable[[Any, Any], Any]]] = {
    "quantize": (lambda x: x, lambda mx, x: mx.quantize(x, "mxfp8_e4m3")),
    "fake_quantize": (lambda x: x, lambda mx, x: mx.fake_quantize(x, "mxfp8_e4m3")),
    "quantize, rtz": (lambda x: x, lambda mx, x: mx.quantize(x, "mxfp8_e4m3", rounding="rtz")),
    "quantize, sr, seed=": (lambda x: x, lambda mx, x: mx.quantize(x, "mxfp8_e4m3", rounding="sr", seed=1)),
    "quantize along columns": (lambda x: x, lambda mx, x: mx.quantize(x, "mxfp8_e4m3", axis=0)),
    "quantize Fortran order": (lambda x: x.T, lambda mx, x: mx.quantize(x, "mxfp8_e4m3")),
    "quantize every other row": (lambda x: x[::2], lambda mx, x: mx.quantize(x, "mxfp8_e4m3")),
    "quantize float64": (lambda x: x.astype("float64"), lambda mx, x: mx.quantize(x, "mxfp8_e4m3")),
    "quantize float16": (lambda x: x.astype("float16"), lambda mx, x: mx.quantize(x, "mxfp8_e4m3")),
    "quantize, nonfinite element": (lambda x: x, lambda mx, x: mx.quantize(x, "mxfp8_e4m3", nonfinite="element")),
    "quantize, offset": (lambda x: x, lambda mx, x: mx.quantize(x, "mxfp8_e4m3", offset="float16")),
    "fake_quantize along columns": (lambda x: x, lambda mx, x: mx.fake_quantize(x, "mxfp8_e4m3", axis=0)),
    "fake_quantize, rtz": (lambda x: x, lambda mx, x: mx.fake_quantize(x, "mxfp8_e4m3", rounding="rtz")),
}


def _memory(name: str, size: str, seed: str) -> dict[str, Any]:
    """Return the peak memory in MiB, without input and result, by tracemalloc and by the system."""
    prepare, function = MEMORY[name]  # before the imports, so that an unknown name fails at once
    import tracemalloc

    import mxnum as mx
    from benchmarks.data import normal, one_thread

    one_thread()
    function(mx, prepare(normal(1 << 16, int(seed))))  # the first call compiles
    x = prepare(normal(int(size), int(seed)))
    tracemalloc.start()
    result = function(mx, x)
    traced = tracemalloc.get_traced_memory()[1] - result.nbytes
    tracemalloc.stop()
    del result
    try:
        Path("/proc/self/clear_refs").write_text("5")  # the value 5 resets the recorded peak memory
        before = _status("VmRSS")
        result = function(mx, x)
        seen: Any = (_status("VmHWM") - before - result.nbytes) / 2**20
    except (OSError, KeyError):
        seen = "this system does not report peak memory"
    return {"traced": traced / 2**20, "seen by the system": seen}


def _status(field: str) -> int:
    """Return a field of /proc/self/status in bytes."""
    lines = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(lines[field].split()[0]) * 1024


if __name__ == "__main__":
    what, *rest = sys.argv[1:]
    print(json.dumps(_start(*rest) if what == "start" else _memory(*rest)))
