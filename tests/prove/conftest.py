"""Skip the tests of `prove` if the solver z3 is not installed."""

from __future__ import annotations

import pytest

pytest.importorskip("z3", reason="the extra prove is not installed")
