"""What quantization costs in a training step: ratios of medians of processor time, in turns: machines are noisy."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from mxnum.experiments.config import BFLOAT16_TRAINING, Experiment
from mxnum.experiments.data import Batches, generator
from mxnum.experiments.loop import one_blas_thread
from mxnum.experiments.model import Network

Array = Any


def products_alone(experiment: Experiment, runs: int) -> Callable[[], None]:
    """The six products of every layer, on arrays of their shapes."""
    e, rng = experiment, generator(0, 0)

    def array(*shape: int) -> Array:
        return rng.standard_normal((runs, *shape), dtype=np.float32)

    shapes = []
    for rows, inner, columns in ((e.batch, e.width, e.inner), (e.batch, e.hidden, e.width)):
        shapes += [(rows, inner, columns), (columns, rows, inner), (rows, columns, inner)]
    work = [(array(m, k), array(n, k).swapaxes(-1, -2), array(m, n)) for m, k, n in shapes]

    def multiply() -> None:
        for _ in range(e.layers):
            for a, b, out in work:
                np.matmul(a, b, out=out)

    return multiply


def step_alone(experiment: Experiment, runs: int) -> Callable[[], None]:
    """Losses and gradients of one batch."""
    seeds = tuple(range(runs))
    network, (x, y) = Network(experiment, seeds), Batches(experiment, seeds)(0)

    def step() -> None:
        network.loss_and_gradients(x, y, 0)

    return step


def measure(experiment: Experiment, *, runs: int = 1, rounds: int = 45) -> dict[str, float]:
    """Ratios for a training step in the experiment's precision.

    "step": the step over its products alone. "quantization": the share of the step that goes away when operands and
    layer-norm parameters stay in bfloat16, as the vector operations are.
    """
    plain = experiment.but(precision=BFLOAT16_TRAINING)
    work = (step_alone(experiment, runs), step_alone(plain, runs), products_alone(experiment, runs))
    times: list[list[float]] = [[], [], []]
    with one_blas_thread():
        for call in work:
            call()
        for _ in range(rounds):
            for call, kept in zip(work, times, strict=True):
                started = time.process_time()
                call()
                kept.append(time.process_time() - started)
    low, bf16, products = (float(np.median(kept)) for kept in times)
    return {"step": low / products, "quantization": (low - bf16) / low, "bfloat16 step": bf16 / products}
