"""Tests that the check of claim I8 gives the right verdict on made-up results."""

from __future__ import annotations

import pytest

from mxnum.lab.claims.rows import (
    i08,
)
from tests.lab.claims.made_up import mlp, runs

pytest.importorskip("scipy", reason="the extra 'experiments' is not installed")


N = 12


NEVER, ALWAYS = [None] * N, [400 + 10 * i for i in range(N)]


def test_i8(tmp_path):
    arms = {f"{a}{s}, {k}": runs(NEVER) for a in ("gelu", "swiglu") for s in ("", ", no LN") for k in ("FP32", "E2M1")}
    arms |= {"gelu, E2M1": runs(ALWAYS), "swiglu, E2M1": runs([50 + i for i in range(N)])}
    arms |= {"gelu, no LN, FP32": runs(ALWAYS)}
    found = i08.CLAIM.run(mlp(tmp_path, "ablations", arms))
    assert [s.holds for s in found.statements] == [True, True, True, None, None, None]
    assert "a hundredfold rise of a very low loss is not an excursion" in found.statements[3].numbers
    assert not found.answer, "there is an answer only if no statement is decided"
    alike = i08.CLAIM.run(mlp(tmp_path, "ablations", dict.fromkeys(arms, runs(NEVER))))
    assert "jumps in 0 of 12 runs with gelu (in FP32: 0) and in 0 of 12 runs with swiglu (in FP32: 0)." in alike.answer
