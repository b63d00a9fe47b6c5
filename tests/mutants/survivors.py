"""Plant random mistakes in a copy of the repository, run the tests, and store each outcome."""

from __future__ import annotations

import json
import re
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.mutants import calls, drawn, forked
from tests.mutants.drawn import Drawn

#: For each mistake, tests run in two calls of pytest, in the order of `Drawn.tests`. The recorded
#: times of the tests add up to at most `FIRST` seconds in the first call, and to at most `FIRST` +
#: `SECOND` seconds in both calls together. The first test runs even if it takes longer.
FIRST, SECOND = 10.0, 60.0
#: The time in seconds that is assumed for a test file without a record.
UNKNOWN = 10.0
#: The largest number of tests that run for a mistake, and the time limit of a call of pytest in
#: seconds.
MOST, LIMIT = 300, 240.0

Outcomes = dict[str, dict[str, Any]]


@dataclass
class Copy:
    """A copy of the repository in which mistakes are planted."""

    folder: Path
    known: calls.Calls = field(default_factory=dict)

    def record(self, records: Path) -> None:
        """Record the functions that tests call, for each test file that has no record yet."""
        for path in test_files(self.folder):
            name = str(path.relative_to(self.folder))
            record = records.resolve() / f"{name.replace('/', '.')}.json"
            if not record.exists():
                since = time.monotonic()
                arguments = ["-p", "tests.mutants.calls", "--calls", str(record), name]
                forked.pytest_in(self.folder, arguments, self.folder / "compiled", 3600)
                print(f"{name}: recorded in {time.monotonic() - since:.0f} s", flush=True)

    def read(self, records: Path) -> None:
        """Read the records of the functions that tests call.

        A test file without a record counts as one slow test.
        """
        self.known = calls.read(records)
        recorded = {test.split("::")[0] for test in self.known}
        files = {str(path.relative_to(self.folder)) for path in test_files(self.folder)}
        self.known |= {name: calls.Test(frozenset(), UNKNOWN) for name in files - recorded}

    def outcome(self, mistake: Drawn, limit: float) -> str:
        """Plant a mistake, run the tests that may notice the mistake, and restore the file."""
        path, tests = self.folder / mistake.file, mistake.tests(self.known)
        text, run = path.read_text(), 0
        path.write_text(mistake.changed(text))
        try:
            for some in self._portions(tests):
                failed = self._first_failure(some, mistake, limit)
                run += len(some)
                if failed:
                    return failed
        finally:
            path.write_text(text)
        return f"survived {run} of {len(tests)} tests"

    def _portions(self, tests: list[str]) -> list[list[str]]:
        """Divide tests between two calls of pytest, and drop tests beyond the limits.

        The limits are `MOST`, `FIRST` and `SECOND`.
        """
        portions: list[list[str]] = [[], []]
        total = 0.0
        for test in tests[:MOST]:
            total += self.known[test].seconds
            if total <= FIRST or not portions[0]:
                portions[0].append(test)
            elif total <= FIRST + SECOND:
                portions[1].append(test)
        return [some for some in portions if some]

    def _first_failure(self, tests: list[str], mistake: Drawn, limit: float) -> str:
        """Run tests, and return the outcome if a test fails or the time limit is exceeded.

        If all tests pass, return an empty string.
        """
        # A mistake in these files may change compiled loops, so its compiled code must not be
        # stored in the common folder.
        compiles = mistake.file.startswith(("mxnum/engine/", "mxnum/definition/", "mxnum/memory/")) or (
            mistake.file.count("/") == 1
        )
        with tempfile.TemporaryDirectory() as own:
            compiled = Path(own) if compiles else self.folder / "compiled"
            status, output = forked.pytest_in(self.folder, ["-x", *tests], compiled, limit)
            if status == 4 and (missing := set(re.findall(r"^ERROR: not found: \S*?(tests/.*)$", output, re.M))):
                tests = [test for test in tests if test not in missing]
                status, output = forked.pytest_in(self.folder, ["-x", *tests], compiled, limit)
        if status == 0:
            return ""
        if status is None:
            return f"out of time after {limit:.0f} s"
        named = re.search(r"^(?:FAILED|ERROR) (tests/\S+)", output, re.M)
        if status < 0:
            return f"killed by signal {-status}"
        return f"killed by {named[1]}" if named else f"killed by exit status {status}: {output.strip()[-200:]}"


def test_files(folder: Path) -> list[Path]:
    """Return the files of the tests that may notice a mistake."""
    return [
        path
        for name in drawn.RECORDED
        for path in (sorted((folder / name).rglob("test_*.py")) if (folder / name).is_dir() else [folder / name])
    ]


def read(path: Path) -> Outcomes:
    """Return the outcome of each mistake that a file records."""
    found: Outcomes = json.loads(path.read_text()) if path.exists() else {}
    return found


def write(path: Path, outcomes: Outcomes) -> None:
    """Write the outcomes to a file, one line for each mistake."""
    lines = ",\n".join(f"  {json.dumps(label)}: {json.dumps(outcomes[label])}" for label in sorted(outcomes))
    path.write_text(f"{{\n{lines}\n}}\n")


def summary(outcomes: Outcomes) -> str:
    """Return how many mistakes were killed, are equivalent, survived or ran out of time."""
    kinds = Counter(entry["outcome"].split()[0].rstrip(":") for entry in outcomes.values())
    counts = [f"{kinds[kind]} {kind}" for kind in ("killed", "equivalent", "survived", "out")]
    return f"{len(outcomes)} drawn: {', '.join(counts)} of time"


def plant(copy: Copy, mistakes: list[Drawn], out: Path, again: bool, limit: float = LIMIT) -> int:
    """Plant the mistakes that have no stored outcome; store and print their outcomes.

    With `again`, also plant mistakes whose stored outcome is that they survived or ran out of time.
    Return the exit status: 0 if each mistake was killed or is equivalent, else 1.
    """
    for number, mistake in enumerate(mistakes, 1):
        before = read(out).get(mistake.label, {}).get("outcome", "")
        if before and not (again and before.startswith(("survived", "out of time"))):
            continue
        since = time.monotonic()
        found = copy.outcome(mistake, limit)
        seconds = time.monotonic() - since
        entry = {"outcome": found, "line": mistake.line, "seconds": round(seconds)}
        write(out, {**read(out), mistake.label: entry})
        print(f"[{number}/{len(mistakes)}] {mistake.label}: {found} ({seconds:.0f} s)", flush=True)
    outcomes = {one.label: read(out)[one.label] for one in mistakes}
    rest = [label for label, entry in outcomes.items() if not entry["outcome"].startswith(("killed", "equivalent"))]
    print(summary(outcomes), *rest, sep="\nSURVIVED ")
    return 1 if rest else 0
