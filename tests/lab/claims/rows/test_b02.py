"""Tests that the check of claim B2 gives the right verdict on made-up results."""

from __future__ import annotations

import json

import pytest

from mxnum.lab.claims import (
    Context,
)
from mxnum.lab.claims.rows import (
    b02,
)

pytest.importorskip("scipy", reason="the extra 'experiments' is not installed")


def test_b2(tmp_path):
    def row(deviation, common, ratios, predicted, mean=0):
        return {"mean": mean, "deviation": deviation, "common": common, "ratios": ratios, "predicted": predicted}

    rows = [
        row(0, False, [2.0, 1.99, 2.01, 2.0], 2.0, mean=-0.5),
        row(1, True, [0.9, 0.9, 0.91, 0.89], 0.5),  # The measurement is 0.9, but 0.5 is predicted.
        row(1, True, [0.3, 0.5, 0.7, 0.5], 0.5),  # The measurement is too imprecise to decide.
        row(1, False, [0.9, 0.9, 0.91, 0.89], 0.5),
        row(1, False, [0.3, 0.5, 0.7, 0.9], 0.5),
        row(1, False, [0.4, 0.41, 0.4, 0.39], 0.5),
    ]
    experiment = {"width": 1, "layers": 1, "batch": 1, "steps": 1}
    (tmp_path / "sgd-limits.json").write_text(json.dumps({"rows": rows, "experiment": experiment, "seeds": [1]}))
    found = b02.CLAIM.run(Context(tmp_path))
    assert all(c.agrees for c in found.comparisons)
    assert [s.holds for s in found.statements] == [True, False, None, True, None, False]
    assert "On the MLP, a bias acts as predicted. Not as predicted: noise common to all elements and" in found.answer
    for kept, told in (
        (rows[:1] + rows[3:4], "On the MLP, a bias and independent noise for each element act as predicted."),
        (rows[2:3], "Undecided:"),
    ):
        (tmp_path / "sgd-limits.json").write_text(json.dumps({"rows": kept, "experiment": experiment, "seeds": [1]}))
        assert told in b02.CLAIM.run(Context(tmp_path)).answer


def test_the_simulated_quadratic_is_not_its_formula():
    assert b02.on_a_quadratic(0, 0.5, 0.9).agrees
    below, above = (b02.on_a_quadratic(0.2, 0.5, x) for x in (0.9, 1.1))
    assert below.found < 1 < above.found
    wrong = b02.on_a_quadratic(0, 0.5, 1.0)
    assert abs(wrong.found - 1) < wrong.tolerance
    assert abs(wrong.found - b02.on_a_quadratic(0, 0.5, 0.9).claimed) > wrong.tolerance
