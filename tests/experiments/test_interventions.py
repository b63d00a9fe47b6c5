from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from mxnum.experiments import interventions, storage
from mxnum.experiments.config import Experiment, uniform_precision
from mxnum.experiments.interventions import (
    Base,
    NothingDivergedError,
    Plan,
    actions,
    branches,
    gather,
    rows,
    summary,
)
from mxnum.experiments.loop import Training, train
from mxnum.experiments.studies import Study

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


#: Diverges at step 24 on seed 2.
SOON = Experiment(width=32, layers=2, batch=32, steps=300, optimizer="sgd", rate=5, precision=BASE.precision)
PLAN = Plan(lead=10, watch=40, perturbed=2, every=5)


def test_the_unperturbed_control_diverges_at_the_same_step(tmp_path):
    base = Base(SOON, (2,), tmp_path, PLAN)
    assert branches(base) == []
    base.run(None)
    found = base.found()
    assert 10 <= found["diverged"] - found["start"] < 15
    made = branches(base)
    assert len(made) == 1 + 2 + 10
    for branch in made[:4]:
        assert branch.outcome() is None
        branch.run(None)
    outcomes = {branch.arm: branch.outcome() for branch in made[:4]}
    assert list(outcomes) == ["unperturbed", "perturbed 1", "perturbed 2", "FP32"]
    assert outcomes["unperturbed"]["diverged_after"] == found["diverged"] - found["start"]
    losses = [storage.read_arrays(b.directory / "seed-2.npz")["losses"] for b in made[:4]]
    (whole,) = train(SOON.but(steps=found["start"] + 40), (2,))
    np.testing.assert_array_equal(losses[0], whole.losses[found["start"] :])
    assert len({tuple(each) for each in losses}) == 4
    np.testing.assert_allclose(losses[1][:2], losses[0][:2], rtol=1e-4)
    table = {"seeds": [found | {"outcomes": outcomes}], "plan": {"watch": 40}}
    assert "| unperturbed | 1 of 1 |" in summary(table)
    assert "| FP32 |" in summary(table)


def test_a_base_goes_on_where_it_was_left_and_from_a_run_of_the_study(tmp_path):
    """In the same bits; but not from a run that has diverged."""
    Base(SOON, (2,), tmp_path / "whole", PLAN).run(None)
    whole = Base(SOON, (2,), tmp_path / "whole", PLAN).found()
    before, after = whole["start"], whole["diverged"] + 30

    short = Base(SOON.but(steps=before), (2,), tmp_path / "short", PLAN)
    short.run(None)
    assert short.found()["diverged"] is None
    longer = replace(short, experiment=SOON)
    assert longer.found() is None
    longer.run(None)
    assert longer.found() == whole

    for steps in (before, after):
        own = tmp_path / f"{steps}.npz"
        train(SOON.but(steps=steps), (2,), checkpoint=own, keep_checkpoint=True)
        base = Base(SOON, (2,), tmp_path / f"from {steps}", PLAN, checkpoint=own)
        base.run(None)
        assert base.found() == whole
        assert [path.name for path in base.directory.glob("*.npz")] == ["start.npz"]


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


def test_a_branch_that_is_interrupted_goes_on(tmp_path, monkeypatch):
    base = Base(SOON, (2,), tmp_path, PLAN)
    base.run(None)
    branch = branches(base)[1]
    branch.run(None)
    whole = storage.read_arrays(branch.directory / "seed-2.npz")["losses"]
    (branch.directory / "seed-2.json").unlink()

    def stop(self, *arguments, advance=Training.advance, at=base.found()["start"] + 20):
        if self.step == at:
            raise KeyboardInterrupt
        return advance(self, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr(Training, "advance", stop)
        patch.setattr(interventions, "train", partial(train, checkpoint_every=5))
        with pytest.raises(KeyboardInterrupt):
            branch.run(None)
    assert branch.outcome() is None
    branch.run(None)
    np.testing.assert_array_equal(storage.read_arrays(branch.directory / "seed-2.npz")["losses"], whole)


def test_where_nothing_diverges_there_is_nothing_to_act_on(tmp_path):
    study = Study("toy", "?", {"E2M1": BASE.but(steps=5)}, 1, "E2M1")
    with pytest.raises(NothingDivergedError, match="No seed diverged"):
        gather(study, "E2M1", [1], PLAN, tmp_path, processes=1, say=lambda line: None)
