"""Tests that NUMBA_DISABLE_JIT=1 runs the loops as plain Python with the same bits.

In this mode, tools can measure the code coverage of the loops. They do not see compiled loops.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import mxnum as mx

ROOT = Path(__file__).parents[2]


def test_results_without_compilation_are_the_oracles():
    code = "import numba; from tests.engine import plain_python as it; it.check_all(); print(numba.config.DISABLE_JIT)"
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        cwd=ROOT, env={**os.environ, "NUMBA_DISABLE_JIT": "1"}, capture_output=True, text=True,
    )  # fmt: skip
    told = re.fullmatch(r"(\d+) cases are the same\n1\n", done.stdout)
    assert told, done.stderr
    assert int(told[1]) >= len(mx.Rounding) * len(mx.formats.names("e8m0"))
