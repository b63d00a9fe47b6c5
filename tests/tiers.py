"""A pytest plugin for two tiers of tests, and the record of the last run of the slow tests.

Exhaustive and slow tests have the mark `full` and run only with ``--tier full``. With ``--record``
the outcomes of slow tests are written to ``full_tier.json``. `full_tier.json` has an entry for each
slow test function, with the number of cases and a hash of the tested code. Each test run lists the
slow tests whose entry is missing, incomplete or outdated; the run does not fail because of them.
``python -m tests.tiers`` prints `full_tier.json` as a table.
"""

from __future__ import annotations

import ast
import hashlib
import json
import platform
from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import date
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
RECORD = Path(__file__).with_name("full_tier.json")
#: Packages whose versions may change the outcomes of tests.
TOOLS = ("numpy", "numba", "llvmlite")
HOW = "python -m pytest -n auto --tier full -m full --record"

_MARKED: pytest.StashKey[list[str]] = pytest.StashKey()

Record = dict[str, dict[str, Any]]


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("mxnum")
    group.addoption("--tier", choices=("fast", "full"), default="fast", help="full adds exhaustive and slow tests")
    group.addoption("--record", action="store_true", help="write outcomes of slow tests to tests/full_tier.json")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "full: exhaustive and slow; runs with --tier full")
    config.stash[_MARKED] = []
    if config.getoption("record") and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Outcomes())


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    slow = [item for item in items if item.get_closest_marker("full")]
    cases = Counter(function_of(item.nodeid) for item in slow)
    config.stash[_MARKED] = sorted(cases)
    # Count cases here, before other plugins deselect some of them. Test reports carry the counts to
    # the process that writes the record.
    for item in slow:
        item.user_properties.append(("cases", cases[function_of(item.nodeid)]))
    if config.getoption("tier") == "fast" and slow:
        config.hook.pytest_deselected(items=slow)
        items[:] = [item for item in items if not item.get_closest_marker("full")]


class Outcomes:
    """A plugin of the main process that counts the outcomes of each slow test function."""

    def __init__(self) -> None:
        self.found: Record = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if "full" not in report.keywords:
            return
        cases = dict(report.user_properties)["cases"]
        new = {"cases": cases, "passed": 0, "skipped": 0, "failed": 0, "seconds": 0.0}
        entry = self.found.setdefault(function_of(report.nodeid), new)
        entry["seconds"] += report.duration
        if report.when == "call" or report.outcome != "passed":
            entry[report.outcome] += 1

    def pytest_sessionfinish(self) -> None:
        write(with_outcomes(read(), self.found))


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    marked = config.stash[_MARKED]
    if not marked:  # no slow test was collected, or this is xdist's main process, which collects none
        marked = [name for name in read() if (ROOT / name.split("::")[0]).exists()]
    told = "\n".join(problems(read(), marked))
    if told:
        terminalreporter.section("full tier", sep="-")
        terminalreporter.write_line(f"{told}\nRun it: {HOW}")


def function_of(nodeid: str) -> str:
    """Return the name of the test function of a case."""
    return nodeid.split("[")[0]


def read(path: Path = RECORD) -> Record:
    """Return the recorded outcomes, or an empty dictionary if there is no record."""
    found: Record = json.loads(path.read_text()) if path.exists() else {}
    return found


def write(record: Record, path: Path = RECORD) -> None:
    """Write the record, with one test function on each line."""
    lines = ",\n".join(f"  {json.dumps(name)}: {json.dumps(record[name])}" for name in sorted(record))
    path.write_text(f"{{\n{lines}\n}}\n")


def with_outcomes(record: Record, outcomes: Record) -> Record:
    """Return the record with new outcomes added, and without tests whose files no longer exist."""
    kept = {name: entry for name, entry in record.items() if (ROOT / name.split("::")[0]).exists()}
    for name, entry in outcomes.items():
        about = {"code": code_hash(name), "date": date.today().isoformat(), "versions": versions()}
        kept[name] = entry | {"seconds": round(entry["seconds"], 1)} | about
    return kept


def problems(record: Record, marked: Iterable[str]) -> Iterator[str]:
    """Yield messages that list the slow tests whose entry is missing, incomplete or outdated."""
    marked = list(marked)
    never = [name for name in marked if name not in record]
    stale = [name for name in marked if name in record and record[name]["code"] != code_hash(name)]
    partly = [name for name in marked if name in record and ran(record[name]) < record[name]["cases"]]
    older = [name for name in marked if name in record and record[name]["versions"] != versions()]
    if never:
        yield "\n  ".join(["Never recorded:", *never])
    if partly:
        told = (f"{name}, {ran(record[name])} of {record[name]['cases']} cases" for name in partly)
        yield "\n  ".join(["Run in part:", *told])
    if stale:
        yield "\n  ".join(["Not run since the last change:", *stale])
    elif older:
        yield "\n  ".join([f"Last run with other versions of {', '.join(TOOLS)} or Python:", *older])


def ran(entry: dict[str, Any]) -> int:
    """Return the number of cases that have an outcome."""
    return int(entry["passed"] + entry["skipped"] + entry["failed"])


def table(record: Record) -> str:
    """Return the record as a Markdown table."""
    lines = [
        "| test | cases | passed | skipped | failed | seconds | date | about |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name, entry in sorted(record.items()):
        about = "the current code" if entry["code"] == code_hash(name) else "older code"
        numbers = (entry[kind] for kind in ("cases", "passed", "skipped", "failed", "seconds", "date"))
        lines.append(" | ".join([f"| `{name}`", *map(str, numbers), f"{about} |"]))
    return "\n".join(lines)


def versions() -> dict[str, str]:
    """Return the versions of Python and of the packages in `TOOLS`."""
    return {"python": platform.python_version(), **{tool: version(tool) for tool in TOOLS}}


def code_hash(name: str) -> str:
    """Return a hash of a test file and of the folders of the package on which the file depends."""
    file = Path(name.split("::")[0])
    folders = ["mxnum/engine", "mxnum/definition"]
    if len(file.parts) > 2:
        folders.append(f"mxnum/{file.parts[1]}" if file.parts[0] == "tests" else "proofs")
    digest = hashlib.sha256()
    for path in [ROOT / file, *sorted((ROOT / "mxnum").glob("*.py")), *(ROOT / folder for folder in folders)]:
        digest.update(_hash_below(path).encode())
    return digest.hexdigest()[:16]


@cache
def _hash_below(path: Path) -> str:
    """Return a hash of the code of a file, or of all files below a folder.

    Comments and docstrings are not hashed.
    """
    digest = hashlib.sha256()
    for file in [path] if path.is_file() else sorted(path.rglob("*.py")):
        digest.update(file.name.encode() + code_of(file.read_text()).encode())
    return digest.hexdigest()


def code_of(text: str) -> str:
    """Return the syntax tree of a module as text, without comments and docstrings."""
    tree = ast.parse(text)
    for node in ast.walk(tree):
        has_docstring = isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(node)
        if has_docstring:
            node.body = node.body[1:]
    return ast.dump(tree)


if __name__ == "__main__":
    print(table(read()))
