"""Tests that the check of claim I5 gives the right verdict on made-up results."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mxnum.lab.claims import (
    Statement,
)
from mxnum.lab.claims.rows import (
    i05,
)
from tests.lab.claims.made_up import followed, mlp, runs

pytest.importorskip("scipy", reason="the extra 'experiments' is not installed")


N = 12


TOY = "In the small MLP, zeta, the relative error of the gradient, "


NEVER, ALWAYS = [None] * N, [400 + 10 * i for i in range(N)]


def test_i5(tmp_path):
    found = i05.CLAIM.run(mlp(tmp_path, "confirm", {"E2M1": runs(ALWAYS)}))
    assert [s.holds for s in found.statements] == [True, True, None]
    assert found.answer == TOY + "grows in E2M1 (factor 12.95). Undecided: growth at the paper's size."
    flat = mlp(tmp_path, "confirm", {"E2M1": runs(ALWAYS, [0.1, 0.1, 0.1, 0.1])})
    assert [s.holds for s in i05.CLAIM.run(flat).statements] == [None, False, None]
    shrinking = mlp(tmp_path, "confirm", {"E2M1": runs(ALWAYS, [1.0, 1.0, 0.9, 0.9])})
    assert [s.holds for s in i05.CLAIM.run(shrinking).statements] == [False, False, None]
    both = mlp(tmp_path, "confirm", {"E2M1": runs(ALWAYS, [1.0, 1.0, 0.9, 1.3]), "E4M3": runs(ALWAYS, [1.0] * 4)})
    told = i05.CLAIM.run(both)
    assert "grows in E2M1 (factor 1.10), shows no clear change in E4M3 (factor 1.00)" in told.answer
    assert told.number == "E4M3: factor 1.00, p 1", "the format that the paper speaks of"
    too_short = mlp(tmp_path, "confirm", {"E2M1": runs([150] * 8)})
    assert [s.holds for s in i05.CLAIM.run(too_short).statements] == [None]
    assert not i05.CLAIM.run(too_short).answer


def test_the_answer_of_i5_tells_what_is_undecided():
    order = Statement("E2M1: before the loss rises, zeta is of order 2", None)
    answer, _ = i05._answer({"E2M1": (False, 0.9, 0.001)}, [order])
    assert answer == TOY + "shrinks in E2M1 (factor 0.90). Undecided: whether zeta is of order 2 before a rise."
    answer, _ = i05._answer({"E2M1": (True, 2.0, 0.001)}, [replace(order, holds=True)])
    assert answer == TOY + "grows in E2M1 (factor 2.00)."


FP32, E4M3 = "paper scale, FP32", "paper scale, E4M3"


CALM, AWAY, BACK = None, (500, None), (500, 600)


def test_zeta_is_told_early_and_late_without_the_start(tmp_path):
    # The averages leave out evaluations near a jump and after a jump. Regression: the average was
    # over the last ten evaluations of a run, which were at consecutive steps near the jump.
    made = followed([CALM, (1100, None)])
    for run in made:
        run["measured_at"] = [*range(0, 1100, 50), 1051]
        run["measured"]["zeta"] = [100.0, *[0.2] * 10, 3.0, *[0.4] * 9, None, 9.0]
    made[1]["measured_at"].append(1100)
    made[1]["measured"]["zeta"].append(9.0)
    (found,) = i05.at_the_size_of_the_paper(mlp(tmp_path, "paper-scale", {FP32: followed([CALM]), E4M3: made}))
    assert found.what.startswith("E4M3: zeta grows")
    assert found.numbers == (
        "zeta every 50 steps before any excursion: the mean of the first ten values is 0.20, of the last ten 0.66, and "
        "the largest value is 3.00; 2 runs"
    )
