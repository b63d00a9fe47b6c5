"""Tests that the check of claim B13 gives the right verdict on made-up losses."""

from __future__ import annotations

import pytest

from mxnum.lab.claims import Verdict
from mxnum.lab.claims.rows import b13
from tests.lab.claims.made_up import arm, table

pytest.importorskip("scipy", reason="the extra 'experiments' is not installed")


def arms(fp8=0.004, hopper=0.0, promoted=0.0, recipe=0.0, spread=1e-3):
    """Return a study with given final losses.

    `fp8` is the amount by which FP8's final loss exceeds float32's. `hopper`, `promoted` and
    `recipe` are the amounts by which the final losses of these arms exceed FP8's. `spread` says how
    much an arm's difference from float32 varies from seed to seed.
    """
    gaps = {"float32": 0.0, b13.FP8: fp8, b13.HOPPER: fp8 + hopper, b13.PROMOTED: fp8 + promoted}
    gaps |= {b13.RECIPE: fp8 + recipe}
    made = {name: arm(gap, spread=spread if name != "float32" else 0) for name, gap in gaps.items()}
    # Make the difference between the Hopper arm and each other arm vary from seed to seed.
    for seed, run in enumerate(made[b13.HOPPER]["runs"]):
        run["evaluation"] += 1e-4 * (seed % 3)
    return table(made, control=b13.FP8)


def held(study):
    return [holds for holds, _ in b13.outcomes(study).values()]


def test_sums_that_cost_nothing():
    assert held(arms()) == [True, False, True, False, True]


def test_sums_that_cost_as_much_as_the_format():
    assert held(arms(hopper=0.01, promoted=0.0, recipe=0.005)) == [True, True, False, True, False]


def test_small_costs_that_are_significant_count():
    assert held(arms(hopper=0.0015))[1] is True


def test_noisy_losses_are_undecided():
    noisy = arms(hopper=0.0015)
    for seed, run in enumerate(noisy["arms"][b13.HOPPER]["runs"]):
        run["evaluation"] += 0.01 * (seed % 2 - 0.5)
    assert held(noisy)[1:4] == [None, None, None]


def test_row_of_the_claim(context, monkeypatch):
    from mxnum.lab.claims import Context

    study = arms()
    for made in study["arms"].values():
        made["experiment"] = dict.fromkeys(("width", "layers", "context", "sequences", "steps", "rate"), 1)
    monkeypatch.setattr(Context, "json", lambda self, name: study)
    found = b13.CLAIM.run(context).of(b13.CLAIM.whose)
    assert found.verdict == Verdict.CONFIRMED
    assert found.answer == (
        "In a small model Hopper's sums change the final loss by +0.0001 nats (+0.0000 to +0.0002), and the FP8 "
        "format changes it by +0.0040. Undecided: large models."
    )
    assert "Hopper's sums raise the loss by less than the format does: yes" in found.note
