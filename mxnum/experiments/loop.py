"""One training loop for everything: it reads top to bottom."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from mxnum.experiments import storage
from mxnum.experiments.config import Experiment, to_dict
from mxnum.experiments.data import INJECTION, Batches, generator
from mxnum.experiments.divergence import Watch
from mxnum.experiments.machine import CPU, Machine
from mxnum.experiments.machine import machine as machine_named
from mxnum.experiments.measure import measurements
from mxnum.experiments.model import KINDS, Network, quantized_product

Array = Any
_NOISY = {"all": KINDS, "layer_norm": KINDS[:2], "not_layer_norm": KINDS[2:]}


@dataclass
class Run:
    """The history of one seed."""

    seed: int
    experiment: Experiment
    losses: list[float] = field(default_factory=list)
    #: First step of the divergence, or None.
    diverged: int | None = None
    #: Steps at which measurements were made, and the measurements.
    measured_at: list[int] = field(default_factory=list)
    measured: dict[str, list[Array]] = field(default_factory=dict)
    #: The parameters at the end, as `Parameters.run` gives them.
    parameters: Array = None
    machine: Machine = CPU

    @property
    def steps(self) -> int:
        return len(self.losses)

    def save(self, directory: Path) -> None:
        """`seed-N.npz` with the numbers, then `seed-N.json` with everything else."""
        arrays = {f"measured_{name}": np.stack(values) for name, values in self.measured.items()}
        arrays |= {"losses": np.asarray(self.losses), "measured_at": np.asarray(self.measured_at, np.int64)}
        storage.write_arrays(directory / f"seed-{self.seed}.npz", arrays)
        table = {
            "seed": self.seed,
            "diverged": self.diverged,
            "steps": self.steps,
            "experiment": to_dict(self.experiment),
        }
        storage.write_json(
            directory / f"seed-{self.seed}.json",
            table | {"environment": storage.environment() | dict(self.machine.about)},
        )


class Training:
    """Several seeds of one experiment, step by step; everything that a step depends on is in here."""

    def __init__(self, experiment: Experiment, seeds: tuple[int, ...], machine: Machine = CPU):
        self.experiment, self.machine, self.step = experiment, machine, 0
        self.runs = [Run(seed, experiment, machine=machine) for seed in seeds]
        self.active = list(self.runs)
        self.network = Network(experiment, seeds, machine)
        self.batches = Batches(experiment, seeds, machine)
        self.first = machine.xp.zeros_like(self.network.parameters.flat)
        self.second = machine.xp.zeros_like(self.network.parameters.flat)
        self.watch = Watch(len(seeds))
        self.teacher_product = None
        if experiment.quantized_teacher:
            self.teacher_product = quantized_product(experiment.precision, experiment.precision.bf16, machine)

    def advance(self, measure: bool = False) -> Array:
        """One step: batch, loss and gradients, update. The losses come back."""
        with np.errstate(all="ignore"):  # a run that explodes overflows, and that is a result
            return self._advance(measure)

    def _advance(self, measure: bool) -> Array:
        network = self.network
        x, y = self.batches(self.step, self.teacher_product)
        if measure:
            values = measurements(network, x, y, self.step)
            for index, run in enumerate(self.active):
                run.measured_at.append(self.step)
                for name, value in values.items():
                    if name not in run.measured:  # NaN for looks of a checkpoint whose program did not measure it
                        run.measured[name] = [np.full_like(value[index], np.nan)] * (len(run.measured_at) - 1)
                    run.measured[name].append(value[index])
        loss = network.loss_and_gradients(x, y, self.step)
        self._inject()
        self._update()
        self.watch.see(self.step, loss)
        for index, run in enumerate(self.active):
            run.losses.append(float(loss[index]))
            if run.diverged is None and self.watch.first[index] >= 0:
                run.diverged = int(self.watch.first[index])
        self.step += 1
        return loss

    def _inject(self) -> None:
        """Synthetic zeta in the gradient."""
        noise, gradients = self.experiment.injection, self.network.gradients
        if noise is None:
            return
        for index, run in enumerate(self.active):
            rng = generator(run.seed, INJECTION, self.step)
            common = rng.standard_normal(dtype=np.float32)
            for kind in _NOISY[noise.where]:
                part = getattr(gradients, kind)[:, index]
                normal = common if noise.common else rng.standard_normal(part.shape, dtype=np.float32)
                part *= self.machine.to(np.float32(1 + noise.mean) + normal * np.float32(noise.deviation))

    def _update(self) -> None:
        e, parameters, gradients = self.experiment, self.network.parameters, self.network.gradients
        if not e.train_gamma:
            gradients.gamma[...] = 0
        if not e.train_beta:
            gradients.beta[...] = 0
        t, f, kernels = self.step + 1, np.float32, self.machine.kernels
        if e.optimizer == "adam":
            b1, b2 = e.betas
            kernels.adam(
                *(parameters.flat, gradients.flat, self.first, self.second),
                *(f(e.rate), f(b1), f(b2), f(1 - b1**t), f(1 - b2**t), f(e.epsilon)),
            )
        else:
            kernels.sgd(parameters.flat, gradients.flat, self.first, f(e.rate), f(e.momentum))

    def drop_diverged(self) -> None:
        """Go on without the runs that diverged. The bits of the others do not change."""
        stay = [i for i, run in enumerate(self.active) if run.diverged is None]
        if len(stay) == len(self.active):
            return
        state = self.state()
        for index, run in enumerate(self.active):
            run.parameters = state["parameters"][index]
        self.active = [self.active[i] for i in stay]
        if stay:
            self.network.keep(stay)
            self.batches.keep(stay)
            self.watch.keep(stay)
            self.first = self._moments(state["first"][stay])
            self.second = self._moments(state["second"][stay])

    # Checkpoints.

    def state(self) -> dict[str, Array]:
        """What the next step depends on, one row for each active run."""
        count = range(len(self.active))
        rows: dict[str, Array] = {"parameters": np.stack([self.network.parameters.run(i) for i in count])}
        holder = self.network.gradients
        kept = holder.flat.copy()
        for name, moments in (("first", self.first), ("second", self.second)):
            holder.flat[...] = moments
            rows[name] = np.stack([holder.run(i) for i in count])
        holder.flat[...] = kept
        return rows | {"least": self.watch.least, "above": self.watch.above, "step": np.int64(self.step)}

    def restore(self, state: dict[str, Array]) -> None:
        """Continue from a `state` of the same seeds, perhaps of another experiment: an intervention."""
        for index in range(len(self.active)):
            self.network.parameters.set_run(index, state["parameters"][index])
        self.first, self.second = self._moments(state["first"]), self._moments(state["second"])
        self.watch.least, self.watch.above = state["least"].copy(), state["above"].copy()
        self.step = int(state["step"])

    def _moments(self, rows: Array) -> Array:
        holder = self.network.gradients
        for index, row in enumerate(rows):
            holder.set_run(index, row)
        return holder.flat.copy()


def train(
    experiment: Experiment,
    seeds: tuple[int, ...],
    *,
    stop_when_diverged: bool = True,
    measure_every: int = 0,
    checkpoint: Path | None = None,
    checkpoint_every: int = 500,
    report: Callable[[int, Array, list[Run]], None] | None = None,
    machine: str = "cpu",
) -> list[Run]:
    """Train every seed to `experiment.steps`, and give their histories.

    Parameters
    ----------
    stop_when_diverged
        Whether a run ends when it diverged; otherwise it goes on, so that recovery can be told from runaway.
    measure_every
        Make the `measurements` every so many steps; 0: never.
    checkpoint
        A file to write every `checkpoint_every` steps and to continue from if it exists. The trajectory is the same bit
        for bit. It is deleted at the end.
    report
        Called after each step with the step, the losses of the active runs and the active runs.
    machine
        "cpu", or "cuda": the current GPU, by CuPy. The trajectories differ in their last bits, and so in the end.
    """
    training = Training(experiment, seeds, machine_named(machine))
    if checkpoint is not None and checkpoint.exists():
        load(training, checkpoint)
    with one_blas_thread():
        while training.active and training.step < experiment.steps:
            losses = training.advance(measure_every > 0 and training.step % measure_every == 0)
            if report is not None:
                report(training.step, losses, training.active)
            if stop_when_diverged:
                training.drop_diverged()
            if checkpoint is not None and training.step % checkpoint_every == 0 and training.active:
                save(training, checkpoint)
    for index, run in enumerate(training.active):
        run.parameters = training.network.parameters.run(index)
    if checkpoint is not None:
        checkpoint.unlink(missing_ok=True)
    return training.runs


def save(training: Training, path: Path) -> None:
    """Everything that `load` needs: the state and the histories."""
    arrays = {f"state_{name}": value for name, value in training.state().items()}
    arrays["active"] = np.array([training.runs.index(run) for run in training.active])
    arrays["diverged"] = np.array([-1 if run.diverged is None else run.diverged for run in training.runs])
    for index, run in enumerate(training.runs):
        arrays[f"losses_{index}"] = np.asarray(run.losses)
        arrays[f"measured-at_{index}"] = np.asarray(run.measured_at, np.int64)
        for name, values in run.measured.items():
            arrays[f"measured_{index}_{name}"] = np.stack(values)
    storage.write_arrays(path, arrays)


def load(training: Training, path: Path) -> None:
    """Continue a training that was just made with the same experiment and seeds."""
    arrays = storage.read_arrays(path)
    active = [int(i) for i in arrays["active"]]
    for index, run in enumerate(training.runs):
        run.losses = arrays[f"losses_{index}"].tolist()
        run.measured_at = arrays[f"measured-at_{index}"].tolist()
        prefix = f"measured_{index}_"
        run.measured = {name[len(prefix) :]: list(arrays[name]) for name in arrays if name.startswith(prefix)}
        run.diverged = None if arrays["diverged"][index] < 0 else int(arrays["diverged"][index])
    if active != list(range(len(training.runs))):
        training.active = [training.runs[i] for i in active]
        training.network.keep(active)
        training.batches.keep(active)
        training.watch.keep(active)
    training.watch.first = np.array([-1 if run.diverged is None else run.diverged for run in training.active])
    training.restore({name[6:]: value for name, value in arrays.items() if name.startswith("state_")})


def one_blas_thread() -> AbstractContextManager[Any]:
    """BLAS on one thread while the context lasts, so that its sums do not depend on the number of threads."""
    try:
        from threadpoolctl import threadpool_limits
    except ImportError:
        raise ModuleNotFoundError("This needs threadpoolctl and scipy: pip install mxnum[experiments].") from None
    limits: AbstractContextManager[Any] = threadpool_limits(1, user_api="blas")
    return limits


def progress_line(total: int, label: str) -> Callable[[int, Array, list[Run]], None]:
    """A `report` for `train` that prints a line from time to time."""
    last = time.monotonic()

    def report(step: int, losses: Array, active: list[Run]) -> None:
        nonlocal last
        if time.monotonic() - last > 20 or step == total:
            last = time.monotonic()
            print(
                f"{label}: step {step} of {total}, {len(active)} running, median loss {np.median(losses):.2e}",
                flush=True,
            )

    return report
