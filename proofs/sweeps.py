"""Run an array loop over every bit pattern, with saved progress and a record of finished sweeps.

The state of a sweep is a small file under ``proofs/.cache``, named after the sweep. The state holds
a hash of the kernel, the reference and the versions of the tools. If the hash changes, the sweep
starts over. Finished sweeps are also recorded in ``proofs/sweeps.json``, which is committed.
"""

from __future__ import annotations

import ast
import fcntl
import hashlib
import inspect
import json
import os
import platform
import textwrap
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from datetime import date
from pathlib import Path
from types import FunctionType
from typing import Any

import llvmlite
import numba
import numpy as np

from mxnum.engine.machine.jit import _compile_select, compile_loop
from proofs.specs.runs import Array, Runs

STATES = Path(__file__).parent / ".cache" / "sweeps"
RECORD = Path(__file__).parent / "sweeps.json"
#: Patterns per call of the loop, few enough for input and output to stay in the second-level cache.
CHUNK = 1 << 17
#: Seconds after which the state is saved again.
SAVE_EVERY = 2.0

#: The time at which this process started. If a source file was changed after this time, the process
#: may have loaded an older version of the file.
STARTED = time.time()

#: `evaluate(patterns, results)` writes the result of each pattern; patterns are signed integers.
Evaluate = Callable[[Array, Array], None]


@dataclass(frozen=True)
class Sweep:
    """A sweep: a compiled loop, and the right results for the input patterns 0, 1, 2, ..."""

    name: str
    #: The signed integer type of the input; patterns are counted as unsigned integers.
    dtype: str
    #: A function that compiles the loop and returns a pair. The first item is a function that calls
    #: the loop on consecutive patterns. The second item is the loop, whose hash (`kernel_hash`) is
    #: stored in the record.
    prepare: Callable[[], tuple[Evaluate, Any]]
    reference: Callable[[], Runs]


@dataclass(frozen=True)
class State:
    """The progress of a sweep; `first_mismatch` is (pattern, expected result, actual result)."""

    key: str
    kernel_hash: str
    end: int
    next: int = 0
    mismatches: int = 0
    first_mismatch: tuple[int, int, int] | None = None
    seconds: float = 0.0
    finished_on: str = ""

    @property
    def finished(self) -> bool:
        return self.next == self.end


def versions() -> dict[str, str]:
    """Return the tool versions and the processor type, on which a loop's machine code depends."""
    return {
        "python": platform.python_version(),
        "numpy": np.__version__,
        "numba": numba.__version__,
        "llvmlite": llvmlite.__version__,
        "machine": platform.machine(),
    }


def kernel_hash(function: Any) -> str:
    """Return a hash of a function's source, factory constants, and the mxnum code that it calls.

    The hash ignores comments, docstrings and code that the function does not reach. The hash of a
    compiled loop also covers the compile options.
    """
    texts: list[str] = []
    seen: set[int] = set()

    def visit(value: Any) -> str:
        value = getattr(value, "py_func", value)
        if not isinstance(value, FunctionType):
            return repr(value) if isinstance(value, int | str | None) else type(value).__name__
        if not value.__module__.startswith("mxnum.") or id(value) in seen:
            return value.__qualname__
        seen.add(id(value))
        used = inspect.getclosurevars(value)
        constants = {**used.globals, **used.nonlocals}
        texts.append(_code_text(value))
        texts.extend(f"{name} = {visit(item)}" for name, item in sorted(constants.items()))
        return value.__qualname__

    for each in getattr(function, "functions", (function,)):
        visit(each)
    texts += [_code_text(compile_loop), _code_text(_compile_select)]
    return hashlib.sha256("\n".join(texts).encode()).hexdigest()[:16]


def _code_text(function: FunctionType | Callable[..., Any]) -> str:
    file = inspect.getfile(function)
    if os.path.getmtime(file) > STARTED:
        raise RuntimeError(
            f"{os.path.basename(file)} has changed since it was loaded, so the loaded code may differ from the file"
        )
    tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and ast.get_docstring(node) is not None and len(node.body) > 1:
            del node.body[0]
    return ast.unparse(tree)


def run(sweep: Sweep) -> State:
    """Run the sweep to its end and return its state.

    If the kernel, the reference and the tool versions are unchanged, the sweep continues from the
    state on disk. Otherwise, the sweep starts over.
    """
    runs = sweep.reference()
    evaluate, loop = sweep.prepare()
    state = _fresh(runs, kernel_hash(loop))
    path = STATES / (sweep.name.replace("/", ".") + ".json")
    if (found := _load(path)) is not None and found.key == state.key:
        state = found
    bits = np.empty(CHUNK, sweep.dtype)
    ramp = np.arange(CHUNK, dtype=sweep.dtype)
    results = np.empty(CHUNK, np.uint8)
    started = saved = time.monotonic()
    begun_at, seconds_before = state.next, state.seconds
    try:
        while not state.finished:
            count = min(CHUNK, runs.end - state.next)
            np.add(ramp, np.array([state.next], np.uint64).astype(sweep.dtype), out=bits)
            evaluate(bits[:count], results[:count])
            state = _compared(state, runs, results[:count])
            now = time.monotonic()
            if now - saved > SAVE_EVERY:
                saved = now
                state = replace(state, seconds=seconds_before + now - started)
                _save(path, state)
    finally:
        if state.next > begun_at:
            finished_on = date.today().isoformat() if state.finished else ""
            state = replace(state, seconds=seconds_before + time.monotonic() - started, finished_on=finished_on)
            _save(path, state)
    return state


def _fresh(runs: Runs, kernel: str) -> State:
    key = hashlib.sha256(json.dumps([kernel, runs.end, versions()]).encode())
    key.update(runs.starts.tobytes() + runs.values.tobytes())
    return State(key.hexdigest()[:16], kernel, runs.end)


def _compared(state: State, runs: Runs, results: Array) -> State:
    """Compare the results for the next patterns, and return the new state."""
    run = int(np.searchsorted(runs.starts, state.next, side="right")) - 1
    mismatches, place, expected = count_mismatches(results, state.next, runs.starts, runs.values, run)
    first = state.first_mismatch
    if mismatches and first is None:
        first = state.next + place, expected, int(results[place])
    return replace(
        state, next=state.next + results.size, mismatches=state.mismatches + mismatches, first_mismatch=first
    )


@numba.njit(cache=True)
def count_mismatches(results, first, starts, values, run):  # type: ignore[no-untyped-def]
    """Return (number of mismatches, index of the first mismatch, expected result at this index).

    `results[i]` is the result for the pattern `first + i`. The arrays `starts` and `values` hold
    the expected results as runs of patterns with equal results (see `Runs`). The argument `run` is
    the index of the run to which the pattern `first` belongs.
    """
    mismatches, place, expected = 0, -1, 0
    begin = 0
    while begin < results.size:
        stop = results.size
        if run + 1 < starts.size:
            stop = min(stop, starts[run + 1] - first)
        value = values[run]
        different = 0
        for i in range(begin, stop):
            different += results[i] != value
        if different and place < 0:
            for i in range(begin, stop):
                if results[i] != value:
                    place, expected = i, value
                    break
        mismatches += different
        begin = stop
        run += 1
    return mismatches, place, expected


def _load(path: Path) -> State | None:
    try:
        fields = json.loads(path.read_text())
        first = fields.pop("first_mismatch")
        return State(**fields, first_mismatch=None if first is None else tuple(first))
    except (OSError, ValueError, TypeError, KeyError):
        return None  # no state, or a state of an older layout: start over


def _save(path: Path, state: State) -> None:
    _write(path, asdict(state))


def _write(path: Path, content: Any) -> None:
    """Replace the file in one step, so that an interruption leaves the old or the new text."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f"{path.name}.{os.getpid()}")
    temporary.write_text(json.dumps(content, indent=1, sort_keys=True) + "\n")
    os.replace(temporary, path)


def read_record(path: Path | None = None) -> dict[str, dict[str, Any]]:
    """Return the finished sweeps by name.

    Each entry has the keys inputs, mismatches, seconds, date, versions and kernel_hash.
    """
    path = path or RECORD
    return {entry["name"]: entry for entry in json.loads(path.read_text())["sweeps"]} if path.exists() else {}


def add_to_record(name: str, state: State, path: Path | None = None) -> None:
    """Record a finished sweep in place of its earlier entry."""
    path = path or RECORD
    with _alone(path):
        entries = read_record(path)
        entries[name] = {
            "name": name,
            "inputs": state.end,
            "mismatches": state.mismatches,
            "seconds": round(state.seconds, 1),
            "date": state.finished_on,
            "versions": versions(),
            "kernel_hash": state.kernel_hash,
        }
        _write(path, {"sweeps": [entries[key] for key in sorted(entries)]})


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    """Lock the record in a `with` statement, since several processes may finish sweeps at once."""
    lock = STATES / f"{path.name}.lock"
    lock.parent.mkdir(parents=True, exist_ok=True)
    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
