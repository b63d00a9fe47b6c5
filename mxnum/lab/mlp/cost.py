"""Measure what quantization costs in a training step, as ratios of medians of processor time.

The parts are timed in turns, because the speed of a machine drifts.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from mxnum.lab.mlp.config import BFLOAT16_TRAINING, Experiment, vector_code
from mxnum.lab.mlp.data import Batches, generator
from mxnum.lab.mlp.loop import Training, one_blas_thread
from mxnum.lab.mlp.machine import CPU, Machine
from mxnum.lab.mlp.model import Network
from mxnum.recipe import Recipe

Array = Any


def products_alone(experiment: Experiment, runs: int, machine: Machine = CPU) -> Callable[[], None]:
    """Return `multiply()`, which computes the six products of every layer on arrays of their shapes."""
    e, p, rng = experiment, experiment.precision, generator(0, 0)
    bf16 = vector_code(p)
    ways = (
        machine.product(p.activations, p.weights, bf16=bf16),
        machine.product(p.gradients_for_weights or p.gradients, p.activations_backward, bf16=bf16),
        machine.product(p.gradients, p.weights_backward, bf16=bf16),
    )

    def array(*shape: int) -> Array:
        return rng.standard_normal((runs, *shape), dtype=np.float32)

    shapes = []
    for rows, inner, columns in ((e.batch, e.width, e.inner), (e.batch, e.hidden, e.width)):
        shapes += [(rows, inner, columns), (columns, rows, inner), (rows, columns, inner)]
    work = [(array(m, k), array(n, k).swapaxes(-1, -2), array(m, n)) for m, k, n in shapes]

    def multiply() -> None:
        for _ in range(e.layers):
            for (a, b, out), product in zip(work, ways * 2, strict=True):
                product(a, b, out)

    return multiply


def step_alone(experiment: Experiment, runs: int, machine: Machine = CPU) -> Callable[[], None]:
    """Return `step()`, which computes the losses and gradients of one batch."""
    seeds = tuple(range(runs))
    network, (x, y) = Network(experiment, seeds, machine), Batches(experiment, seeds)(0)

    def step() -> None:
        network.loss_and_gradients(x, y, 0)

    return step


def measure(experiment: Experiment, *, runs: int = 1, rounds: int = 45) -> dict[str, float]:
    """Return ratios for a training step in the experiment's precision.

    "step" is the time of the step over that of its products alone. "quantization" is the share of
    the step that goes away if operands and layer-norm parameters stay in bfloat16, as the vector
    operations are. "bfloat16 step" is the time of the step without quantization over that of the
    products.
    """
    plain = experiment.but(precision=BFLOAT16_TRAINING)
    work = (step_alone(experiment, runs), step_alone(plain, runs), products_alone(experiment, runs))
    low, bf16, products = _medians(work, rounds)
    return {"step": low / products, "quantization": (low - bf16) / low, "bfloat16 step": bf16 / products}


def shares(experiment: Experiment, machine: Machine = CPU, *, rounds: int = 9) -> tuple[float, dict[str, float]]:
    """Return the seconds of a whole training step of one seed, and the share of each part of the step."""
    training, batches = Training(experiment, (0,), machine), Batches(experiment, (0,))
    plain = experiment.but(precision=BFLOAT16_TRAINING)
    whole, batch, products, low, bf16 = _medians(
        (
            training.advance,
            lambda: batches(0, training.teacher_product),
            products_alone(experiment, 1, machine),
            step_alone(experiment, 1),
            step_alone(plain, 1),
        ),
        rounds,
    )
    quantization = 0.0 if experiment.precision == Recipe() else low - bf16
    parts = {"products": products, "batch and teacher": batch, "quantization": quantization}
    parts["vector operations and optimizer"] = whole - sum(parts.values())
    return whole, {name: seconds / whole for name, seconds in parts.items()}


def _medians(work: Sequence[Callable[[], Any]], rounds: int) -> list[float]:
    """Return the median processor time of each call, timed in turns."""
    times: list[list[float]] = [[] for _ in work]
    with one_blas_thread():
        for call in work:
            call()
        for _ in range(rounds):
            for call, kept in zip(work, times, strict=True):
                started = time.process_time()
                call()
                kept.append(time.process_time() - started)
    return [float(np.median(kept)) for kept in times]
