"""Tests that the check of claim I6a gives the right verdict on made-up results."""

from __future__ import annotations

import pytest

from mxnum.lab.claims.rows import (
    i06a,
)
from tests.lab.claims.made_up import followed, mlp

pytest.importorskip("scipy", reason="the extra 'experiments' is not installed")


def paper(tmp_path, e4m3, fp32, steps=1000):
    arms = {"paper scale, FP32": followed(fp32), "paper scale, E4M3": followed(e4m3, steps)}
    return mlp(tmp_path, "paper-scale", arms)


def test_the_event_at_the_size_of_the_paper_needs_a_calm_control(tmp_path):
    found = i06a.CLAIM.run(paper(tmp_path, [(500, None), None], [None, (100, 200)]))
    assert found.statements[0].holds is True
    assert found.number == "1 of 2 against 1 of 2"
    none = i06a.CLAIM.run(paper(tmp_path, [(500, None), None], [(400, None), None]))
    assert none.statements[0].holds is None
    calm = i06a.CLAIM.run(paper(tmp_path, [None, None], [None, None]))
    assert calm.statements[0].holds is False


def test_a_jump_after_the_planned_steps_does_not_count(tmp_path):
    found = i06a.CLAIM.run(paper(tmp_path, [(1000, None), (999, None)], [None, None], steps=1200))
    assert found.number == "1 of 2 against 0 of 2"
