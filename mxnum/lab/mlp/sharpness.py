"""Measure the sharpness of training runs, and the sharpest direction, by the Lanczos method.

The sharpness is the largest eigenvalue of P^-1/2 H P^-1/2. Here H is the Hessian of a batch's loss
in float32, and P = diag(sqrt(corrected second moment) + epsilon). Adam is stable if the sharpness
times the learning rate is below 38 (`mxnum.lab.theory.stability_limit`). The product of H with a
vector is computed as a difference of gradients. All runs that are trained together are measured
together, and the measurement does not change the training.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from mxnum.lab import storage
from mxnum.lab.mlp.config import Experiment, Injection
from mxnum.lab.mlp.loop import Training, one_blas_thread
from mxnum.lab.mlp.model import KINDS
from mxnum.lab.studies.excursions import excursions
from mxnum.lab.theory import inverse_participation
from mxnum.recipe import BFLOAT16, Operand, Recipe

Array = Any
#: ITERATIONS is the number of Lanczos iterations. LENGTH is the step of a finite difference, as a
#: fraction of the norm of the preconditioned parameters.
ITERATIONS, LENGTH = 16, 1e-3


@dataclass(frozen=True)
class Sharpness:
    """The sharpness times the learning rate, and properties of the eigenvector, for each run."""

    rate_times_curvature: Array
    #: The inverse participation ratio of the eigenvector.
    participation: Array
    #: For each kind of parameter, the sum of squares of the eigenvector's components.
    shares: dict[str, Array]


def sharpness(training: Training, iterations: int = ITERATIONS) -> Sharpness:
    """Return the sharpness of each run, at its current parameters, Adam moments and batch."""
    e, network = training.experiment, training.network
    x, y = training.batches(training.step, training.teacher_product)
    kept, gradients = network.parameters.flat.copy(), network.gradients.flat.copy()
    here = _rows(network.parameters, len(training.runs))
    root = np.sqrt(np.sqrt(_moments(training) / (1 - e.betas[1] ** max(training.step, 1))) + e.epsilon)
    learnt = _learnt(training)
    scales = np.array([float(np.linalg.norm(row)) for row in here * root]) * LENGTH

    def product(v: Array) -> Array:
        """Return P^-1/2 H P^-1/2 v for each run, by a central difference.

        The rows and columns of H that belong to frozen parameters are taken as zero.
        """
        moved = []
        for sign in (1, -1):
            for index, row in enumerate(here + sign * scales[:, None] * learnt * v / root):
                network.parameters.set_run(index, row.astype(np.float32))
            network.loss_and_gradients(x, y, training.step, Recipe())
            moved.append(_rows(network.gradients, len(training.runs)))
        difference: Array = learnt * (moved[0] - moved[1]) / (2 * scales[:, None]) / root
        return difference

    try:
        values, modes = lanczos(product, here.shape, iterations)
    finally:
        network.parameters.flat[...], network.gradients.flat[...] = kept, gradients
    shares, at = {}, 0
    for kind in KINDS:
        size = getattr(network.parameters, kind)[:, 0].size
        shares[kind] = np.square(modes[:, at : at + size]).sum(axis=-1)
        at += size
    return Sharpness(e.rate * values, inverse_participation(modes), shares)


#: The names of the arms that `followed` returns. All arms have the width and the batch size of
#: `studies.SMALL`.
FOLLOWED = ("FP32", "LN E2M1", "LN frozen", "zeta 0.5", "FP32, rate 0.006")


def followed() -> dict[str, Experiment]:
    """Return the experiments whose sharpness is measured; the keys are the names of their arms."""
    base = Experiment(width=32, batch=64, rate=0.024)
    e2m1, frozen = Operand("mxfp4_e2m1"), Recipe(gamma=BFLOAT16, beta=BFLOAT16, vector="bfloat16")
    arms = (
        base,
        base.but(gamma=e2m1, beta=e2m1, vector="bfloat16"),
        base.but(precision=frozen, train_gamma=False, train_beta=False),
        base.but(injection=Injection(deviation=0.5)),
        base.but(rate=0.006),
    )
    return dict(zip(FOLLOWED, arms, strict=True))


def follow(
    arms: Mapping[str, Experiment], seeds: tuple[int, ...], every: int = 100, say: Callable[[str], None] = print
) -> dict[str, Any]:
    """Train each arm; return a table of its losses and its sharpness after every `every` steps."""
    table: dict[str, Any] = {"seeds": list(seeds), "every": every, "arms": {}}
    for name, experiment in arms.items():
        training, evaluations = Training(experiment, seeds), []
        with one_blas_thread():
            while training.step < experiment.steps:
                if training.step and training.step % every == 0:
                    evaluations.append(sharpness(training))
                training.advance()
        runs = []
        for index, run in enumerate(training.runs):
            spans = [[e.start, e.end] for e in excursions(run.losses)]
            values = {
                "sharpness": [each.rate_times_curvature[index] for each in evaluations],
                "participation": [each.participation[index] for each in evaluations],
                "w1": [each.shares["w1"][index] for each in evaluations],
                "loss": [np.median(run.losses[at : at + every]) for at in range(every, experiment.steps, every)],
            }
            runs.append({"seed": run.seed, "excursions": spans} | {key: _short(v) for key, v in values.items()})
        table["arms"][name] = {"experiment": experiment.to_dict(), "runs": runs}
        say(f"{name}: {len(runs)} runs")
    return table | {"environment": storage.environment()}


def _short(values: list[Any]) -> list[float | None]:
    return [float(f"{float(v):.4g}") if np.isfinite(v) else None for v in values]


def lanczos(product: Any, shape: tuple[int, int], iterations: int) -> tuple[Array, Array]:
    """Return the largest eigenvalue of each symmetric operator, and the eigenvector.

    The iteration orthogonalizes each vector against all previous vectors, which is cheap because
    there are at most a few dozen vectors.
    """
    iterations = min(iterations, shape[1])
    start = np.random.default_rng(0).standard_normal(shape)
    basis = [start / np.linalg.norm(start, axis=-1, keepdims=True)]
    matrix = np.zeros((shape[0], iterations, iterations))
    for k in range(iterations):
        w = product(basis[k])
        matrix[:, k, k] = np.sum(w * basis[k], axis=-1)
        for _ in range(2):
            for v in basis:
                w = w - np.sum(w * v, axis=-1, keepdims=True) * v
        size = np.linalg.norm(w, axis=-1)
        if k + 1 < iterations:
            matrix[:, k, k + 1] = matrix[:, k + 1, k] = size
            basis.append(w / np.where(size > 0, size, 1)[:, None])
    values, vectors = np.linalg.eigh(matrix)
    modes = np.einsum("rk,krn->rn", vectors[:, :, -1], np.array(basis))
    return values[:, -1], modes


def _rows(parameters: Any, runs: int) -> Array:
    return np.stack([parameters.run(index) for index in range(runs)]).astype(np.float64)


def _moments(training: Training) -> Array:
    return training.state()["second"].astype(np.float64)


def _learnt(training: Training) -> Array:
    """Return 1 for each parameter that is trained, 0 for each that is frozen."""
    e, parameters = training.experiment, training.network.parameters
    frozen = {"gamma": not e.train_gamma, "beta": not e.train_beta}
    parts = [np.full(getattr(parameters, kind)[:, 0].size, not frozen.get(kind, False), np.float64) for kind in KINDS]
    return np.concatenate(parts)
