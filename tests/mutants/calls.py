"""A pytest plugin that records which functions of the library each test calls.

``python -m pytest -p tests.mutants.calls --calls FOLDER`` writes one file for each process. What a
fixture calls before the first test of a file counts for every test of that file.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import pytest

LIBRARY = str(Path(__file__).parents[2] / "mxnum")

#: For each test the functions that it calls, as "file:line" of the first line of the function.
Calls = dict[str, set[str]]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--calls", metavar="FOLDER", help="record which test calls which function of the library")


def pytest_configure(config: pytest.Config) -> None:
    if folder := config.getoption("calls"):
        config.pluginmanager.register(Recorder(Path(folder)))


class Recorder:
    """Records the code objects that are called in each phase of each test."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._current = folder, set[CodeType]()
        self._by_test: dict[str, set[str]] = defaultdict(set)

    def _note(self, frame: FrameType, event: str, argument: Any) -> None:
        if event == "call":
            self._current.add(frame.f_code)

    def _recorded(self, name: str) -> Iterator[None]:
        self._current = set()
        # A trace function that returns None is called for calls alone, not for lines.
        threading.settrace(self._note)
        sys.settrace(self._note)
        yield
        sys.settrace(None)
        threading.settrace(None)  # type: ignore[arg-type]  # None ends it, as for sys.settrace
        self._by_test[name] |= {
            f"{code.co_filename.removeprefix(LIBRARY)}:{code.co_firstlineno}"
            for code in self._current
            if code.co_filename.startswith(LIBRARY)
        }

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> Iterator[None]:
        yield from self._recorded(item.nodeid.split("::")[0])

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Iterator[None]:
        yield from self._recorded(item.nodeid)

    def pytest_sessionfinish(self) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        found = {name: sorted(called) for name, called in self._by_test.items()}
        (self._folder / f"{os.getpid()}.json").write_text(json.dumps(found))


def read(folder: Path) -> Calls:
    """Return what the processes of a run recorded, for tests only."""
    merged: Calls = defaultdict(set)
    for path in folder.glob("*.json"):
        for name, called in json.loads(path.read_text()).items():
            merged[name].update(called)
    return {name: called | merged.get(name.split("::")[0], set()) for name, called in merged.items() if "::" in name}
