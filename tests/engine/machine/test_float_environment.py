"""Tests that the probe notices every relevant change of the floating-point environment."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from mxnum.engine.machine import float_environment
from tests.test_float_environment import (
    DENORMALS_ARE_ZERO,
    DOWNWARD,
    FLUSH_TO_ZERO,
    TOWARD_ZERO,
    UPWARD,
    control_bits,
    pytestmark,  # noqa: F401 (skips this module too)
)


def test_the_default_environment():
    assert float_environment.is_default()


@pytest.mark.parametrize(
    "bits",
    [FLUSH_TO_ZERO, DENORMALS_ARE_ZERO, UPWARD, DOWNWARD, TOWARD_ZERO, FLUSH_TO_ZERO | UPWARD | DENORMALS_ARE_ZERO],
    ids=hex,
)
def test_an_altered_environment_is_seen(bits):
    assert float_environment.is_default()
    with control_bits(bits):
        altered = float_environment.is_default()
    assert not altered
    assert float_environment.is_default()


def test_nothing_is_trusted_without_compilation():
    probe = "from mxnum.engine.machine import float_environment; print(float_environment.is_default())"
    done = subprocess.run(
        [sys.executable, "-c", probe],
        capture_output=True, text=True, check=True, env={**os.environ, "NUMBA_DISABLE_JIT": "1"},
    )  # fmt: skip
    assert done.stdout.strip() == "False"
