"""Report what tests compile, which is most of their time: ``pytest --compiled``.

The report begins with the tests that compile longest. Loops that are stored on disk are not
counted. Set NUMBA_CACHE_DIR to an empty folder to measure a first run.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

SHOWN = 25


def pytest_addoption(parser: pytest.Parser) -> None:
    text = "list the test functions that compiled longest, in seconds of processor time"
    parser.getgroup("mxnum").addoption("--compiled", action="store_true", help=text)


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("compiled"):
        config.pluginmanager.register(Compiled())


class Compiled:
    """A pytest plugin that counts the functions that numba compiles in each test.

    The counts of worker processes reach the main process in test reports.
    """

    def __init__(self) -> None:
        from numba.core import event

        class Listener(event.Listener):
            """Counts compilations; a compilation within another one counts as part of it."""

            depth, count, seconds, started = 0, 0, 0.0, 0.0

            def on_start(self, _: Any) -> None:
                self.started = self.started if self.depth else time.process_time()
                self.depth += 1

            def on_end(self, _: Any) -> None:
                self.depth -= 1
                if self.depth == 0:
                    self.count, self.seconds = self.count + 1, self.seconds + time.process_time() - self.started

        self.listener = Listener()
        event.register("numba:compile", self.listener)
        #: The (seconds, loops, cases) of each test function.
        self.found: dict[str, tuple[float, int, int]] = {}

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        self.listener.count, self.listener.seconds = 0, 0.0
        return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: Any) -> Iterator[None]:
        if call.when == "call":
            item.user_properties.append(("compiled", (self.listener.seconds, self.listener.count)))
        return (yield)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call":
            seconds, count = dict(report.user_properties)["compiled"]
            name = report.nodeid.split("[")[0]
            before = self.found.get(name, (0.0, 0, 0))
            self.found[name] = before[0] + seconds, before[1] + count, before[2] + 1

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        total = [sum(column) for column in zip(*self.found.values(), strict=True)] or [0.0, 0]
        terminalreporter.section(f"compiled: {total[1]} functions in {total[0]:.0f} s", sep="-")
        for name, (seconds, count, cases) in sorted(self.found.items(), key=lambda item: -item[1][0])[:SHOWN]:
            if count:
                terminalreporter.write_line(f"{seconds:7.1f} s {count:4} functions {cases:4} cases  {name}")
