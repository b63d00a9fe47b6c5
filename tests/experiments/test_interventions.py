from __future__ import annotations

import pytest

from mxnum.experiments import divergence
from mxnum.experiments.config import Experiment, uniform_precision
from mxnum.experiments.interventions import Plan, act, actions, rows, summary

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


def made_up(after, count=10):
    """Seeds whose perturbed controls diverge after 100 and 120 steps, and whose one action does as given."""
    base = {"unperturbed": 110, "perturbed 1": 100, "perturbed 2": 120}
    return {
        "plan": {"watch": 500},
        "seeds": [
            {"outcomes": {k: {"diverged_after": v} for k, v in (base | {"action": after(i)}).items()}}
            for i in range(count)
        ],
    }


@pytest.mark.parametrize(
    ("after", "delay", "reading"),
    [
        (lambda i: None, 390, "averted while watched"),
        (lambda i: 300 + i, 194.5, "delayed"),
        (lambda i: 30 + i, -75.5, "hastened"),
        (lambda i: 110 + (-1) ** i * 50, 0, "no effect shown"),
        (lambda i: 500 if i == 0 else 110, 39, "no effect shown"),
    ],
)
def test_readings(after, delay, reading):
    row = rows(made_up(after))[-1]
    assert row.delay[0] == pytest.approx(delay)
    assert row.reading == reading
    assert row.arm.runs == 10
    when = "later" if delay >= 0 else "sooner"
    assert f", {round(abs(delay))} steps {when} than the perturbed controls of its seed (95 % limits " in row.numbers
    low, high = sorted(limit if delay >= 0 else -limit for limit in row.delay[1:])
    assert f"(95 % limits {round(low)} and {round(high)}), exact p" in row.numbers
    two, five = (rows(made_up(after, count=count))[-1] for count in (2, 5))
    assert (two.delay, two.reading) == (None, "no effect shown")
    assert five.reading == "no effect shown"  # five seeds cannot give a p-value below 1 / 16


def test_no_divergence_is_said():
    said = []
    assert act(BASE.but(steps=5), 1, Plan(), said.append) is None
    assert said == ["seed 1: no divergence in 5 steps"]
