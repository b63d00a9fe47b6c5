"""Change runs shortly before they diverge (interventions), and run two kinds of controls.

Shortly before a divergence, a tiny change of the parameters can move the divergence, so a single
changed run proves nothing. Each seed therefore has an unperturbed control and perturbed controls.
The unperturbed control must diverge at the same step as the original run. In a perturbed control,
each parameter is changed by about one part in a million.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from mxnum.lab import storage
from mxnum.lab.mlp.config import Experiment
from mxnum.lab.mlp.divergence import IN_A_ROW
from mxnum.lab.mlp.loop import Training, origin, save, train
from mxnum.lab.mlp.machine import machine as machine_named
from mxnum.lab.studies.report import read_run
from mxnum.lab.studies.run_study import run_study
from mxnum.lab.studies.statistics import Arm, holm, mean_interval, sign_flip
from mxnum.lab.studies.study import Study
from mxnum.lab.studies.sweep import Failure, Show, Task, arm_directory, run_all, telling
from mxnum.output.text_table import markdown_table
from mxnum.recipe import BFLOAT16, FLOAT32, Operand, Recipe

Array = Any
PERTURBATION = 1e-6
#: The level of significance of an effect, after Holm's correction.
LEVEL = 0.05


def actions(base: Experiment) -> dict[str, Experiment]:
    """Return the interventions of claim I7 by name; each of them is `base` with one change."""
    p = base.precision

    def without(*names: str, by: Operand = FLOAT32) -> Experiment:
        return base.but(**dict.fromkeys(names, by))

    mx = ("weights", "activations", "weights_backward", "activations_backward", "gradients")
    bumped = {n: replace(getattr(p, n), scale_rule="rceil") for n in (*mx, "gamma", "beta") if getattr(p, n).is_mx}
    changed = {
        "FP32": base.but(precision=Recipe()),
        "scale bumped on overflow": base.but(**bumped),
        "LN in FP32": without("gamma", "beta"),
        "LN in bfloat16": without("gamma", "beta", by=BFLOAT16),
        "activations bfloat16, forward": without("activations", by=BFLOAT16),
        "activations bfloat16, everywhere": without("activations", "activations_backward", "gradients", by=BFLOAT16),
        "no backward quantization": without("weights_backward", "activations_backward", "gradients"),
        "GELU not rounded": base.but(round_activation=False),
        "weights bfloat16": without("weights", "weights_backward", by=BFLOAT16),
        "beta2 0.95": base.but(betas=(0.9, 0.95)),
    }
    return {name: experiment for name, experiment in changed.items() if experiment != base}


@dataclass(frozen=True)
class Plan:
    """A plan to intervene `lead` steps before the divergence, and then to train `watch` steps.

    The step of an intervention is rounded down to a multiple of `every`. `perturbed` is the number
    of perturbed controls of each seed.
    """

    lead: int = 300
    watch: int = 1500
    perturbed: int = 4
    every: int = 50


@dataclass(frozen=True, kw_only=True)
class Approach(Task):
    """A repetition of a run up to step `start`, which lies before the divergence of the run.

    The state at step `start` is stored in `start.npz`. The repetition begins at the latest
    checkpoint of the original run that is not after step `start`. If there is none, the repetition
    begins at step 0.
    """

    start: int
    #: The folder of the original run.
    own: Path
    arm: str = "before the divergence"

    @property
    def steps(self) -> int:
        return self.start

    @property
    def seed(self) -> int:
        return self.seeds[0]

    @property
    def state(self) -> Path:
        return self.directory / "start.npz"

    def run(self, progress: Any = None) -> None:
        """Train up to the step at which branches start, and store the state."""
        way = self.directory / "way.npz"
        if self.start:
            tell, experiment = telling(self.label, progress), self.configuration.but(steps=self.start)
            train(
                experiment, self.seeds, machine=self.machine, state=self._checkpoint(), checkpoint=way,
                keep_checkpoint=True, report=lambda step, *_: tell(step),
            )  # fmt: skip
        else:
            save(Training(self.configuration, self.seeds, machine_named(self.machine)), way)
        way.replace(self.state)

    def _checkpoint(self) -> dict[str, Array] | None:
        found = None
        for path in self.own.glob("checkpoint-*.npz"):
            arrays = storage.read_arrays(path)
            experiment, about = origin(arrays)
            fits = experiment is not None and experiment.but(steps=self.configuration.steps) == self.configuration
            if fits and self.seed in about["seeds"] and _is_here(about["environment"], self.machine):
                state = _row_of_state(arrays, about["seeds"].index(self.seed))
                if state["step"] <= self.start and (found is None or state["step"] > found["step"]):
                    found = state
        return found


@dataclass(frozen=True, kw_only=True)
class Branch(Task):
    """The rest of a run after its `Approach`, with an intervention, a perturbation or no change."""

    approach: Approach
    watch: int
    #: The index of the perturbed control, from 0; None for a branch without a perturbation.
    perturbed: int | None = None

    @property
    def steps(self) -> int:
        return self.watch

    def run(self, progress: Any = None) -> None:
        """Train for `watch` steps, and save the run."""
        (seed,), tell, start = self.seeds, telling(self.label, progress), self.approach.start
        state = _row_of_state(storage.read_arrays(self.approach.state), 0)
        if self.perturbed is not None:
            normal = np.random.default_rng([seed, self.perturbed]).standard_normal(state["parameters"].shape)[0]
            state["parameters"][0] *= 1 + PERTURBATION * normal
        (run,) = train(
            self.configuration.but(steps=start + self.watch), self.seeds, machine=self.machine, state=state,
            checkpoint=self.directory / f"checkpoint-{seed}.npz", report=lambda step, *_: tell(step - start),
        )  # fmt: skip
        run.save(self.directory)
        (self.directory / f"failed-{seed}.txt").unlink(missing_ok=True)

    def outcome(self) -> dict[str, Any] | None:
        """Return the outcome as a dictionary; None if the branch was not run."""
        path, start = self.directory / f"seed-{self.seeds[0]}.json", self.approach.start
        if not path.exists():
            return None
        run = read_run(path, self.arm, self.configuration)
        last = storage.read_arrays(path.with_suffix(".npz"))["losses"][-50:]
        after = None if run["diverged"] is None else run["diverged"] - start
        return {"diverged_after": after, "watched": run["steps"], "last_loss": float(np.median(last))}


def branches(approach: Approach, plan: Plan) -> list[Branch]:
    """Return the runs that branch off from an approach: controls and interventions."""

    def branch(arm: str, experiment: Experiment, perturbed: int | None = None) -> Branch:
        directory = arm_directory(approach.directory, f"{arm}, {plan.watch} steps")
        return Branch(
            arm=arm, configuration=experiment, seeds=approach.seeds, directory=directory, machine=approach.machine,
            approach=approach, watch=plan.watch, perturbed=perturbed,
        )  # fmt: skip

    base = approach.configuration
    controls = [branch(f"perturbed {i + 1}", base, i) for i in range(plan.perturbed)]
    acted = [branch(name, experiment) for name, experiment in actions(base).items()]
    return [branch("unperturbed", base), *controls, *acted]


def _row_of_state(arrays: dict[str, Array], index: int) -> dict[str, Array]:
    """Return the state of one run in a checkpoint."""
    state = {name[6:]: value for name, value in arrays.items() if name.startswith("state_")}
    return {name: value if value.ndim == 0 else value[index : index + 1] for name, value in state.items()}


def _is_here(environment: dict[str, Any], machine: str) -> bool:
    """Return True if this machine adds with the same bits as the environment of a stored run."""
    here = storage.environment() | dict(machine_named(machine).about)
    return all(environment.get(name) == here.get(name) for name in ("blas", "products", "gpu", "cupy"))


class NothingDivergedError(ValueError):
    """Raised if no run diverged, so that no intervention is possible."""


def gather(
    study: Study,
    base: str,
    plan: Plan,
    runs: Path,
    *,
    seeds: int = 1,
    first_seed: int | None = None,
    machine: str = "cpu",
    processes: int | None = None,
    niceness: int = 0,
    say: Callable[[str], None] = print,
    show: Show | None = None,
) -> dict[str, Any]:
    """Apply every intervention shortly before each seed of an arm diverges, and return a table.

    The original runs are the study's runs in the folder `runs`; missing runs are trained first.
    After an interruption, the same call continues and does not repeat stored runs. Call this
    function under ``if __name__ == "__main__":``, like `run_study`.
    """
    experiment, own = study.arms[base], arm_directory(runs / study.folder, base)
    first = study.first_seed if first_seed is None else first_seed
    how: dict[str, Any] = {"processes": processes, "niceness": niceness, "say": say, "show": show}
    trained = run_study(
        study, runs, arms=[base], seeds=seeds, first_seed=first, stack=3, machine=machine, **how
    )  # fmt: skip
    _raise_for(trained.failed)
    folder = arm_directory(runs / study.folder / "interventions", base if machine == "cpu" else f"{base}-{machine}")
    diverged, all_branches = {}, {}
    for seed in range(first, first + seeds):
        run = read_run(own / f"seed-{seed}.json", base, experiment)
        if run["diverged"] is not None:
            start = max(run["diverged"] - plan.lead, 0) // plan.every * plan.every
            approach = Approach(
                configuration=experiment, seeds=(seed,), directory=folder / f"seed-{seed}-from-{start}",
                machine=machine, start=start, own=own,
            )  # fmt: skip
            diverged[seed], all_branches[seed] = run["diverged"], branches(approach, plan)
    if not diverged:
        raise NothingDivergedError("No seed diverged, so no intervention is possible; try more seeds or another arm.")
    left = [b for each in all_branches.values() for b in each if b.outcome() is None]
    ways = dict.fromkeys(b.approach for b in left if not b.approach.state.exists())
    failed = run_all(list(ways), **how)
    failed += run_all([b for b in left if b.approach.state.exists()], **how)
    _raise_for(failed)
    done = [_of_seed(each, diverged[seed], plan) for seed, each in all_branches.items()]
    environment = storage.environment() | dict(machine_named(machine).about)
    return {"study": study.name, "base": base, "plan": vars(plan), "seeds": done, "environment": environment}


def _of_seed(each: list[Branch], diverged: int, plan: Plan) -> dict[str, Any]:
    """Return the outcomes of all branches of a seed.

    Raise ValueError if the unperturbed control does not repeat the divergence of the original run.
    """
    approach = each[0].approach
    outcomes = {branch.arm: branch.outcome() for branch in sorted(each, key=lambda branch: branch.arm)}  # as stored
    again = (outcomes["unperturbed"] or {})["diverged_after"]
    after = diverged - approach.start
    if again != after and after <= plan.watch - IN_A_ROW:
        raise ValueError(
            f"The run in folder {str(approach.own)!r} diverged at step {diverged}, but the unperturbed control "
            f"of seed {approach.seed} did not diverge at this step. The original run was probably made on another "
            "machine; use another folder."
        )
    return {"seed": approach.seed, "diverged": diverged, "start": approach.start, "outcomes": outcomes}


class RunsFailedError(RuntimeError):
    """Raised if some runs ended with an exception."""

    def __init__(self, failures: list[Failure]) -> None:
        super().__init__("; ".join(map(str, failures)) + "; run the same command to try again.")
        self.failures = failures


def _raise_for(failures: list[Failure]) -> None:
    if failures:
        raise RunsFailedError(failures)


@dataclass(frozen=True)
class Row:
    """The results of one intervention, or of one kind of control, over all seeds."""

    name: str
    arm: Arm
    #: The p-value of the exact sign-flip test of the seeds' delays, after Holm's correction over
    #: all interventions; None for controls.
    p: float | None
    #: The delay of the divergence in steps, relative to the perturbed controls of the same seed.
    #: The three numbers are the mean over seeds and its lower and upper limit by Student's t. A run
    #: without a divergence counts as diverged at its last step. The delay is None for controls, and
    #: if there are fewer than three seeds.
    delay: tuple[float, float, float] | None
    reading: str

    @property
    def numbers(self) -> str:
        """A text with the counts, the delay and the p-value."""
        words = f"{self.arm.events} of {self.arm.runs} diverged"
        if self.delay is not None:
            mean, low, high = self.delay if self.delay[0] >= 0 else (-self.delay[0], -self.delay[2], -self.delay[1])
            when = "later" if self.delay[0] >= 0 else "sooner"
            words += (
                f", {round(mean)} steps {when} than the perturbed controls of the same seeds (95 % limits {round(low)} "
            )
            words += f"and {round(high)})"
        return words + ("" if self.p is None else f", exact p {self.p:.2g} after Holm")


def rows(table: dict[str, Any]) -> list[Row]:
    """Return rows for controls, then rows that compare interventions with perturbed controls."""
    seeds, watch = table["seeds"], table["plan"]["watch"]
    names = list(seeds[0]["outcomes"])
    perturbed = [name for name in names if name.startswith("perturbed")]

    def after(seed: dict[str, Any], name: str) -> int | None:
        found: int | None = seed["outcomes"][name]["diverged_after"]
        return found

    def arm(name: str, keys: list[str]) -> Arm:
        first = [after(seed, key) for seed in seeds for key in keys]
        return Arm.of(name, first, [watch] * len(first), watch)

    def restricted(seed: dict[str, Any], name: str) -> float:
        first = after(seed, name)
        return float(watch if first is None else min(first, watch))

    acted = [name for name in names if name not in ("unperturbed", *perturbed)]
    gained = {
        name: [restricted(s, name) - float(np.mean([restricted(s, key) for key in perturbed])) for s in seeds]
        for name in acted
    }
    p = holm({name: sign_flip(values) for name, values in gained.items()})
    control = arm("perturbed", perturbed)
    result = [Row("unperturbed", arm("unperturbed", ["unperturbed"]), None, None, "control")]
    result.append(Row("perturbed", control, None, None, "control"))
    for name in acted:
        this, delay = arm(name, [name]), mean_interval(gained[name])
        result.append(Row(name, this, p[name], delay, _reading(this, delay, p[name])))
    return result


def summary(table: dict[str, Any]) -> str:
    """Return a Markdown table of the rows."""
    headings = ("from the checkpoint", "rose", "median time", "delay (95 % limits)", "exact p after Holm", "reading")
    found = []
    for row in rows(table):
        median = row.arm.median_time()
        cells = [row.name, f"{row.arm.events} of {row.arm.runs}", "-" if median is None else f"{median:.0f}"]
        cells += ["" if row.delay is None else _delay(row.delay), "" if row.p is None else f"{row.p:.3f}", row.reading]
        found.append(cells)
    note = (
        f"Runs were watched for {table['plan']['watch']} steps; a run whose loss did not rise counts with this "
        "number. A delay is the number of steps by which the loss rises later than in the perturbed controls of "
        "the same seed. The p-value is the share of all choices of the delays' signs whose mean is at least as far "
        f"from 0, so {len(table['seeds'])} seeds cannot give a p-value below {2.0 ** (1 - len(table['seeds'])):.2g}, "
        "even before Holm's correction."
    )
    return f"{markdown_table(headings, found)}\n\n{note}"


def _delay(delay: tuple[float, float, float]) -> str:
    mean, low, high = delay
    return f"{round(mean)} ({round(low)} to {round(high)})"


def _reading(arm: Arm, delay: tuple[float, float, float] | None, p: float) -> str:
    if delay is None or p >= LEVEL:
        return "no effect shown"
    if delay[0] < 0:
        return "hastened"
    return "averted while watched" if arm.events == 0 else "delayed"
