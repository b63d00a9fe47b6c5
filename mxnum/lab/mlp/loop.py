"""Train the MLP: the training loop and its checkpoints."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from mxnum import errors
from mxnum.lab import storage
from mxnum.lab.interruptions import Interruptions
from mxnum.lab.mlp import kernels
from mxnum.lab.mlp.config import Experiment, vector_code
from mxnum.lab.mlp.data import INJECTION, Batches, Teacher, generator
from mxnum.lab.mlp.divergence import Watch, is_near_spike
from mxnum.lab.mlp.machine import CPU, Machine
from mxnum.lab.mlp.machine import machine as machine_named
from mxnum.lab.mlp.measure import measurements
from mxnum.lab.mlp.model import KINDS, Network, Parameters, quantized_product
from mxnum.lab.mlp.operands import rounded
from mxnum.recipe import Operand

if TYPE_CHECKING:
    from mxnum.lab.mlp.by_torch import TorchNetwork

Array = Any
_NOISY = {"all": KINDS, "layer_norm": KINDS[:2], "not_layer_norm": KINDS[2:]}


@dataclass
class Run:
    """The history of one training run: losses, divergence and measurements.

    `measured` has the keys that `mxnum.lab.mlp.measure.measurements` documents.
    """

    seed: int
    experiment: Experiment
    losses: list[float] = field(default_factory=list)
    #: The first of 20 steps in a row whose loss exceeds 100 times the least loss so far, or the
    #: step of the first infinite or NaN loss; None if there is no such step.
    diverged: int | None = None
    #: The steps at which measurements were made, and the values of each measurement at these steps.
    measured_at: list[int] = field(default_factory=list)
    measured: dict[str, list[Array]] = field(default_factory=dict)
    #: The parameters at the end, in the order of `Parameters.run`.
    parameters: Array = None
    machine: Machine = CPU

    @property
    def steps(self) -> int:
        return len(self.losses)

    def save(self, directory: Path) -> None:
        """Write losses and measurements to `seed-N.npz`, then settings to `seed-N.json`."""
        arrays = {f"measured_{name}": np.stack(values) for name, values in self.measured.items()}
        arrays |= {"losses": np.asarray(self.losses), "measured_at": np.asarray(self.measured_at, np.int64)}
        storage.write_arrays(directory / f"seed-{self.seed}.npz", arrays)
        table = {
            "seed": self.seed,
            "diverged": self.diverged,
            "steps": self.steps,
            "experiment": self.experiment.to_dict(),
        }
        storage.write_json(
            directory / f"seed-{self.seed}.json",
            table | {"environment": storage.environment() | dict(self.machine.about)},
        )


class Training:
    """The training runs of one experiment, one for each seed, with all their state."""

    def __init__(self, experiment: Experiment, seeds: tuple[int, ...], machine: Machine = CPU):
        self.experiment, self.machine, self.step = experiment, machine, 0
        self.runs = [Run(seed, experiment, machine=machine) for seed in seeds]
        self.network = network_of(experiment, seeds, machine)
        self.batches = batches_of(experiment, seeds, machine)
        self.first = np.zeros_like(self.network.parameters.flat)
        self.second = np.zeros_like(self.network.parameters.flat)
        self.watch = Watch(len(seeds))
        self.caps = np.full((2, experiment.layers, len(seeds)), np.inf, np.float32)
        start = self.network.parameters.w1
        start *= np.float32(experiment.w1_start)
        self._store()
        self.teacher_product = None
        if experiment.quantized_teacher:
            self.teacher_product = quantized_product(experiment.precision, vector_code(experiment.precision), machine)

    def advance(self, measure: bool = False) -> Array:
        """Run one step (batch, loss and gradients, update) and return the losses."""
        with np.errstate(all="ignore"):  # overflow in a diverging run is a result, not an error
            return self._advance(measure)

    def _advance(self, measure: bool) -> Array:
        network = self.network
        x, y = self.batches(self.step, self.teacher_product)
        if measure:
            values = measurements(network, x, y, self.step) | self._moments_measured()
            for index, run in enumerate(self.runs):
                run.measured_at.append(self.step)
                for name, value in values.items():
                    if name not in run.measured:  # an older checkpoint may lack a measurement; its values become NaN
                        run.measured[name] = [np.full_like(value[index], np.nan)] * (len(run.measured_at) - 1)
                    run.measured[name].append(value[index])
        loss = network.loss_and_gradients(x, y, self.step)
        self._inject()
        self._update()
        self.watch.see(self.step, loss)
        for index, run in enumerate(self.runs):
            run.losses.append(float(loss[index]))
            if run.diverged is None and self.watch.first[index] >= 0:
                run.diverged = int(self.watch.first[index])
        self.step += 1
        return loss

    def _moments_measured(self) -> dict[str, Array]:
        """Return the minimum and first percentile of Adam's second moments.

        Where second moments are small, Adam makes large steps.
        """
        if self.experiment.optimizer != "adam":
            return {}
        rows = self._each_run(self.second)
        hundredth = rows.shape[1] // 100
        least = np.partition(rows, [0, hundredth], axis=1)[:, [0, hundredth]]
        return {"second_moment_least": least[:, 0], "second_moment_hundredth": least[:, 1]}

    def _inject(self) -> None:
        """Apply the synthetic noise of the experiment to the gradients."""
        noise, gradients = self.experiment.injection, self.network.gradients
        if noise is None:
            return
        for index, run in enumerate(self.runs):
            rng = generator(run.seed, INJECTION, self.step)
            common = rng.standard_normal(dtype=np.float32)
            for kind in _NOISY[noise.where]:
                part = getattr(gradients, kind)[:, index]
                normal = common if noise.common else rng.standard_normal(part.shape, dtype=np.float32)
                part *= np.float32(1 + noise.mean) + normal * np.float32(noise.deviation)

    def _update(self) -> None:
        e, parameters, gradients = self.experiment, self.network.parameters, self.network.gradients
        if not e.train_gamma:
            gradients.gamma[...] = 0
        if not e.train_beta:
            gradients.beta[...] = 0
        t, f = self.step + 1, np.float32
        for factor, part in self._rates():
            rate, flat, first = f(e.rate * factor), (parameters.flat[part], gradients.flat[part]), self.first[part]
            if e.optimizer == "adam":
                betas, corrections = ((f(b1), f(b2)) for b1, b2 in (e.betas, [1 - beta**t for beta in e.betas]))
                kernels.adam(*flat, (first, self.second[part]), rate, betas, corrections, f(e.epsilon))
            else:
                kernels.sgd(*flat, first, rate, f(e.momentum))
        self._cap()
        self._store()

    def _rates(self) -> list[tuple[float, slice]]:
        """Return (factor of the learning rate, slice) for each part of the flat parameters."""
        e, start, parts = self.experiment, 0, []
        if e.w1_rate == e.beta_rate == 1:
            return [(1.0, slice(None))]
        for kind in KINDS:
            stop = start + getattr(self.network.parameters, kind).size
            parts.append(({"w1": e.w1_rate, "beta": e.beta_rate}.get(kind, 1.0), slice(start, stop)))
            start = stop
        return parts

    def _cap(self) -> None:
        """Limit the norms of W1 and W2 to their values at the step `cap_norms_at`."""
        if self.experiment.cap_norms_at is None or self.step < self.experiment.cap_norms_at:
            return
        parameters = self.network.parameters
        for cap, weights in zip(self.caps, (parameters.w1, parameters.w2), strict=True):
            norms = np.sqrt(np.square(weights).sum(axis=(-1, -2)))
            if self.step == self.experiment.cap_norms_at:
                cap[...] = norms
            weights *= np.where(norms > cap, cap / norms, 1)[..., None, None].astype(np.float32)

    def _store(self) -> None:
        """Round parameters and moments to the formats in which they are stored between steps."""
        e, network = self.experiment, self.network
        if e.masters is not None:
            _rounded_in_place(network.parameters, e.masters)
        if e.moments is not None:
            kept = network.gradients.flat.copy()
            for moments in (self.first, self.second):
                network.gradients.flat[...] = moments
                _rounded_in_place(network.gradients, e.moments)
                moments[...] = network.gradients.flat
            network.gradients.flat[...] = kept

    # Checkpoints.

    def state(self) -> dict[str, Array]:
        """Return the state on which the next step depends, with one row for each run."""
        flat = {"parameters": self.network.parameters.flat, "first": self.first, "second": self.second}
        rows = {name: self._each_run(values) for name, values in flat.items()}
        rows["caps"] = np.moveaxis(self.caps, -1, 0)
        return rows | {"least": self.watch.least, "above": self.watch.above, "step": np.int64(self.step)}

    def _each_run(self, flat: Array) -> Array:
        """Return a flat vector, laid out like the parameters, as an array with one row per run."""
        holder = self.network.gradients
        kept = holder.flat.copy()
        holder.flat[...] = flat
        rows = np.stack([holder.run(i) for i in range(len(self.runs))])
        holder.flat[...] = kept
        return rows

    def restore(self, state: dict[str, Array]) -> None:
        """Continue from a `state` of the same seeds; the state may be from another experiment."""
        for index in range(len(self.runs)):
            self.network.parameters.set_run(index, state["parameters"][index])
        self.first, self.second = self._moments(state["first"]), self._moments(state["second"])
        self.caps = np.moveaxis(state["caps"], 0, -1).copy()
        self.watch.least, self.watch.above = state["least"].copy(), state["above"].copy()
        self.step = int(state["step"])

    def _moments(self, rows: Array) -> Array:
        holder = self.network.gradients
        for index, row in enumerate(rows):
            holder.set_run(index, row)
        return holder.flat.copy()


def network_of(experiment: Experiment, seeds: tuple[int, ...], machine: Machine) -> Network | TorchNetwork:
    """Return the student networks for the given seeds on a machine."""
    if machine.device is None:
        return Network(experiment, seeds, machine)
    from mxnum.lab.mlp.by_torch import TorchNetwork

    return TorchNetwork(experiment, seeds, machine.device)


def batches_of(experiment: Experiment, seeds: tuple[int, ...], machine: Machine) -> Batches:
    """Return the batches of the given seeds.

    If the machine has a device, the device computes the labels.
    """
    if machine.device is None:
        return Batches(experiment, seeds)
    from mxnum.lab.mlp.by_torch import TorchTeacher

    return Batches(experiment, seeds, [TorchTeacher(Teacher(experiment, seed), machine.device) for seed in seeds])


def train(
    experiment: Experiment,
    seeds: tuple[int, ...],
    *,
    measure_every: int = 0,
    measure_above: float | None = None,
    checkpoint: Path | None = None,
    checkpoint_every: int = 500,
    checkpoint_seconds: float = 120,
    keep_checkpoint: bool = False,
    state: dict[str, Array] | None = None,
    report: Callable[[int, Array, list[Run]], None] | None = None,
    machine: str = "cpu",
) -> list[Run]:
    """Train every seed for `experiment.steps` steps, and return the histories.

    Runs that diverge are also trained to the end.

    Parameters
    ----------
    measure_every
        Make the `measurements` at every multiple of this number of steps; 0 means never.
    measure_above
        Also make the measurements at the step after a high loss of any run. A loss is high if it
        exceeds this number times the smallest of the run's last 500 losses.
    checkpoint
        A path. If the file exists, training continues from it, and computes the same bits as
        without interruption. Training writes the checkpoint every `checkpoint_every` steps, every
        `checkpoint_seconds` seconds and before an interruption, and deletes it at the end. With
        `keep_checkpoint`, training keeps the last checkpoint, so that a later call can train for
        more steps.
    state
        The `Training.state` from which training begins. It must be of the same seeds, but may be
        from another experiment. The returned histories have only the steps after this state.
    report
        A function that is called after each step with the number of steps, the losses and the runs.
    machine
        "cpu"; "amx" or "avx512_bf16" for a CPU with products in bfloat16; "torch" or "cuda" for
        PyTorch on the CPU or on the current GPU (`by_torch`). Losses on different machines differ
        in their last bits, so the trajectories eventually diverge.
    """
    training = Training(experiment, _checked(seeds), machine_named(machine))
    if checkpoint is not None and checkpoint.exists():
        load(training, checkpoint)
    elif state is not None:
        training.restore(state)
    saved = time.monotonic()
    with one_blas_thread(), Interruptions() as interruptions:
        while training.step < experiment.steps:
            measures = measure_every > 0 and training.step % measure_every == 0
            if measure_above is not None:
                measures |= any(is_near_spike(run.losses, measure_above) for run in training.runs)
            losses = training.advance(measures)
            if report is not None:
                report(training.step, losses, training.runs)
            is_due = training.step % checkpoint_every == 0 or time.monotonic() - saved >= checkpoint_seconds
            if checkpoint is not None and (is_due or interruptions.waiting):
                save(training, checkpoint)
                saved = time.monotonic()
            interruptions.deliver()
    for index, run in enumerate(training.runs):
        run.parameters = training.network.parameters.run(index)
    if checkpoint is not None and keep_checkpoint:
        save(training, checkpoint)
    elif checkpoint is not None:
        checkpoint.unlink(missing_ok=True)
    return training.runs


def _checked(seeds: Any) -> tuple[int, ...]:
    errors.require_type(isinstance(seeds, Iterable), "seeds", "a list of integers", seeds)
    checked = tuple(errors.integer("seeds", seed, 0, (1 << 63) - 1) for seed in seeds)
    errors.require(bool(checked), "seeds", "a list of at least one integer", checked)
    errors.require(len(set(checked)) == len(checked), "seeds", "a list of different integers", checked)
    return checked


def _rounded_in_place(parameters: Parameters, format: str) -> None:
    for kind in KINDS:
        values = getattr(parameters, kind)
        rows = np.ascontiguousarray(values).reshape(-1, values.shape[-1])
        done = rounded(rows, Operand(format), -1, np.empty_like(rows))
        values[...] = done.reshape(values.shape)


def save(training: Training, path: Path) -> None:
    """Write a checkpoint with the state, histories, experiment and seeds, for `load`."""
    about = {"experiment": training.experiment.to_dict(), "seeds": [run.seed for run in training.runs]}
    about |= {"environment": storage.environment() | dict(training.machine.about)}
    arrays = {f"state_{name}": value for name, value in training.state().items()}
    arrays["about"] = np.frombuffer(json.dumps(about).encode(), np.uint8)
    arrays["diverged"] = np.array([-1 if run.diverged is None else run.diverged for run in training.runs])
    for index, run in enumerate(training.runs):
        arrays[f"losses_{index}"] = np.asarray(run.losses)
        arrays[f"measured-at_{index}"] = np.asarray(run.measured_at, np.int64)
        for name, values in run.measured.items():
            arrays[f"measured_{index}_{name}"] = np.stack(values)
    storage.write_arrays(path, arrays, compressed=False)


def load(training: Training, path: Path) -> None:
    """Continue from a checkpoint of the same seeds and experiment; only `steps` may differ."""
    arrays = storage.read_arrays(path)
    experiment, about = origin(arrays)
    same = about.get("seeds") == [run.seed for run in training.runs]
    if experiment is not None and not (same and experiment.but(steps=training.experiment.steps) == training.experiment):
        raise ValueError(
            f"The checkpoint {str(path)!r} was made with another configuration or other seeds; remove it, rename the "
            "arm, or use another folder."
        )
    for index, run in enumerate(training.runs):
        run.losses, run.measured_at, run.diverged, run.measured = history(arrays, index)
    training.watch.first = np.array([-1 if run.diverged is None else run.diverged for run in training.runs])
    training.restore({name[6:]: value for name, value in arrays.items() if name.startswith("state_")})


def origin(arrays: dict[str, Array]) -> tuple[Experiment | None, dict[str, Any]]:
    """Return the experiment of a checkpoint, and a dictionary with its seeds and environment.

    For a checkpoint of version 0.1, which stores no experiment and no seeds, the function returns
    (None, {}).
    """
    if "about" not in arrays:
        return None, {}
    about: dict[str, Any] = json.loads(arrays["about"].tobytes())
    return Experiment.from_dict(about.pop("experiment")), about


def history(arrays: dict[str, Array], index: int) -> tuple[list[float], list[int], int | None, dict[str, list[Array]]]:
    """Return the history of a run in a checkpoint.

    The history is (losses, steps of the measurements, first step of the divergence or None,
    measurements).
    """
    prefix, diverged = f"measured_{index}_", int(arrays["diverged"][index])
    measured = {name[len(prefix) :]: list(arrays[name]) for name in arrays if name.startswith(prefix)}
    at, losses = arrays[f"measured-at_{index}"].tolist(), arrays[f"losses_{index}"].tolist()
    return losses, at, None if diverged < 0 else diverged, measured


def one_blas_thread() -> AbstractContextManager[Any]:
    """Return a context in which BLAS uses one thread, so that sums are reproducible."""
    threadpoolctl = errors.package("threadpoolctl", "experiments")
    limits: AbstractContextManager[Any] = threadpoolctl.threadpool_limits(1, user_api="blas")
    return limits
