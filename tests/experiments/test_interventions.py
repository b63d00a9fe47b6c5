from __future__ import annotations

import pytest

from mxnum.experiments import divergence, interventions
from mxnum.experiments.config import Experiment, uniform_precision
from mxnum.experiments.interventions import Plan, act, actions, summary

pytest.importorskip("scipy", reason="the extra 'experiments' is not installed")
pytest.importorskip("threadpoolctl", reason="the extra 'experiments' is not installed")

BASE = Experiment(width=32, layers=1, batch=32, steps=400, precision=uniform_precision("mxfp4_e2m1"))


def test_every_action_changes_something_and_all_of_the_list_are_there():
    made = actions(BASE)
    assert len(made) == 10
    assert len({BASE, *made.values()}) == 11
    assert made["scale bumped on overflow"].precision.gamma.scale_rule == "rceil"
    assert made["no backward quantization"].precision.weights == BASE.precision.weights
    assert not made["GELU not rounded"].precision.round_activation


def test_the_unperturbed_control_diverges_at_the_same_step(monkeypatch):
    # A loss above 1.2 times its minimum stands in for a real divergence, so that it comes early.
    monkeypatch.setattr(divergence, "FACTOR", 1.2)
    monkeypatch.setattr(divergence, "IN_A_ROW", 2)
    outcome = act(BASE, 1, Plan(lead=4, watch=40, perturbed=2, every=2), lambda line: None)
    assert outcome["diverged"] - outcome["start"] in (4, 5)
    assert outcome["outcomes"]["unperturbed"]["diverged_after"] == outcome["diverged"] - outcome["start"]
    assert len(outcome["outcomes"]) == 13
    table = {"seeds": [outcome], "plan": {"watch": 40}}
    assert "| unperturbed | 1 of 1 |" in summary(table)
    assert "| LN in FP32 |" in summary(table)


def test_no_divergence_is_said():
    said = []
    assert act(BASE.but(steps=5), 1, Plan(), said.append) is None
    assert said == ["seed 1: no divergence in 5 steps"]
    with pytest.raises(ValueError, match="must be one of"):
        interventions.command(type("O", (), {"study": "small", "base": "E9", "lead": 1, "watch": 1, "perturbed": 1})())
