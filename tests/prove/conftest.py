"""Skips the tests of proofs where no solver is installed."""

from __future__ import annotations

import pytest

pytest.importorskip("z3", reason="the extra prove is not installed")
