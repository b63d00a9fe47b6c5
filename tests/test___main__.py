from __future__ import annotations

import subprocess
import sys

import pytest

import mxnum as mx


def test_python_dash_m():
    pytest.importorskip("typer", reason="the extra cli is not installed")
    answer = subprocess.run([sys.executable, "-m", "mxnum", "--version"], capture_output=True, text=True)
    assert (answer.returncode, answer.stdout.strip()) == (0, f"mxnum {mx.__version__}")


def test_exit_status_of_a_failure():
    answer = subprocess.run([sys.executable, "-m", "mxnum", "formats", "e4m4"], capture_output=True, text=True)
    assert answer.returncode == 2
    assert answer.stderr.startswith("Error: ")
    assert answer.stderr.count("\n") == 1
