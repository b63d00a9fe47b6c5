"""Read the losses of 1,234 language models in 17 precisions, by Su et al. (arXiv 2506.20752).

The losses come from the tables ``plot/data/*.csv`` of the repository and the commit in `SOURCE`; a
later commit deleted the tables. Each row is one run, with these columns:

- ``arm``: the name of the run's table. The name gives the format of the weights, then the format of
  the activations, as in ``fp8_e4m3_bfloat16``. If the name contains ``quantize_only_fwd``, only the
  forward pass is quantized.
- ``label``: the precision of the weights in the run's settings, if it differs from the precision in
  ``arm``.
- ``params``: the number of parameters, embeddings included; ``tokens``: the number of tokens.
- ``final`` and ``least``: the final validation loss, and the least validation loss during training;
  float32 numbers.
- ``state``: finished, crashed or running.
- ``training``: the mean of the last five logged training losses (only for the arm in
  ``train_loss_all_runs.csv``).
"""

from __future__ import annotations

import csv
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from importlib import resources

import numpy as np

from mxnum.lab.theory import LossTable, loss_table

SOURCE = {
    "losses": "https://github.com/Hither1/systems-scaling",
    "commit": "db3c423fd904794c5f0aa6b10a089cc3bf6a8fcc",
}
BF16 = "bf16_bf16"
#: The compute budgets in FLOPs. The compute of each model (6 * parameters * tokens) is close to one
#: of these budgets.
BUDGETS = (2.0e17, 4.4e17, 9.6e17, 2.1e18, 4.6e18, 1.0e19, 2.2e19, 4.8e19)
#: A run is astray if its final loss exceeds its least loss by more than `ASTRAY`.
ASTRAY = 0.02
#: In every arm except bf16, nearly all losses are multiples of this number.
GRID = 0.005
#: The paper has two mitigations for FP8: bf16 activations (the arms in `BF16_ACTIVATIONS`), and
#: quantizing only the forward pass. `MITIGATED` holds the arms of both mitigations.
BF16_ACTIVATIONS = {"E4M3": "fp8_e4m3_bfloat16", "E5M2": "fp8_e5m2_bfloat16"}
MITIGATED = {f"{name} weights, bf16 activations": arm for name, arm in BF16_ACTIVATIONS.items()} | {
    f"{name} forward only": f"fp8_{name.lower()}_fp8_{name.lower()}_quantize_only_fwd" for name in BF16_ACTIVATIONS
}
#: `THROUGHOUT` holds the arms that use one FP8 format for weights and activations. `MIXED` holds
#: the arms that use two FP8 formats, for which no runs with a mitigation were published.
THROUGHOUT = {"E4M3 throughout": "fp8_e4m3_fp8_e4m3", "E5M2 throughout": "fp8_e5m2_fp8_e5m2"}
MIXED = {
    "E4M3 weights, E5M2 activations": "fp8_e4m3_fp8_e5m2",
    "E5M2 weights, E4M3 activations": "fp8_e5m2_fp8_e4m3",
}
#: The seed and the confidence level of the bootstrap intervals in this module.
SEED, LEVEL = 20260101, 0.95


@dataclass(frozen=True)
class Run:
    """One training run. Losses that were not recorded are NaN."""

    arm: str
    label: str
    parameters: int
    tokens: int
    final: float
    least: float
    state: str
    training: float

    @property
    def cell(self) -> tuple[int, int]:
        return self.parameters, self.tokens

    @property
    def budget(self) -> float:
        """The budget in `BUDGETS` that is closest to the run's compute."""
        flops = 6 * self.parameters * self.tokens
        return min(BUDGETS, key=lambda budget: abs(math.log(flops / budget)))

    @property
    def astray(self) -> bool:
        """True if the final loss exceeds the least loss by more than `ASTRAY`.

        False if either loss is missing.
        """
        return self.final - self.least > ASTRAY

    @property
    def finished(self) -> bool:
        return self.state == "finished"


@cache
def runs() -> tuple[Run, ...]:
    """Return all published runs."""
    text = (resources.files("mxnum.lab.claims") / "data/olmo-losses.csv").read_text()
    return tuple(
        Run(
            row["arm"], row["label"], int(row["params"]), int(row["tokens"]), _loss(row["final"]), _loss(row["least"]),
            row["state"], _loss(row["training"]),
        )
        for row in csv.DictReader(text.splitlines())
    )  # fmt: skip


def _loss(text: str) -> float:
    return float(np.float32(text)) if text else math.nan


def arm(name: str) -> tuple[Run, ...]:
    """Return the runs of an arm."""
    return tuple(run for run in runs() if run.arm == name)


def table(name: str, loss: str = "least", keep: Callable[[Run], bool] = lambda run: True) -> LossTable:
    """Return the recorded losses (`least` or `final`) of those runs of an arm that pass `keep`."""
    kept = [run for run in arm(name) if not math.isnan(getattr(run, loss)) and keep(run)]
    return loss_table([r.parameters for r in kept], [r.tokens for r in kept], [getattr(r, loss) for r in kept])


def gaps(name: str, loss: str = "least", against: str = BF16) -> dict[tuple[int, int], float]:
    """Return the loss of the arm `name` minus that of the arm `against`, for each (N, D).

    N is the number of parameters, and D is the number of tokens. An arm's loss at (N, D) is the
    mean over the arm's finished runs.
    """
    ours, theirs = by_cell(name, loss), by_cell(against, loss)
    return {cell: float(np.mean(ours[cell]) - np.mean(theirs[cell])) for cell in sorted(ours.keys() & theirs.keys())}


def by_cell(name: str, loss: str) -> dict[tuple[int, int], list[float]]:
    """Return the recorded losses of an arm's finished runs, for each (parameters, tokens)."""
    found: dict[tuple[int, int], list[float]] = {}
    for run in arm(name):
        value = getattr(run, loss)
        if run.finished and not math.isnan(value):
            found.setdefault(run.cell, []).append(value)
    return found


def mean_interval(values: Iterable[float]) -> tuple[float, float, float]:
    """Return the mean of the values, and the ends of its bootstrap interval at `LEVEL`."""
    array = np.array(list(values))
    drawn = np.random.default_rng(SEED).choice(array, (2000, array.size)).mean(axis=1)
    low, high = np.quantile(drawn, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return float(array.mean()), float(low), float(high)
