"""Tests that `may_use_floats` notices flushed subnormals and changed rounding directions."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from mxnum.engine.machine import workers
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
    assert workers.may_use_floats()


@pytest.mark.parametrize(
    "bits",
    [FLUSH_TO_ZERO, DENORMALS_ARE_ZERO, UPWARD, DOWNWARD, TOWARD_ZERO, FLUSH_TO_ZERO | UPWARD | DENORMALS_ARE_ZERO],
    ids=hex,
)
def test_an_altered_environment_is_seen(bits):
    assert workers.may_use_floats()
    with control_bits(bits):
        altered = workers.may_use_floats()
    assert not altered
    assert workers.may_use_floats()


def test_nothing_is_trusted_without_compilation():
    probe = "from mxnum.engine.machine import workers; print(workers.may_use_floats())"
    done = subprocess.run(
        [sys.executable, "-c", probe],
        capture_output=True, text=True, check=True, env={**os.environ, "NUMBA_DISABLE_JIT": "1"},
    )  # fmt: skip
    assert done.stdout.strip() == "False"
