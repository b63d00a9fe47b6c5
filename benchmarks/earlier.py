"""Compare the speed with an earlier version of the sources, each version in its own process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from functools import lru_cache, partial
from math import ceil
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

import mxnum as mx
from benchmarks import timing
from benchmarks.data import OCP, Array, normal, one_thread, size_name
from benchmarks.questions import Cells, Session
from benchmarks.record import Measurement, Table

ROOT = Path(__file__).parents[1]
TITLE = "Are common calls as fast as in another version?"
TEXT = """`MXNUM_EARLIER` names a checkout of the other version. Two processes, one for each version, make the same
calls in alternation, on one thread. Except in small calls, results are always written to the same memory. Each number
is the time of this version divided by the time of the other version. Several pairs of processes are measured, because
the addresses of a process's memory affect its times. Unless a row says otherwise, calls use float32, E4M3, blocks of 32
along rows, rounding to nearest even and floor scales."""

Function = Callable[[], object]
#: Each row is measured `PAIRS` times, in new processes of both versions. Calls on at most `SMALL`
#: elements allocate their results.
PAIRS, SMALL = 3, 4096
_PLACE, _E4M3 = "MXNUM_EARLIER", "mxfp8_e4m3"
#: The largest accepted ratio of the two times: `COMMON` for most rows, and `LIMITS` for rows that
#: may take longer.
COMMON, LIMITS = 1.05, {"float64": 1.5, "float16": 1.5, "packed, 4 bits": 1.3, "packed, 6 bits": 1.3}

#: The arguments of `quantize` for each row whose settings differ from the usual ones.
_OPTIONS: dict[str, dict[str, Any]] = {
    **{name: {"format": name} for name in OCP},
    **{f"blocks of {size}": {"block_size": size} for size in (16, 64, 128)},
    **{f"columns, blocks of {size}": {"axis": 0, "block_size": size} for size in (16, 32, 64, 128)},
    **{f"tiles {size} × {size}": {"block_shape": (size, size)} for size in (16, 32, 64, 128)},
    **{f"rounding {name}": {"rounding": name} for name in ("rna", "rtz", "rtp", "rtn", "rto")},
    **{f"scale_rule {name}": {"scale_rule": name} for name in ("ceil", "even", "rceil")},
    "rounding sr, seed=": {"rounding": "sr", "seed": 7},
    "packed, 4 bits": {"format": "mxfp4_e2m1", "packed": True},
    "packed, 6 bits": {"format": "mxfp6_e2m3", "packed": True},
}
#: For each row whose input differs from the usual float32 array in type or layout: the function
#: that converts the usual array to this input.
_ARRAYS: dict[str, Callable[[Array], Array]] = {
    "bfloat16": lambda x: x.astype(ml_dtypes.bfloat16),
    "float64": lambda x: x.astype(np.float64),
    "float16": lambda x: x.astype(np.float16),
    "Fortran order": np.asfortranarray,
    "every other row": lambda x: np.repeat(x, 2, axis=0)[::2],
}
_WORDS = "rounding sr, random_bits="
_ALL = (*_OPTIONS, *_ARRAYS, _WORDS)
_FEWER = (
    *OCP, "columns, blocks of 32", "tiles 32 × 32", "rounding rtz", "rounding sr, seed=", "bfloat16", "Fortran order",
    "packed, 4 bits",
)  # fmt: skip
#: A mapping from the number of elements to the rows that are measured.
_LINES = {1 << 24: _FEWER, 1 << 20: _ALL, 1 << 16: _FEWER, 4096: (_E4M3,), 16: (_E4M3,)}


def functions(size: int, line: str, seed: int) -> dict[str, Function]:
    """Return the functions to time, as a mapping from the names of their columns.

    `line` is the name of the row, which selects the settings, or the type or layout of the input.
    """
    x = _normal(size, seed)
    x = _ARRAYS[line](x) if line in _ARRAYS else x
    options = {"format": _E4M3, **_OPTIONS.get(line, {})}
    if line == _WORDS:
        words = np.random.default_rng(seed).integers(0, 1 << 32, x.shape, dtype=np.uint32)
        options |= {"rounding": "sr", "random_bits": words}
    of_values = {name: value for name, value in options.items() if name != "packed"}
    q, dtype = mx.quantize(x, **options), x.dtype.name
    of_codes: dict[str, Any] = {}
    into: dict[str, Any] = {}
    # Large results are always written to the same arrays, because mapping new pages of memory can
    # take as long as the loops.
    if size > SMALL:
        of_codes, into = {"out": q}, {"out": np.empty_like(x)}
    found: dict[str, Function] = {"quantize": partial(mx.quantize, x, **options, **of_codes)}
    if of_values == options:
        found["fake_quantize"] = partial(mx.fake_quantize, x, **options, **into)
    if not {"rounding", "scale_rule"} & set(options):
        found["dequantize"] = partial(q.dequantize, dtype, **into)
    return found


def products(length: int, seed: int) -> dict[str, Function]:
    """Return a dictionary with one function to time, which multiplies two square matrices."""
    a, b = (mx.quantize(normal(length * length, seed + i).reshape(length, length), _E4M3) for i in (1, 2))
    return {"matmul": partial(mx.matmul, a, b.T)}


@lru_cache(maxsize=1)
def _normal(size: int, seed: int) -> Array:
    return normal(size, seed) if size % 32 == 0 else normal(32, seed).ravel()[:size]


def require() -> None:
    """Raise ValueError unless `MXNUM_EARLIER` names a checkout of another version."""
    place = Path(os.environ.get(_PLACE, ""))
    if not (os.environ.get(_PLACE) and (place / "mxnum" / "__init__.py").exists()):
        raise ValueError(
            f"The question 'earlier' needs the environment variable {_PLACE} with the path of a checkout of another "
            "version. This command makes a checkout: git worktree add PATH COMMIT"
        )


def measure(session: Session) -> Cells:
    """Yield the cells of one table for each size, and then those of a table of matrix products."""
    lengths = () if session.sizes else (512,) if session.quick else (512, 1024, 2048)
    for size in session.sizes_or(tuple(_LINES), (1 << 16,)):
        table = Table(f"size_{size}", f"{size_name(size)} elements", "× the earlier state")
        for line in _LINES.get(size, _FEWER):
            yield from _compared(table, ("functions", size, line), line, session)
    table = Table("products", "Products of square matrices", "× the earlier state")
    for length in lengths:
        yield from _compared(table, ("products", length), str(length), session)


class _State:
    """A process that runs one version of the package; questions and answers are lines of JSON."""

    def __init__(self, checkout: Path) -> None:
        start = (
            "import sys; sys.path.insert(0, sys.argv[1]); import mxnum; sys.path[0] = sys.argv[2]; "
            "from benchmarks.earlier import serve; serve(sys.argv[1])"
        )
        command = [sys.executable, "-c", start, str(checkout), str(ROOT)]
        environment = {**os.environ, "NUMBA_NUM_THREADS": "1"}
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )

    def __enter__(self) -> _State:
        return self

    def __exit__(self, *error: object) -> None:
        self._process.communicate()

    def ask(self, *question: Any) -> Any:
        """Return the answer to a question; raise RuntimeError if the answer is an error."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(question) + "\n")
        self._process.stdin.flush()
        told = self._process.stdout.readline()
        answer = json.loads(told) if told else {"error": f"the process ended with status {self._process.wait()}"}
        if "error" in answer:
            raise RuntimeError(answer["error"])
        return answer["found"]


def serve(checkout: str) -> None:
    """Answer the questions of `_State.ask`, in the process that runs one version.

    A question "functions" or "products" prepares functions to time; the answer lists their columns.
    A question "time" calls the function of a column several times; the answer is the time of all
    these calls in nanoseconds.
    """
    assert Path(mx.__file__).is_relative_to(checkout), mx.__file__
    one_thread()
    prepared: dict[str, Function] = {}
    for text in sys.stdin:
        what, *rest = json.loads(text)
        try:
            found: Any
            if what == "time":
                column, calls = rest
                found = timing.timed(prepared[column], calls)
            else:
                prepared.clear()
                prepared |= functions(*rest) if what == "functions" else products(*rest)
                found = list(prepared)
            answer = {"found": found}
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), flush=True)


def _compared(table: Table, prepare: tuple[Any, ...], row: str, session: Session) -> Cells:
    """Yield the cells of one row of the table."""
    found: dict[str, list[float]] = {}
    try:
        for _ in range(1 if session.quick else PAIRS):
            with _State(Path(os.environ[_PLACE]).resolve()) as earlier, _State(ROOT) as now:
                earlier.ask(*prepare, session.seed)
                for column in now.ask(*prepare, session.seed):
                    ratios = _ratios(partial(earlier.ask, "time", column), partial(now.ask, "time", column), session)
                    found.setdefault(column, []).extend(ratios)
    except RuntimeError as problem:
        yield table, Measurement(row, "quantize", failed=str(problem))
        return
    for column, ratios in found.items():
        s, limit = timing.spread(ratios), LIMITS.get(row, None if row == "every other row" else COMMON)
        yield table, Measurement(row, column, s.median, s.low, s.high, s.repetitions, limit=limit)


def _ratios(earlier: Callable[[int], int], now: Callable[[int], int], session: Session) -> list[float]:
    """Return, for each round, this version's time divided by the earlier version's time.

    The order of the versions alternates from round to round. A round takes a few milliseconds.
    """
    earlier(1), now(1)  # the first calls compile
    calls = ceil(3e6 / max(1, earlier(1)))
    found: list[float] = []
    spent = 0
    while len(found) < session.rounds and (len(found) < session.least or spent < session.seconds * 1e9):
        order = (earlier, now) if len(found) % 2 else (now, earlier)
        times = {state: state(calls) for state in order}
        spent += sum(times.values())
        found.append(times[now] / times[earlier])
    return found
