"""Draw inputs that never repeat, and compute their labels by a teacher network."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from mxnum.lab.mlp import kernels
from mxnum.lab.mlp.config import Experiment

Array = Any
#: A function that returns labels without noise, such as a `Teacher`. The first argument holds the
#: inputs; the second is a function that replaces the matrix product, or None.
Label = Callable[[Array, Any], Array]

#: The purposes for which a run draws random numbers; each purpose has its own stream.
INITIALIZATION, TEACHER, BATCH, NOISE, INJECTION, AFFINE = range(1, 7)


def generator(seed: int, *purpose: int) -> np.random.Generator:
    """Return the random generator for a seed and the numbers of a purpose, such as a step."""
    return np.random.Generator(np.random.SFC64([seed, *purpose]))


def apply_activation(experiment: Experiment, u: Array, slope: Array, out: Array, bf16: int) -> None:
    """Round u in place, write its activation to `out`, and prepare the backward pass.

    The backward pass needs the derivative of GELU or the sigmoid in SwiGLU; `slope` receives it.
    """
    if experiment.activation == "relu":
        kernels.relu(u.reshape(-1), out.reshape(-1), bf16)
    elif experiment.activation == "swiglu":
        kernels.swiglu(*(x.reshape(-1, x.shape[-1]) for x in (u, slope, out)), bf16)
    else:
        gelu = kernels.gelu_exact if experiment.gelu == "exact" else kernels.gelu_tanh
        gelu(u.reshape(-1), slope.reshape(-1), out.reshape(-1), bf16)


class Teacher:
    """A network without biases; a layer is a linear map, the activation and another linear map."""

    def __init__(self, experiment: Experiment, seed: int):
        self.experiment = experiment.but(gelu="exact")
        rng, d = generator(seed, TEACHER), experiment.width
        inner, outer = (2 * round(2 * d / 3), round(2 * d / 3)) if experiment.activation == "swiglu" else (d, d)
        self.weights = []
        for _ in range(experiment.layers):
            for rows, columns in ((inner, d), (d, outer)):
                bound = 1 / math.sqrt(columns)
                self.weights.append(rng.uniform(-bound, bound, (rows, columns)).astype(np.float32))

    def __call__(self, x: Array, multiply: Any = None) -> Array:
        """Return the labels without noise.

        For a quantized teacher, `multiply(x, weight)` replaces the matrix product.
        """
        for first, second in zip(self.weights[::2], self.weights[1::2], strict=True):
            u = np.ascontiguousarray(x @ first.T if multiply is None else multiply(x, first))
            h = np.empty((len(u), second.shape[1]), np.float32)
            apply_activation(self.experiment, u, np.empty_like(h), h, 0)
            x = h @ second.T if multiply is None else multiply(h, second)
        return x


class Batches:
    """The batches of several runs, each with its own seed. Batches can be drawn for any step."""

    def __init__(self, experiment: Experiment, seeds: tuple[int, ...], teachers: Sequence[Label] | None = None):
        self.experiment, self.seeds = experiment, seeds
        self.teachers = [Teacher(experiment, seed) for seed in seeds] if teachers is None else teachers

    def __call__(self, step: int, multiply: Any = None) -> tuple[Array, Array]:
        """Return the inputs and targets of a step, of shape (runs, batch, width)."""
        e = self.experiment
        x = np.empty((len(self.seeds), e.batch, e.width), np.float32)
        y = np.empty_like(x)
        for run, seed in enumerate(self.seeds):
            generator(seed, BATCH, step).standard_normal(dtype=np.float32, out=x[run])
            if e.centred_inputs:
                x[run] -= x[run].mean(axis=1, keepdims=True)
            generator(seed, NOISE, e.noise_draw, step).standard_normal(dtype=np.float32, out=y[run])
            y[run] *= np.float32(e.label_noise)
        for run, teacher in enumerate(self.teachers):
            y[run] += teacher(x[run], multiply)
        return x, y
