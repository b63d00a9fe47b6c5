"""``python -m tests.mutants``: plant mistakes in a copy of the repository, and run the tests.

With ``--record``, the program writes the outcome of each mistake to ``fates.json`` as soon as the
tests end. The record has a hash of the mistake, of the changed file, and of the tests that should
notice the mistake. ``--stale`` selects the mistakes that have no record for the current code.

With ``--random N --seed S``, the program plants N random changes of the library's syntax trees
instead. For each change, the program runs the tests that call the changed function, the quickest
first. To find these tests, the program first runs all tests and records which test calls which
function; ``--calls FOLDER`` keeps the record. ``--out FILE`` stores each outcome as soon as it is
known. A later run with the same FILE skips mistakes that have an outcome.

Exit status: 0 if the tests find every mistake, 1 if one survives, 2 for invalid arguments or
mistakes that do not fit the code.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from tests.mutants import drawn, forked, survivors
from tests.mutants.planted import MUTANTS, Mutant
from tests.tiers import code_of

ROOT = Path(__file__).parents[2]
RECORD = Path(__file__).with_name("fates.json")
COPIED = ("mxnum", "tests", "proofs", "docs", "benchmarks", "conftest.py", "pyproject.toml", "README.md")
LEFT_OUT = shutil.ignore_patterns("__pycache__", "_build", ".cache", ".hypothesis")


#: After this many seconds, the tests of a mistake count as failed, because a mistake may cause an
#: endless loop.
LIMIT = 900


@dataclass(frozen=True)
class Fate:
    """The outcome of running the tests with one planted mistake."""

    killed: bool
    #: The first test that failed, or the error that occurred instead.
    by: str
    seconds: float


def copy_of_repository(folder: Path) -> Path:
    """Copy the files that tests need, but no compiled code, to a folder; return the folder."""
    for name in COPIED:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, folder / name, ignore=LEFT_OUT)
        elif source.exists():
            shutil.copy(source, folder / name)
    return folder


def changed(text: str, mutant: Mutant) -> str:
    """Return the text of a file with the mistake planted."""
    count = text.count(mutant.old)
    if count != 1 or mutant.old == mutant.new:
        raise ValueError(f"{mutant.name}: its text occurs {count} times in {mutant.file}, but must occur once")
    return text.replace(mutant.old, mutant.new)


def run_tests(
    folder: Path, tests: Sequence[str], options: Sequence[str] = ("-x",), limit: float | None = LIMIT
) -> tuple[bool, str]:
    """Run tests in a copy of the repository; return True if all pass, and the test that failed.

    Without a failed test, the second result is the last line of output.
    """
    settings = {
        "NUMBA_CACHE_DIR": str(folder / "compiled"), "PYTHONDONTWRITEBYTECODE": "1", "PYTEST_ADDOPTS": "",
        "PYTHONPATH": str(folder),
    }  # fmt: skip
    command = [sys.executable, "-m", "pytest", *options, "-q", "--no-header", "-p", "no:cacheprovider", *tests]
    try:
        done = subprocess.run(
            command, cwd=folder, env={**os.environ, **settings}, capture_output=True, text=True, timeout=limit
        )
    except subprocess.TimeoutExpired:
        return False, f"::no end within {limit} s"
    found = re.search(r"^(?:FAILED|ERROR) (\S+)", done.stdout, re.M)
    crashed = re.search(r'^  File "(?:[^"]*/)?(tests/[^"]*)", line \d+ in (test_\w+)', done.stderr, re.M)
    if crashed and done.returncode < 0:
        ended = signal.Signals(-done.returncode).name
        return False, f"{crashed[1]}::{crashed[2]}, in which the process ended by {ended}"
    last = (done.stdout + done.stderr).strip().splitlines()[-1:]
    return done.returncode == 0, found[1] if found else " ".join(last)


def fate_of(mutant: Mutant, folder: Path) -> Fate:
    """Plant a mistake, run the tests that should notice the mistake, and restore the file."""
    path, started = folder / mutant.file, time.monotonic()
    text = path.read_text()
    path.write_text(changed(text, mutant))
    try:
        passes, failed = run_tests(folder, mutant.killed_by)
    finally:
        path.write_text(text)
    return Fate(not passes and "::" in failed, failed, time.monotonic() - started)


def chosen(patterns: Sequence[str] | None) -> list[Mutant]:
    """Return the planted mistakes that match the patterns, in the order of the patterns.

    A mistake matches a pattern if its name or file contains the pattern, or fits it as a glob.
    """
    found = {
        mutant.name: mutant
        for pattern in patterns or ("*",)
        for mutant in MUTANTS
        if any(pattern in name or fnmatchcase(name, pattern) for name in (mutant.name, mutant.file))
    }
    return list(found.values())


def read() -> dict[str, dict[str, Any]]:
    """Return the recorded outcome of each planted mistake."""
    found: dict[str, dict[str, Any]] = json.loads(RECORD.read_text()) if RECORD.exists() else {}
    return found


def record(mutant: Mutant, fate: Fate, folder: Path) -> None:
    """Record the outcome of a mistake, and drop records of mistakes that are no longer listed."""
    entry = {"killed": fate.killed, "by": fate.by, "code": code_hash(mutant, folder), "date": date.today().isoformat()}
    fates = {**read(), mutant.name: entry}
    lines = ",\n".join(f"  {json.dumps(m.name)}: {json.dumps(fates[m.name])}" for m in MUTANTS if m.name in fates)
    RECORD.write_text(f"{{\n{lines}\n}}\n")


def is_fresh(mutant: Mutant) -> bool:
    """Return True if the record of a mistake has the hash of the current code and tests."""
    return read().get(mutant.name, {}).get("code") == code_hash(mutant)


def last_seen(mutant: Mutant) -> str:
    """Return the recorded outcome of a mistake in words."""
    entry = read().get(mutant.name)
    if entry is None:
        return "[never recorded]"
    said = f"killed by {entry['by']}" if entry["killed"] else "SURVIVED"
    return f"[{said}, {entry['date']}{'' if is_fresh(mutant) else ', before the last change'}]"


def code_hash(mutant: Mutant, folder: Path = ROOT) -> str:
    """Return a hash of a mistake, its file, and the tests that should notice the mistake."""
    files = [mutant.file, *sorted({test.split("::")[0] for test in mutant.killed_by})]
    texts = [mutant.old, mutant.new, *mutant.killed_by, *(code_of((folder / file).read_text()) for file in files)]
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()[:16]


def tests_of(mutants: Iterable[Mutant]) -> list[str]:
    """Return all tests that should notice one of the mistakes.

    If the result has a whole test file, it does not list single tests of this file.
    """
    named = sorted({test for mutant in mutants for test in mutant.killed_by})
    files = {test for test in named if "::" not in test}
    return [test for test in named if test in files or test.split("::")[0] not in files]


def plant_drawn(options: argparse.Namespace) -> int:
    """Plant random mistakes, print the outcome of each mistake, and return the exit status."""
    forked.import_packages()
    with tempfile.TemporaryDirectory() as temporary:
        folder = copy_of_repository(Path(temporary) / "copy")
        copy = survivors.Copy(folder)
        records = options.calls or Path(temporary) / "calls"
        if not options.recorded:
            copy.record(records)
        copy.read(records)
        mistakes = drawn.draw(folder, options.random, options.seed)
        return survivors.plant(copy, mistakes, options.out or Path(temporary) / "outcomes.json", options.again)


def main(arguments: Sequence[str] | None = None) -> int:
    """Plant the chosen mistakes one after the other, and return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument(
        "--only", metavar="PATTERN", action="append",
        help="plant mistakes whose name or file matches or contains PATTERN; may be repeated",
    )  # fmt: skip
    parser.add_argument("--stale", action="store_true", help="plant mistakes that have no record for the current code")
    parser.add_argument("--record", action="store_true", help="write the outcomes to tests/mutants/fates.json")
    parser.add_argument("--list", action="store_true", help="print the mistakes and their records, and run nothing")
    parser.add_argument("--skip-baseline", action="store_true", help="do not first run the tests without a mistake")
    parser.add_argument("--random", metavar="N", type=int, help="plant N random mistakes instead")
    parser.add_argument("--seed", metavar="S", type=int, default=0, help="the seed of the random mistakes")
    parser.add_argument("--calls", metavar="FOLDER", type=Path, help="keep the record of the calls of each test")
    parser.add_argument("--recorded", action="store_true", help="record no calls; run unrecorded test files as a whole")
    parser.add_argument("--out", metavar="FILE", type=Path, help="store outcomes; skip mistakes with a stored outcome")
    parser.add_argument("--again", action="store_true", help="plant again what survived or ran out of time before")
    options = parser.parse_args(arguments)
    if options.random is not None:
        return plant_drawn(options)
    mutants = chosen(options.only)
    if not mutants:
        print(f"No planted mistake matches {' or '.join(options.only)!r}.", file=sys.stderr)
        return 2
    if options.stale:
        mutants = [mutant for mutant in mutants if not is_fresh(mutant)]
    if options.list:
        for mutant in mutants:
            print(f"{mutant.name} ({mutant.file}): {mutant.wrong} {last_seen(mutant)}")
        return 0
    if not mutants:
        print("None is stale.")
        return 0
    with tempfile.TemporaryDirectory() as temporary:
        folder = copy_of_repository(Path(temporary))
        for mutant in mutants:
            changed((folder / mutant.file).read_text(), mutant)
        if not options.skip_baseline:
            passes, failed = run_tests(folder, tests_of(mutants))
            if not passes:
                print(f"Nothing was planted, because the tests fail without a mistake: {failed}", file=sys.stderr)
                return 2
        survived = []
        for number, mutant in enumerate(mutants, 1):
            fate = fate_of(mutant, folder)
            verdict = "killed by" if fate.killed else "SURVIVED:"
            print(f"[{number}/{len(mutants)}] {mutant.name}: {verdict} {fate.by} ({fate.seconds:.0f} s)", flush=True)
            survived += [] if fate.killed else [mutant]
            if options.record:
                record(mutant, fate, folder)
    print(f"The tests killed {len(mutants) - len(survived)} of {len(mutants)} planted mistakes.")
    for mutant in survived:
        print(f"SURVIVED {mutant.name} ({mutant.file}): {mutant.wrong}")
    return 1 if survived else 0


if __name__ == "__main__":
    sys.exit(main())
