"""Tests of the options `--note-skipped` and `--only-noted`, which this project adds to pytest.

With these options, a second run of pytest runs only the tests that the first run skipped.
"""

from __future__ import annotations

import pytest

pytest_plugins = ["pytester"]

ONE = """
import os, pytest

@pytest.mark.skipif("HAS_ALL" not in os.environ, reason="something is missing")
@pytest.mark.parametrize("x", [1, 2])
def test_needs(x): pass

def test_inside():
    if "HAS_ALL" not in os.environ:
        pytest.skip("something is missing")

def test_plain(): pass
"""
TWO = """
import os, pytest
if "HAS_ALL" not in os.environ:
    pytest.skip("something is missing", allow_module_level=True)

def test_a(): pass
def test_b(): pass
"""


@pytest.mark.parametrize("workers", [0, 1])
def test_noted_tests_and_named_files_run(pytester, monkeypatch, workers):
    pytester.makepyfile(
        test_one=ONE, test_two=TWO, test_three="def test_three(): pass", test_four="def test_no(): pass"
    )
    here = ["-p", "tests.skipped", "-p", "no:cacheprovider"]
    first = pytester.runpytest_inprocess(*here, "-n", str(workers), "--note-skipped", "noted")
    first.assert_outcomes(passed=3, skipped=4)
    noted = (pytester.path / "noted").read_text().splitlines()
    assert noted == [
        "test_one.py::test_inside", "test_one.py::test_needs[1]", "test_one.py::test_needs[2]", "test_two.py"
    ]  # fmt: skip
    monkeypatch.setenv("HAS_ALL", "1")
    then = pytester.runpytest_inprocess(*here, "-v", "--only-noted", "noted")
    then.assert_outcomes(passed=5)
    then.stdout.no_fnmatch_line("*test_plain*")
    with_more = pytester.runpytest_inprocess(*here, "--only-noted", "noted", ".", "test_three.py")
    with_more.assert_outcomes(passed=6)
