"""Tests that the check of claim I6c gives the right verdict on made-up results."""

from __future__ import annotations

import pytest

from mxnum.lab.claims import (
    Verdict,
    Whose,
)
from mxnum.lab.claims.rows import (
    i06c,
)
from tests.lab.claims.made_up import followed, mlp

pytest.importorskip("scipy", reason="the extra 'experiments' is not installed")


N = 12


CALM, LOST, BACK = [None] * N, [(100 + i, None) for i in range(N)], [(100 + i, 200) for i in range(N)]


def quick(tmp_path, e2m1, fp32):
    return mlp(tmp_path, "quick", {"FP32": followed(fp32), "E2M1": followed(e2m1)}, horizon=500)


def test_e2m1_is_judged_by_the_start_of_its_runaways(tmp_path):
    found = i06c.CLAIM.run(quick(tmp_path, LOST, BACK)).of(Whose.OURS)
    assert [s.holds for s in found.statements] == [True]
    assert found.verdict == Verdict.CONFIRMED
    assert found.answer == (
        "Runs in 4 bits run away sooner than in FP32: with everything in E2M1 12 of 12 runs are lost, in FP32 0 of 12, "
        "at rate "
        "0.034."
    )
    assert found.number == "p = 0.00049"
    same = i06c.CLAIM.run(quick(tmp_path, LOST[:6] + BACK[6:], BACK[:6] + LOST[6:]))
    assert [s.holds for s in same.statements] == [None]
    assert same.answer.startswith("No difference between 4 bits and FP32 is shown: ")
    reverse = i06c.CLAIM.run(quick(tmp_path, BACK, LOST))
    assert [s.holds for s in reverse.statements] == [False]
    assert reverse.answer.startswith("Runs in 4 bits run away later than in FP32: ")
