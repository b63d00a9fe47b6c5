"""Read stored studies of small language models: losses, gaps between arms, and lost runs.

The checks follow the rules in `docs/lab/results/language/README.md`, which were written before the
models were trained.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from mxnum.lab.claims.claim import Context
from mxnum.lab.claims.evidence import LEVEL
from mxnum.lab.studies.statistics import mean_interval

PLAIN, BFLOAT16 = "float32", "bfloat16"
#: A caution for claims that report p-values or confidence limits.
ONE_SOURCE = (
    "All seeds of a study of language models share one source of training data, so p-values cover only the chance "
    "in initial weights and batches."
)
Table = dict[str, Any]
#: The studies that compare recipes, each with the name of its model in the ledger.
RECIPES = {"recipes": "a small language model", "recipes-converged": "the small model trained to the end"}
#: The results files of `RECIPES`, for the claims that use them.
RECIPE_FILES = tuple(f"language/{name}.json" for name in RECIPES)


def study(context: Context, name: str) -> Table | None:
    """Return a stored study, or None if it was not run."""
    path = f"language/{name}.json"
    found: Table | None = context.json(path) if context.has(path) else None
    return found


def of_recipes(context: Context) -> Iterator[tuple[str, Table]]:
    """Yield each stored study of recipes, with the name of the study's models in the ledger."""
    for name, model in RECIPES.items():
        table = study(context, name)
        if table is not None:
            yield model, table


def losses(table: Table, arm: str) -> dict[int, float]:
    """Return the final loss of an arm, by seed."""
    return {run["seed"]: run["evaluation"] for run in table["arms"][arm]["runs"]}


def gaps(table: Table, arm: str, other: str | None = None, share: float = 0.0, of: str = "") -> list[float]:
    """Return, for each seed, an arm's loss minus the loss of `other` (default: the arm's control).

    If the arm `of` is given, also subtract `share` times its gap, the loss of `of` minus the loss
    of `other`.
    """
    theirs = losses(table, other or table["controls"].get(arm, table["control"]))
    ours = losses(table, arm)
    third = losses(table, of) if of else ours
    seeds = sorted(ours.keys() & theirs.keys() & third.keys())
    return [ours[s] - theirs[s] - share * (third[s] - theirs[s]) for s in seeds]


def mean_gap(table: Table, arm: str, other: str | None = None) -> float:
    """Return the mean gap of an arm over seeds."""
    return float(np.mean(gaps(table, arm, other)))


def apart(table: Table, arm: str, other: str) -> list[float]:
    """Return the gap of an arm minus the gap of another arm, for each seed."""
    return [a - b for a, b in zip(gaps(table, arm), gaps(table, other), strict=True)]


def mean_row(table: Table, arm: str) -> float:
    """Return the relative norm of the last layer's mean row, averaged over seeds.

    The relative norm is the norm of the mean row, divided by the root mean square of the norms of
    the rows after the mean row is subtracted from each row. It is measured at the end of training.
    """
    return float(np.mean([run["measured"]["common_weight"][-1] for run in table["arms"][arm]["runs"]]))


def words(values: Sequence[float]) -> str:
    """Return the mean of values and its confidence limits as text."""
    found = mean_interval(values, 1 - LEVEL)
    return "too few runs" if found is None else f"{found[0]:+.4f} ({found[1]:+.4f} to {found[2]:+.4f})"


def limit_of(table: Table, arm: str | None = None) -> float:
    """Return the loss above which a run is lost.

    This limit is midway between the entropy of the data and the loss of a uniform guess. The data
    are those of `arm` (default: the first arm). If the data are a text, their entropy is unknown,
    and the limit is 2.5 nats.
    """
    found = table["arms"][arm or next(iter(table["arms"]))]
    best = found["runs"][0]["entropy"]
    return 2.5 if best is None else (float(best[1]) + math.log(found["experiment"]["vocabulary"])) / 2


def lost(table: Table, arm: str) -> dict[int, bool]:
    """Return, for each seed, True if its run is lost at the end."""
    return {seed: not loss < limit_of(table) for seed, loss in losses(table, arm).items()}
