"""Imports, and the first call of a function with and without compiled code on disk."""

from __future__ import annotations

import tempfile
from collections import defaultdict
from importlib.util import find_spec

from benchmarks import child, timing
from benchmarks.questions import Cells, Session
from benchmarks.record import Measurement, Table

TITLE = "What does the first call cost?"
TEXT = """Fresh processes, in alternation: *cold* with an empty folder for compiled code, *warm* with the folder that
the cold one filled. The baseline is the import of numba in the same process, after numpy and mxnum are imported and
before the first call. Both are as after `pip install mxnum`, without SciPy; where SciPy is installed, numba imports
some of it at its first call: *warm, SciPy there*. The goals are in seconds (warm at most 0.2, cold at most 3 for the
common path), so seconds are shown too; unlike the ratios they hold for this machine only."""

GOALS = {"warm": 0.2, "cold": 3.0}
WITH_SCIPY = "warm, SciPy there"
#: The common path, which alone has goals for cold calls.
COMMON = ("quantize", "fake_quantize", "quantize and dequantize")


def measure(session: Session) -> Cells:
    """Yield a line for each import and each first call."""
    ratios = Table("ratios", "Beside the import of numba", "× import numba in the same process")
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
