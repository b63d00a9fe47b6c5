"""Interventions shortly before a divergence, everything else identical, beside two kinds of controls.

A single trajectory proves nothing this close to the edge: each seed has an unperturbed control, which must diverge at
the same step again, and controls whose parameters were changed by one part in a million.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from mxnum.experiments import storage
from mxnum.experiments.config import BFLOAT16, FLOAT32, Experiment, Operand, Precision
from mxnum.experiments.divergence import IN_A_ROW
from mxnum.experiments.inference import holm, mean_interval, sign_flip
from mxnum.experiments.loop import Training, load, one_blas_thread, save, train
from mxnum.experiments.machine import machine as machine_named
from mxnum.experiments.studies import Study
from mxnum.experiments.survival import Arm
from mxnum.experiments.sweep import Show, arm_directory, checkpoint_name, run_all, telling

Array = Any
PERTURBATION = 1e-6
#: An action has an effect at this level, after Holm's correction.
LEVEL = 0.05


def actions(base: Experiment) -> dict[str, Experiment]:
    """Row I7: what is changed at the checkpoint."""
    p = base.precision

    def without(*names: str, by: Operand = FLOAT32) -> Experiment:
        return base.but(**dict.fromkeys(names, by))

    mx = ("weights", "activations", "weights_backward", "activations_backward", "gradients")
    bumped = {n: replace(getattr(p, n), scale_rule="rceil") for n in (*mx, "gamma", "beta") if getattr(p, n).is_mx}
    return {
        "FP32": base.but(precision=Precision()),
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


@dataclass(frozen=True)
class Plan:
    """How far before the divergence to act, and how long to watch."""

    lead: int = 300
    watch: int = 1500
    perturbed: int = 4
    every: int = 50


@dataclass(frozen=True)
class Base:
    """A run up to its divergence; `start.npz` is its state some steps before, and `base.json` says when these were.

    Its last states are on disk, so that it can be interrupted. It goes on from a run of the study where a checkpoint of
    one is there that has not diverged, and prolongs itself where more steps are asked for.
    """

    experiment: Experiment
    seeds: tuple[int, ...]
    directory: Path
    plan: Plan
    machine: str = "cpu"
    checkpoint: Path | None = None
    arm: str = "base"

    @property
    def label(self) -> str:
        return f"up to the divergence, seed {self.seeds[0]}"

    @property
    def steps(self) -> int:
        return self.experiment.steps

    def found(self) -> dict[str, Any] | None:
        """When it diverged, and the step of the state before; None where this is not known yet."""
        path = self.directory / "base.json"
        found: dict[str, Any] | None = storage.read_json(path) if path.exists() else None
        return None if found and found["diverged"] is None and found["steps"] < self.steps else found

    def run(self, progress: Any) -> None:
        """Train until the loss rises, or to the end."""
        training = Training(self.experiment, self.seeds, machine_named(self.machine))
        tell = telling(self.label, progress)
        states = {int(path.stem.removeprefix("state-")): path for path in self.directory.glob("state-*.npz")}
        if states:
            load(training, states[max(states)])
        elif self.checkpoint is not None and self.checkpoint.exists() and not _has_diverged(self.checkpoint):
            load(training, self.checkpoint)
        with one_blas_thread():
            while training.step < self.steps and training.runs[0].diverged is None:
                if training.step % self.plan.every == 0 or not states:
                    states[training.step] = self.directory / f"state-{training.step}.npz"
                    save(training, states[training.step])
                    for old in [s for s in states if s < training.step - self.plan.lead - IN_A_ROW - self.plan.every]:
                        states.pop(old).unlink()
                training.advance()
                tell(training.step)
        diverged = training.runs[0].diverged
        found: dict[str, Any] = {"seed": self.seeds[0], "diverged": diverged, "steps": training.step}
        if diverged is None:
            save(training, self.directory / f"state-{training.step}.npz")
        else:
            before = [step for step in states if step <= diverged - self.plan.lead]
            found["start"] = max(before, default=min(states))
            states.pop(found["start"]).replace(self.directory / "start.npz")
            for path in states.values():
                path.unlink()
        storage.write_json(self.directory / "base.json", found)


@dataclass(frozen=True)
class Branch:
    """What becomes of a run from a state of it, under other rules or from slightly other parameters."""

    arm: str
    experiment: Experiment
    seeds: tuple[int, ...]
    directory: Path
    #: Where the state is, and the step of it.
    state: Path
    start: int
    watch: int
    #: Which perturbation, if one.
    perturbed: int | None = None
    machine: str = "cpu"

    @property
    def label(self) -> str:
        return f"{self.arm}, seed {self.seeds[0]}"

    @property
    def steps(self) -> int:
        return self.watch

    def run(self, progress: Any) -> None:
        """Train for the steps of the watch, and save the run."""
        tell, seed = telling(self.label, progress), self.seeds[0]
        arrays = storage.read_arrays(self.state)
        state = {name[6:]: value for name, value in arrays.items() if name.startswith("state_")}
        if self.perturbed is not None:
            normal = np.random.default_rng([seed, self.perturbed]).standard_normal(state["parameters"].shape)[0]
            state["parameters"][0] *= 1 + PERTURBATION * normal
        (run,) = train(
            self.experiment.but(steps=self.start + self.watch), self.seeds, machine=self.machine, state=state,
            checkpoint=self.directory / f"checkpoint-{seed}.npz", report=lambda step, *_: tell(step - self.start),
        )  # fmt: skip
        run.save(self.directory)

    def outcome(self) -> dict[str, Any] | None:
        """In numbers; None if it was not run."""
        path = self.directory / f"seed-{self.seeds[0]}.json"
        if not path.exists():
            return None
        run, losses = storage.read_json(path), storage.read_arrays(path.with_suffix(".npz"))["losses"]
        after = None if run["diverged"] is None else run["diverged"] - self.start
        return {"diverged_after": after, "watched": run["steps"], "last_loss": float(np.median(losses[-50:]))}


def _has_diverged(checkpoint: Path) -> bool:
    return bool((storage.read_arrays(checkpoint)["diverged"] >= 0).any())


def branches(base: Base) -> list[Branch]:
    """The controls and the actions of a run that diverged, from the state before."""
    found = base.found()
    if found is None or found["diverged"] is None:
        return []

    def branch(name: str, experiment: Experiment, perturbed: int | None = None) -> Branch:
        state, start, watch = base.directory / "start.npz", found["start"], base.plan.watch
        folder = arm_directory(base.directory, name)
        return Branch(name, experiment, base.seeds, folder, state, start, watch, perturbed, base.machine)

    controls = [branch(f"perturbed {i + 1}", base.experiment, i) for i in range(base.plan.perturbed)]
    acted = [branch(name, experiment) for name, experiment in actions(base.experiment).items()]
    return [branch("unperturbed", base.experiment), *controls, *acted]


class NothingDivergedError(ValueError):
    """There is nothing to act on."""


def gather(
    study: Study,
    base: str,
    seeds: Iterable[int],
    plan: Plan,
    runs: Path,
    *,
    machine: str = "cpu",
    processes: int | None = None,
    niceness: int = 0,
    say: Callable[[str], None] = print,
    show: Show | None = None,
) -> dict[str, Any]:
    """Each seed of an arm that diverges, and every action from a state of it before: a table for `rows`.

    It may be interrupted: the same call goes on, and what is on disk is not run again. Where a run of the study is
    in the same folder, on the same machine, and its checkpoint is of before a divergence, the seed begins there.
    """
    experiment, own = study.arms[base], arm_directory(runs / study.setting, base)
    name = f"{base}-lead-{plan.lead}-watch-{plan.watch}-{plan.perturbed}"
    folder = arm_directory(runs / study.setting / "interventions", name if machine == "cpu" else f"{name}-{machine}")
    bases = [
        Base(experiment, (s,), folder / f"seed-{s}", plan, machine, own / checkpoint_name((s,), machine)) for s in seeds
    ]
    _all_run([each for each in bases if each.found() is None], processes, niceness, say, show)
    acted = {each: branches(each) for each in bases}
    _all_run([b for each in acted.values() for b in each if b.outcome() is None], processes, niceness, say, show)
    done = [
        (one.found() or {}) | {"outcomes": {branch.arm: branch.outcome() for branch in each}}
        for one, each in acted.items()
        if each
    ]
    if not done:
        raise NothingDivergedError("No seed diverged, so there is nothing to act on; take more seeds or another arm.")
    environment = storage.environment() | dict(machine_named(machine).about)
    return {"study": study.name, "base": base, "plan": vars(plan), "seeds": done, "environment": environment}


def _all_run(tasks: Sequence[Base | Branch], *how: Any) -> None:
    processes, niceness, say, show = how
    failed = run_all(tasks, processes=processes, niceness=niceness, say=say, show=show)
    if failed:
        raise RuntimeError(f"{failed[0]}; the same command tries again.")


@dataclass(frozen=True)
class Row:
    """One action, or one kind of control, over all seeds."""

    name: str
    arm: Arm
    #: Of the exact sign-flip test of the delays, seed by seed, after Holm's correction over all actions; None for
    #: controls.
    p: float | None
    #: Steps gained before the divergence over the perturbed controls of the same seed, the watch counting as its end:
    #: mean, and limits by Student's t over the seeds. None for controls and for one or two seeds.
    delay: tuple[float, float, float] | None
    reading: str

    @property
    def numbers(self) -> str:
        """The evidence in words."""
        words = f"{self.arm.events} of {self.arm.runs} diverged"
        if self.delay is not None:
            mean, low, high = self.delay if self.delay[0] >= 0 else (-self.delay[0], -self.delay[2], -self.delay[1])
            when = "later" if self.delay[0] >= 0 else "sooner"
            words += f", {round(mean)} steps {when} than the perturbed controls of its seed (95 % limits {round(low)} "
            words += f"and {round(high)})"
        return words + ("" if self.p is None else f", exact p {self.p:.2g} after Holm")


def rows(table: dict[str, Any]) -> list[Row]:
    """The controls, then every action against the perturbed controls of the same seeds."""
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
    """A table of the rows."""
    headings = ("from the checkpoint", "rose", "median time", "delay (95 % limits)", "exact p after Holm", "reading")
    lines = ["| " + " | ".join(headings) + " |", "|" + "---|" * len(headings)]
    for row in rows(table):
        median = row.arm.median_time()
        cells = [row.name, f"{row.arm.events} of {row.arm.runs}", "-" if median is None else f"{median:.0f}"]
        cells += ["" if row.delay is None else _delay(row.delay), "" if row.p is None else f"{row.p:.3f}", row.reading]
        lines.append("| " + " | ".join(cells) + " |")
    note = (
        f"Watched for {table['plan']['watch']} steps; a run whose loss did not rise counts with these. Delays are "
        "seed by seed against its perturbed controls, in steps, and tested by all choices of their signs: "
        f"{len(table['seeds'])} seeds cannot give a p-value below {2.0 ** (1 - len(table['seeds'])):.2g}, times the "
        "number of actions."
    )
    return "\n".join([*lines, "", note])


def _delay(delay: tuple[float, float, float]) -> str:
    mean, low, high = delay
    return f"{round(mean)} ({round(low)} to {round(high)})"


def _reading(arm: Arm, delay: tuple[float, float, float] | None, p: float) -> str:
    if delay is None or p >= LEVEL:
        return "no effect shown"
    if delay[0] < 0:
        return "hastened"
    return "averted while watched" if arm.events == 0 else "delayed"
