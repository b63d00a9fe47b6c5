"""Interventions shortly before a divergence, everything else identical, beside two kinds of controls.

A single trajectory proves nothing this close to the edge: each seed has an unperturbed control, which must diverge at
the same step again, and controls whose parameters were changed by one part in a million.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from mxnum.experiments import storage
from mxnum.experiments.config import BFLOAT16, FLOAT32, Experiment, Operand, Precision
from mxnum.experiments.divergence import IN_A_ROW
from mxnum.experiments.inference import holm, mean_interval, sign_flip
from mxnum.experiments.loop import Training, one_blas_thread
from mxnum.experiments.studies import Study
from mxnum.experiments.survival import Arm

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


def act(base: Experiment, seed: int, plan: Plan, say: Callable[[str], None] = print) -> dict[str, Any] | None:
    """One seed: the base run up to its divergence, and every action from the checkpoint. None if it never diverges."""
    training, states = Training(base, (seed,)), {}
    with one_blas_thread():
        while training.step < base.steps and training.runs[0].diverged is None:
            if training.step % plan.every == 0:
                states[training.step] = training.state()
                for old in [s for s in states if s < training.step - plan.lead - IN_A_ROW - 2 * plan.every]:
                    del states[old]
            training.advance()
        diverged = training.runs[0].diverged
        if diverged is None:
            say(f"seed {seed}: no divergence in {base.steps} steps")
            return None
        start = max(s for s in states if s <= max(diverged - plan.lead, 0))
        say(f"seed {seed}: diverges at {diverged}; acting at {start}")
        outcome: dict[str, Any] = {"seed": seed, "diverged": diverged, "start": start, "outcomes": {}}

        def follow(names: list[str], experiment: Experiment, state: dict[str, Array]) -> None:
            branch = Training(experiment, (seed,) * len(names))
            branch.restore(state)
            while branch.step < start + plan.watch:
                branch.advance()
            for name, run in zip(names, branch.runs, strict=True):
                after = None if run.diverged is None else run.diverged - start
                outcome["outcomes"][name] = {
                    "diverged_after": after,
                    "watched": run.steps,
                    "last_loss": float(np.median(run.losses[-50:])),
                }
                say(f"  {name}: " + (f"not in {run.steps} steps" if after is None else f"after {after} steps"))

        state = states[start]
        controls = ["unperturbed"] + [f"perturbed {index + 1}" for index in range(plan.perturbed)]
        follow(controls, base, _perturbed(state, seed, plan.perturbed))
        for name, experiment in actions(base).items():
            follow([name], experiment, state)
    return outcome


def _perturbed(state: dict[str, Array], seed: int, count: int) -> dict[str, Array]:
    """The state of one run, and copies of it with slightly other parameters, as the states of a stack."""
    stack = {name: value if value.ndim == 0 else np.repeat(value, 1 + count, axis=0) for name, value in state.items()}
    for index in range(count):
        normal = np.random.default_rng([seed, index]).standard_normal(state["parameters"].shape)[0]
        stack["parameters"][index + 1] *= 1 + PERTURBATION * normal
    return stack


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


class NothingDivergedError(ValueError):
    """There is nothing to act on."""


def gather(
    study: Study, base: str, seeds: Iterable[int], plan: Plan, runs: Path, say: Callable[[str], None] = print
) -> dict[str, Any]:
    """What `act` gives for each seed of an arm that diverges; seeds that are on disk are not run again."""
    name = f"{base}-lead-{plan.lead}-watch-{plan.watch}-{plan.perturbed}"
    folder, done = runs / study.setting / "interventions" / name, []
    for seed in seeds:
        path = folder / f"seed-{seed}.json"
        if not path.exists():
            storage.write_json(path, act(study.arms[base], seed, plan, say))
        outcome = storage.read_json(path)
        if outcome is not None:
            done.append(outcome)
    if not done:
        raise NothingDivergedError("No seed diverged, so there is nothing to act on; take more seeds or another arm.")
    environment = storage.environment()
    return {"study": study.name, "base": base, "plan": vars(plan), "seeds": done, "environment": environment}
