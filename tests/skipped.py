"""A pytest plugin that records which tests one environment skips, to run them in another.

pytest --note-skipped FILE     writes the names of the skipped tests and modules to FILE
pytest --only-noted FILE       runs only these tests, and test files named on the command line
"""

from __future__ import annotations

from pathlib import Path

import pytest


class Notes:
    """Collects the names of skipped tests in the main process."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.skipped: set[str] = set()

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.skipped:
            self.skipped.add(report.nodeid)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.skipped:
            self.skipped.add(report.nodeid)

    def pytest_sessionfinish(self) -> None:
        self.path.write_text("".join(f"{name}\n" for name in sorted(self.skipped)))


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("mxnum")
    group.addoption("--note-skipped", type=Path, metavar="FILE", help="write the names of skipped tests to FILE")
    group.addoption("--only-noted", type=Path, metavar="FILE", help="run the tests listed in FILE, and given files")


def pytest_configure(config: pytest.Config) -> None:
    path = config.getoption("note_skipped")
    if path is not None and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Notes(path))


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    path = config.getoption("only_noted")
    if path is None:
        return
    noted = set(path.read_text().splitlines())
    named = {argument.split("::")[0] for argument in config.args if argument.split("::")[0].endswith(".py")}
    is_chosen = [item.nodeid in noted or _file(item) in noted | named for item in items]
    config.hook.pytest_deselected(items=[item for item, yes in zip(items, is_chosen, strict=True) if not yes])
    items[:] = [item for item, yes in zip(items, is_chosen, strict=True) if yes]


def _file(item: pytest.Item) -> str:
    return item.nodeid.split("::")[0]
