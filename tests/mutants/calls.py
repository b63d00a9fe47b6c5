"""A pytest plugin that records each test's time and the library functions that the test calls.

``python -m pytest -p tests.mutants.calls --calls FILE`` writes records of the tests that passed.
Functions that a fixture calls before the first test of a file count as called by every test of that
file.
"""

from __future__ import annotations

import json
import sys
import threading
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import pytest

LIBRARY = str(Path(__file__).parents[2] / "mxnum")


@dataclass(frozen=True)
class Test:
    """The functions that a test calls, each as "file:qualified name", and the test's seconds."""

    __test__ = False
    called: frozenset[str]
    seconds: float = 0.0


Calls = dict[str, Test]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--calls", metavar="FILE", help="record which test calls which function of the library")


def pytest_configure(config: pytest.Config) -> None:
    if path := config.getoption("calls"):
        config.pluginmanager.register(Recorder(Path(path)))


class Recorder:
    """A pytest plugin that records the code objects called in each phase of each test."""

    def __init__(self, path: Path) -> None:
        self._path, self._current = path, set[CodeType]()
        self._by_test: dict[str, set[str]] = defaultdict(set)
        #: The seconds of each test that passed.
        self._seconds: dict[str, float] = {}
        _register_pauses()

    def _note(self, frame: FrameType, event: str, argument: Any) -> None:
        if event == "call":
            self._current.add(frame.f_code)

    def _recorded(self, name: str) -> Iterator[None]:
        self._current = set()
        # `_note` returns None, so Python calls it for each function call, but not for each line.
        threading.settrace(self._note)
        sys.settrace(self._note)
        yield
        sys.settrace(None)
        threading.settrace(None)  # type: ignore[arg-type]  # None ends it, as for sys.settrace
        self._by_test[name] |= {
            f"{code.co_filename.removeprefix(LIBRARY)}:{code.co_qualname}"
            for code in self._current
            if code.co_filename.startswith(LIBRARY)
        }

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> Iterator[None]:
        yield from self._recorded(item.nodeid.split("::")[0])

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Iterator[None]:
        yield from self._recorded(item.nodeid)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" and report.passed:
            self._seconds[report.nodeid] = round(report.duration, 3)

    def pytest_sessionfinish(self) -> None:
        names = sorted(set().union(*self._by_test.values()))
        index = {name: i for i, name in enumerate(names)}
        tests = {name: sorted(index[one] for one in called) for name, called in self._by_test.items()}
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._path.write_text(json.dumps({"functions": names, "seconds": self._seconds, "tests": tests}))


def _register_pauses() -> None:
    """Stop tracing while numba compiles, because tracing slows the compiler down."""
    from numba.core import event

    class Pauses(event.Listener):
        depth, paused = 0, None

        def on_start(self, _: Any) -> None:
            if self.depth == 0:
                self.paused = sys.gettrace()
                sys.settrace(None)
            self.depth += 1

        def on_end(self, _: Any) -> None:
            self.depth -= 1
            if self.depth == 0:
                sys.settrace(self.paused)

    event.register("numba:compile", Pauses())


def read(folder: Path) -> Calls:
    """Return the functions that each test calls, from the records (.json files) of a folder."""
    merged: Calls = {}
    for path in sorted(folder.glob("*.json")):
        record = json.loads(path.read_text())
        calls = {test: {record["functions"][i] for i in called} for test, called in record["tests"].items()}
        for test, seconds in record["seconds"].items():
            called = calls.get(test, set()) | calls.get(test.split("::")[0], set())
            merged[test] = Test(frozenset(called), seconds)
    return merged
