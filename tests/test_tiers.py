"""Tests of the tiers: slow tests run only in the full tier, and stale records are reported."""

from __future__ import annotations

import json

import pytest

from tests import tiers

pytest_plugins = ["pytester"]
HERE = "tests/test_tiers.py::test_nothing_failed_when_the_full_tier_was_run"


def test_nothing_failed_when_the_full_tier_was_run():
    failed = [name for name, entry in tiers.read().items() if entry["failed"] or not entry["passed"]]
    assert failed == []


def entry(**changes):
    """Return an entry of the record, with the given fields changed."""
    return {
        "cases": 3,
        "passed": 3,
        "skipped": 0,
        "failed": 0,
        "seconds": 1.5,
        "date": "2026-01-01",
        "code": tiers.code_hash(HERE),
        "versions": tiers.versions(),
        **changes,
    }


def test_new_changed_and_outdated_records_are_reported():
    assert list(tiers.problems({HERE: entry()}, [HERE])) == []
    assert list(tiers.problems({}, [HERE])) == [f"Never recorded:\n  {HERE}"]
    assert list(tiers.problems({HERE: entry(code="0")}, [HERE])) == [f"Not run since the last change:\n  {HERE}"]
    (older,) = tiers.problems({HERE: entry(versions={})}, [HERE])
    assert older.startswith("Last run with other versions of numpy, numba, llvmlite or Python:\n")


def test_partial_runs_are_reported():
    assert list(tiers.problems({HERE: entry(cases=4)}, [HERE])) == [f"Run in part:\n  {HERE}, 3 of 4 cases"]
    assert list(tiers.problems({HERE: entry(cases=4, skipped=1)}, [HERE])) == []


def test_the_record_as_a_table():
    told = tiers.table({HERE: entry(), "tests/test_ops.py::a": entry(code="0")}).splitlines()
    assert told[3] == f"| `{HERE}` | 3 | 3 | 0 | 0 | 1.5 | 2026-01-01 | the current code |"
    assert told[2].endswith("| older code |")


def test_hash_ignores_comments_and_docstrings():
    def of(text):
        return tiers.code_of(text)

    assert of('"""Doc."""\ndef f():\n    """What."""\n    return 1  # one') == of("def f():\n\n    return 1")
    assert of("def f():\n    return 1") != of("def f():\n    return 2")
    assert tiers.code_hash("tests/test_ops.py::a") != tiers.code_hash("tests/array/test_mx_array.py::a")
    assert tiers.code_hash("tests/test_ops.py::a") == tiers.code_hash("tests/test_ops.py::b")


def test_a_record_keeps_what_was_not_run(tmp_path):
    ran = {HERE: {"cases": 2, "passed": 2, "skipped": 0, "failed": 0, "seconds": 1.234}}
    record = tiers.with_outcomes({"tests/gone.py::a": entry(), "tests/test_ops.py::a": entry()}, ran)
    assert set(record) == {HERE, "tests/test_ops.py::a"}
    assert record[HERE]["seconds"] == 1.2
    tiers.write(record, tmp_path / "record.json")
    assert tiers.read(tmp_path / "record.json") == record
    assert list(tiers.problems(record, [HERE])) == []


MARKED = """
import pytest

@pytest.mark.full
@pytest.mark.parametrize("x", range(3))
def test_slow(x):
    assert x < {limit}

def test_fast():
    pass
"""


@pytest.fixture
def project(pytester, monkeypatch):
    """Return the folder of a small project with a package, tests and a record."""
    monkeypatch.setattr(tiers, "RECORD", pytester.path / "record.json")
    monkeypatch.setattr(tiers, "ROOT", pytester.path)
    monkeypatch.setattr(tiers, "read", lambda: json.loads(tiers.RECORD.read_text()) if tiers.RECORD.exists() else {})
    monkeypatch.setattr(tiers, "write", lambda record: tiers.RECORD.write_text(json.dumps(record)))
    (pytester.path / "mxnum").mkdir()
    return pytester


def run(project, *options, limit=3):
    """Run a project's tests with the plugin `tests.tiers`."""
    project.makepyfile(test_it=MARKED.format(limit=limit))
    tiers._hash_below.cache_clear()
    return project.runpytest_inprocess("-p", "tests.tiers", "-p", "no:cacheprovider", *options)


def test_a_run_of_each_tier(project):
    fast = run(project)
    fast.assert_outcomes(passed=1, deselected=3)
    fast.stdout.fnmatch_lines(["Never recorded:", "  test_it.py::test_slow", "Run it: *"])
    run(project, "--tier", "full").assert_outcomes(passed=4)
    assert not tiers.RECORD.exists()
    run(project, "--tier", "full", "--record").assert_outcomes(passed=4)
    (name, kept), *others = tiers.read().items()
    assert (name, kept["passed"], kept["failed"], others) == ("test_it.py::test_slow", 3, 0, [])
    run(project).stdout.no_fnmatch_line("*full tier*")
    changed = run(project, limit=4)
    changed.stdout.fnmatch_lines(["Not run since the last change:", "  test_it.py::test_slow"])


def test_partial_run_is_recorded_as_partial(project):
    run(project, "--tier", "full", "--record", "-k", "slow and not 1").assert_outcomes(passed=2)
    run(project).stdout.fnmatch_lines(["Run in part:", "  test_it.py::test_slow, 2 of 3 cases"])


def test_a_failure_is_recorded(project):
    run(project, "--tier", "full", "--record", limit=2).assert_outcomes(passed=3, failed=1)
    assert [kept["failed"] for kept in tiers.read().values()] == [1]
