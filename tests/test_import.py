"""Tests that importing the package is quick and loads numpy alone."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import mxnum as mx

PROBE = """
import json, sys, time
started = time.process_time()
import numpy
between = time.process_time()
import mxnum
beyond = time.process_time() - between
heavy = ["numba", "llvmlite", "sympy", "mpmath", "matplotlib", "torch", "scipy", "ml_dtypes", "hypothesis", "z3"]
print(json.dumps({"times": beyond / (between - started), "loaded": [name for name in heavy if name in sys.modules]}))
"""


def probe():
    """Return mxnum's import time divided by numpy's, and the slow packages that mxnum imports."""
    # Without bytecode on disk, Python compiles all modules at each import, which takes longer.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    answer = subprocess.run([sys.executable, "-c", PROBE], capture_output=True, text=True, check=True, env=environment)
    return json.loads(answer.stdout)


def test_nothing_heavy_is_loaded():
    assert probe()["loaded"] == []


def test_import_costs_less_than_that_of_numpy():
    # Take the fastest of three imports, because a busy machine can delay a single import.
    assert min(probe()["times"] for _ in range(3)) < 1


def test_public_names_exist_and_are_documented():
    for name in mx.__all__:
        value = getattr(mx, name)
        assert name == "__version__" or value.__doc__, name
