"""Tests of `tests/compiled.py`, a plugin that reports which functions each test compiles."""

from __future__ import annotations

from pathlib import Path

import numba
import pytest

pytest_plugins = ["pytester"]

TESTS = """
import numba
import pytest

@numba.njit
def inner(x):
    return x + 1

@numba.njit
def outer(x):
    return inner(x) * 2

@pytest.mark.parametrize("x", [1, 2, 1.5])
def test_compiles(x):
    assert outer(x) == 2 * x + 2

def test_nothing():
    pass
"""


@pytest.mark.skipif(bool(numba.config.DISABLE_JIT), reason="nothing is compiled")
def test_each_function_says_what_it_compiled(pytester, monkeypatch):
    """Check the report in a new process, because numba cannot be imported twice in one process."""
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[1]))
    pytester.makepyfile(test_it=TESTS)
    done = pytester.runpytest_subprocess("-p", "tests.compiled", "-p", "no:cacheprovider", "--compiled")
    done.assert_outcomes(passed=4)
    done.stdout.fnmatch_lines(
        [
            "*compiled: 2 functions in * s*",
            "* s    2 functions    3 cases  test_it.py::test_compiles",
            "* s    2 functions    2 tests  test_it.outer",
        ]
    )
    done.stdout.no_fnmatch_line("*test_nothing*")
