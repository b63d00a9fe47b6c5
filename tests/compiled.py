"""Report what tests compile: ``pytest --compiled``. Compiling takes most of the tests' time.

The report lists the slowest test functions and the slowest compiled functions. Loops that numba
loads from its cache on disk are not counted. To measure a first run, set NUMBA_CACHE_DIR to an
empty folder.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

#: The largest number of lines in each list of the report.
SHOWN = 25
#: Seconds, number of compilations, and number of cases or tests.
Counts = tuple[float, int, int]


def pytest_addoption(parser: pytest.Parser) -> None:
    text = "list the functions that tests compile, with seconds of processor time"
    parser.getgroup("mxnum").addoption("--compiled", action="store_true", help=text)


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("compiled"):
        config.pluginmanager.register(Compiled())


class Compiled:
    """A pytest plugin that counts the functions that numba compiles in each test.

    Worker processes send their compilations to the main process as properties of test reports.
    """

    def __init__(self) -> None:
        from numba.core import event

        class Listener(event.Listener):
            """A listener that times each outermost compilation, with the compilations inside it."""

            depth, started = 0, 0.0

            def __init__(self) -> None:
                #: The name and the seconds of each compilation in the current test.
                self.compiled: list[tuple[str, float]] = []

            def on_start(self, _: Any) -> None:
                self.started = self.started if self.depth else time.process_time()
                self.depth += 1

            def on_end(self, event: Any) -> None:
                self.depth -= 1
                if self.depth == 0:
                    function = event.data["dispatcher"].py_func
                    name = f"{function.__module__}.{function.__qualname__.split('.<locals>')[0]}"
                    self.compiled.append((name, time.process_time() - self.started))

        self.listener = Listener()
        event.register("numba:compile", self.listener)
        #: For each test function: the seconds of compilation, and the numbers of compilations and
        #: of test cases.
        self.by_test: dict[str, Counts] = {}
        #: For each compiled function, under the name of its factory: the seconds of compilation,
        #: and the numbers of compilations and of tests.
        self.by_function: dict[str, Counts] = {}

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        self.listener.compiled = []
        return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: Any) -> Iterator[None]:
        if call.when == "call":
            item.user_properties.append(("compiled", self.listener.compiled))
        return (yield)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call":
            compiled = dict(report.user_properties)["compiled"]
            _add(self.by_test, report.nodeid.split("[")[0], [seconds for _, seconds in compiled])
            for name in dict(compiled):
                _add(self.by_function, name, [seconds for other, seconds in compiled if other == name])

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        totals = [sum(column) for column in zip(*self.by_test.values(), strict=True)] or [0.0, 0]
        terminalreporter.section(f"compiled: {totals[1]} functions in {totals[0]:.0f} s", sep="-")
        for found, unit in (self.by_test, "cases"), (self.by_function, "tests"):
            for name, (seconds, count, users) in sorted(found.items(), key=lambda item: -item[1][0])[:SHOWN]:
                if count:
                    terminalreporter.write_line(f"{seconds:7.1f} s {count:4} functions {users:4} {unit}  {name}")


def _add(found: dict[str, Counts], name: str, seconds: list[float]) -> None:
    """Add one test to the counts of a name; `seconds` has the duration of each compilation."""
    before = found.get(name, (0.0, 0, 0))
    found[name] = before[0] + sum(seconds), before[1] + len(seconds), before[2] + 1
