from __future__ import annotations

import shutil
from functools import partial

import numpy as np
import pytest

from mxnum.lab import storage
from mxnum.lab.mlp.config import Experiment, uniform_precision
from mxnum.lab.mlp.loop import Training, train
from mxnum.lab.studies import interventions
from mxnum.lab.studies.interventions import (
    Approach,
    NothingDivergedError,
    Plan,
    RunsFailedError,
    actions,
    branches,
    gather,
    rows,
    summary,
)
from mxnum.lab.studies.study import Study
from mxnum.recipe import BFLOAT16, Operand

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
    has_one = BASE.but(gamma=BFLOAT16, beta=BFLOAT16)
    assert set(made) - set(actions(has_one)) == {"LN in bfloat16"}


#: An experiment that diverges at step 24 with seed 2, and does not diverge with seed 1.
SOON = Experiment(width=32, layers=2, batch=32, steps=60, optimizer="sgd", rate=5, precision=BASE.precision)
TOY = Study("toy", "?", {"soon": SOON}, 1, "soon")
PLAN = Plan(lead=10, watch=40, perturbed=2, every=5)


def quiet(line):
    """Ignore a line of progress."""


def approached(folder, start=10):
    approach = Approach(configuration=SOON, seeds=(2,), directory=folder, start=start, own=folder / "own")
    approach.run(None)
    return approach


@pytest.fixture(scope="module")
def gathered(tmp_path_factory):
    """Run two seeds with interventions in one worker process; return the folder and the table."""
    folder = tmp_path_factory.mktemp("gathered")
    return folder, gather(TOY, "soon", PLAN, folder, seeds=2, first_seed=1, processes=1, say=quiet)


def test_each_seed_that_diverges_is_acted_on(gathered):
    folder, table = gathered
    (only,) = table["seeds"]
    assert (only["seed"], only["diverged"], only["start"]) == (2, 24, 10)
    assert list(only["outcomes"]) == sorted(["unperturbed", "perturbed 1", "perturbed 2", *actions(SOON)])
    assert only["outcomes"]["unperturbed"]["diverged_after"] == 14
    assert {each["watched"] for each in only["outcomes"].values()} == {40}
    assert "| unperturbed | 1 of 1 |" in summary(table)
    said = []
    again = gather(TOY, "soon", PLAN, folder, seeds=2, first_seed=1, say=said.append)
    assert repr(again["seeds"]) == repr(table["seeds"])
    assert said == ["toy: 1 arms, 2 seeds from 1, 0 tasks to do."]


def test_branches_begin_in_the_state_that_the_run_had(tmp_path):
    made = {branch.arm: branch for branch in branches(approached(tmp_path), PLAN)}
    losses = {}
    for name in ("unperturbed", "perturbed 1", "perturbed 2", "FP32"):
        assert made[name].outcome() is None
        made[name].run(None)
        losses[name] = storage.read_arrays(made[name].directory / "seed-2.npz")["losses"]
    (whole,) = train(SOON, (2,))
    np.testing.assert_array_equal(losses["unperturbed"], whole.losses[10:50])
    assert len({tuple(each) for each in losses.values()}) == 4
    np.testing.assert_allclose(losses["perturbed 1"][:2], losses["unperturbed"][:2], rtol=1e-4)


def test_the_first_step_is_a_state_too(tmp_path):
    branch = branches(approached(tmp_path, start=0), PLAN)[0]
    branch.run(None)
    assert branch.outcome()["diverged_after"] == 24


@pytest.mark.parametrize(
    ("checkpoint", "begins_at"),
    [(8, 8), (10, 10), (12, 0), ("another rate", 0), ("another machine", 0), ("two seeds", 8)],
)
def test_training_starts_from_a_checkpoint_of_the_same_run(tmp_path, monkeypatch, checkpoint, begins_at):
    """Check that training starts from an earlier checkpoint of the same experiment and machine."""
    experiment, steps = SOON, checkpoint if isinstance(checkpoint, int) else 8
    if checkpoint == "another rate":
        experiment = SOON.but(rate=4)
    seeds = (1, 2) if checkpoint == "two seeds" else (2,)
    train(experiment.but(steps=steps), seeds, checkpoint=tmp_path / "own/checkpoint-1.npz", keep_checkpoint=True)
    if checkpoint == "another machine":
        monkeypatch.setattr(storage, "_blas", lambda: "another")
    seen = []

    def advance(self, *arguments, real=Training.advance):
        seen.append(self.step)
        return real(self, *arguments)

    monkeypatch.setattr(Training, "advance", advance)
    approach = approached(tmp_path)
    assert seen == list(range(begins_at, 10))
    monkeypatch.undo()
    (whole,) = train(SOON, (2,))
    branch = branches(approach, PLAN)[0]
    branch.run(None)
    assert branch.outcome()["diverged_after"] == 14
    np.testing.assert_array_equal(storage.read_arrays(branch.directory / "seed-2.npz")["losses"], whole.losses[10:50])


@pytest.mark.parametrize("what", ["approach", "branch"])
def test_what_is_interrupted_goes_on(tmp_path, monkeypatch, what):
    approach = Approach(configuration=SOON, seeds=(2,), directory=tmp_path, start=10, own=tmp_path / "own")
    if what == "branch":
        approach.run(None)
    work = approach if what == "approach" else branches(approach, PLAN)[1]

    def stop(self, *arguments, advance=Training.advance):
        if self.step == (7 if what == "approach" else 30):
            raise KeyboardInterrupt
        return advance(self, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr(Training, "advance", stop)
        patch.setattr(interventions, "train", partial(train, checkpoint_every=5))
        with pytest.raises(KeyboardInterrupt):
            work.run(None)
    work.run(None)
    whole = branches(approached(tmp_path / "whole"), PLAN)[1]
    branch = branches(approach, PLAN)[1]
    for each in (whole, branch):
        each.run(None)
    found = [storage.read_arrays(each.directory / "seed-2.npz")["losses"] for each in (whole, branch)]
    np.testing.assert_array_equal(*found)


def test_a_run_that_was_made_elsewhere_is_not_acted_on(tmp_path, gathered):
    copy = shutil.copytree(gathered[0], tmp_path / "copy")
    (path,) = (copy / TOY.folder / "soon").glob("seed-2.json")
    storage.write_json(path, storage.read_json(path) | {"diverged": 23})
    with pytest.raises(ValueError, match=r"step 23, but the unperturbed control of seed 2 did not.* another machine"):
        gather(TOY, "soon", PLAN, copy, first_seed=2, processes=0, say=quiet)


def made_up(after, count=10):
    """Return a table in which the intervention run of seed i diverges after `after(i)` steps."""
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
def test_reading_of_delayed_and_hastened_jumps(after, delay, reading):
    row = rows(made_up(after))[-1]
    assert row.delay[0] == pytest.approx(delay)
    assert row.reading == reading
    assert row.arm.runs == 10
    when = "later" if delay >= 0 else "sooner"
    assert (
        f", {round(abs(delay))} steps {when} than the perturbed controls of the same seeds (95 % limits " in row.numbers
    )
    low, high = sorted(limit if delay >= 0 else -limit for limit in row.delay[1:])
    assert f"(95 % limits {round(low)} and {round(high)}), exact p" in row.numbers
    two, five = (rows(made_up(after, count=count))[-1] for count in (2, 5))
    assert (two.delay, two.reading) == (None, "no effect shown")
    assert five.reading == "no effect shown"  # with five seeds the p-value is at least 1 / 16


def test_where_nothing_diverges_there_is_nothing_to_act_on(tmp_path):
    with pytest.raises(NothingDivergedError, match="No seed diverged"):
        gather(TOY, "soon", PLAN, tmp_path, first_seed=1, processes=0, say=quiet)


def test_failing_run_is_named(tmp_path):
    broken = SOON.but(weights=Operand("mxfp4_e2m1", scale_rule="released_bump", block_size=24))
    study = Study("toy", "?", {"broken": broken}, 1, "broken")
    with pytest.raises(RunsFailedError, match=r"broken, seed 2: .*; run the same command to try again") as caught:
        gather(study, "broken", PLAN, tmp_path, first_seed=2, processes=0, say=quiet)
    assert [failure.seed for failure in caught.value.failures] == [2]
