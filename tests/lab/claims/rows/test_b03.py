"""Tests of claim B3 in a real training run."""

from __future__ import annotations

import pytest

from mxnum.lab.claims import (
    Context,
    Verdict,
)
from mxnum.lab.claims.rows import b03

pytest.importorskip("scipy", reason="the extra 'experiments' is not installed")


def test_b3_in_a_real_run(tmp_path):
    pytest.importorskip("threadpoolctl", reason="the extra 'experiments' is not installed")
    found = b03.CLAIM.run(Context(tmp_path))
    assert found.verdict == Verdict.REPRODUCED, [str(s) for s in found.statements]
