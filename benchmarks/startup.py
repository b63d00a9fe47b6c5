"""Time imports, and first calls of functions, with and without compiled code on disk."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections import defaultdict
from importlib.util import find_spec
from pathlib import Path
from time import perf_counter

import numpy as np

from benchmarks import child, timing
from benchmarks.questions import Cells, Session
from benchmarks.record import Measurement, Table

TITLE = "What does the first call cost?"
TEXT = """Each measurement runs in a fresh process: *cold* starts with an empty folder for compiled code, and *warm*
with the folder that the cold process filled. The baseline is the import of numba in the same process, after numpy and
mxnum are imported and before the first call. SciPy is hidden from both processes, because `pip install mxnum` does not
install it. If SciPy is installed, numba imports a part of SciPy at its first call; *warm, SciPy there* includes this
time. The goals are in seconds (warm at most 0.2, cold at most 3 for the common path), so a second table shows seconds;
they hold for this machine only. *Whole commands* are fresh processes from start to end, as a new user waits for them,
with SciPy and torch if they are installed. Their baseline is a process that imports only numpy."""

GOALS = {"warm": 0.2, "cold": 3.0}
WITH_SCIPY = "warm, SciPy there"
#: The first calls that must also reach a goal in a cold process (without compiled code on disk).
COMMON = ("quantize", "fake_quantize", "quantize and dequantize")


_QUANTIZED = "import numpy as np, mxnum as mx; x = np.linspace(-3, 3, 4096, dtype=np.float32).reshape(64, 64); "
_EMULATED = """
import torch, mxnum.torch as mxt
model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 8))
mxt.emulate(model, "mxfp8_e4m3")
optimizer = torch.optim.SGD(model.parameters(), 0.1)
model(torch.randn(32, 64)).square().mean().backward()
optimizer.step()
"""
#: The arguments with which Python runs each whole command. `FILE` stands for the path of an array
#: of 16,384 numbers.
WHOLE = {
    "quantize": ("-c", _QUANTIZED + "mx.quantize(x, 'mxfp8_e4m3')"),
    "matmul of two quantized arrays": (
        "-c", _QUANTIZED + "mx.matmul(mx.quantize(x, 'mxfp4_e2m1'), mx.quantize(x, 'mxfp4_e2m1', axis=0))",
    ),
    "mxnum explore": ("-m", "mxnum", "explore", "FILE"),
    "emulate and one step": ("-c", _EMULATED),
}  # fmt: skip


def measure(session: Session) -> Cells:
    """Yield a row for each import, each first call and each whole command."""
    yield from _first_calls(session)
    yield from _whole_commands(session)


def _whole_commands(session: Session) -> Cells:
    ratios = Table("whole_ratios", "Whole commands, relative to importing only numpy", "× a process that imports numpy")
    seconds = Table("whole", "Whole commands, seconds on this machine", "seconds")
    for name in ("quantize",) if session.quick else tuple(WHOLE):
        found: dict[str, list[tuple[float, float]]] = {"cold": [], "warm": []}
        try:
            for _ in range(1 if session.quick else 3):
                with tempfile.TemporaryDirectory() as folder:
                    file = str(Path(folder) / "x.npy")
                    np.save(
                        file, np.random.default_rng(session.seed).standard_normal(1 << 14, np.float32).reshape(128, -1)
                    )
                    command = [file if part == "FILE" else part for part in WHOLE[name]]
                    for state in found:
                        baseline = _seconds(["-c", "import numpy"], folder)
                        found[state].append((_seconds(command, folder), baseline))
        except child.ChildError as error:
            yield seconds, Measurement(name, "cold", failed=str(error))
            continue
        for state, pairs in found.items():
            yield ratios, _cell(name, state, [took / baseline for took, baseline in pairs])
            yield seconds, _cell(name, state, [took for took, _ in pairs])


def _seconds(arguments: list[str], folder: str) -> float:
    """Run a Python process that keeps compiled code in `folder`; return its duration in seconds."""
    path = os.pathsep.join(filter(None, [str(child.ROOT), os.environ.get("PYTHONPATH", "")]))
    environment = {**os.environ, "PYTHONPATH": path, "NUMBA_CACHE_DIR": folder}
    started = perf_counter()
    done = subprocess.run([sys.executable, *arguments], env=environment, capture_output=True, text=True)
    if done.returncode:
        raise child.ChildError((done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1])
    return perf_counter() - started


def _first_calls(session: Session) -> Cells:
    ratios = Table("ratios", "Relative to the import of numba", "× import numba in the same process")
    seconds = Table("seconds", "Seconds on this machine", "seconds")
    names = ("quantize",) if session.quick else tuple(child.FIRST_CALLS)
    imports: dict[str, list[dict[str, float]]] = defaultdict(list)
    for name in names:
        states = ("cold", "warm", *((WITH_SCIPY,) if find_spec("scipy") else ()))
        runs: dict[str, list[dict[str, float]]] = {state: [] for state in states}
        try:
            for _ in range(1 if session.quick else 3):
                with tempfile.TemporaryDirectory() as folder:
                    for state in runs:
                        scipy = () if state == WITH_SCIPY else ("without", "scipy")
                        runs[state].append(child.call("start", name, *scipy, NUMBA_CACHE_DIR=folder))
        except child.ChildError as error:
            yield ratios, Measurement(f"first {name}", "cold", failed=str(error))
            continue
        for state, found in runs.items():
            imports[state] += found
            goal = GOALS.get(state) if state == "warm" or name in COMMON else None
            first = [laps["first"] for laps in found]
            yield ratios, _cell(f"first {name}", state, _over_numba(found, "first"))
            yield seconds, _cell(f"first {name}", state, first, goal)
    for state, found in imports.items():
        for lap in ("import numpy", "import mxnum", "import numba"):
            if lap != "import numba":
                yield ratios, _cell(lap, state, _over_numba(found, lap))
            yield seconds, _cell(lap, state, [laps[lap] for laps in found])


def _over_numba(found: list[dict[str, float]], lap: str) -> list[float]:
    return [laps[lap] / laps["import numba"] for laps in found]


def _cell(row: str, column: str, values: list[float], limit: float | None = None) -> Measurement:
    s = timing.spread(values)
    return Measurement(row, column, s.median, s.low, s.high, s.repetitions, limit=limit)
