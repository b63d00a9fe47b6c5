"""Fit the height of a rise of the loss by a power law in Adam's 1 - beta2 and the learning rate."""

from __future__ import annotations

from typing import Any

import numpy as np

from mxnum.lab.studies import report
from mxnum.lab.studies.statistics import mean_interval
from mxnum.output.text_table import markdown_table

Limits = tuple[float, float, float]


def cells(table: dict[str, Any], kind: str) -> dict[tuple[float, float], str]:
    """Return {(beta2, rate): name} for the arms whose name up to ", betas" is `kind`."""
    found = {}
    for name, arm in table["arms"].items():
        if name.partition(", betas")[0] == kind:
            e = arm["experiment"]
            found[float(e["betas"][1]), float(e["rate"])] = name
    return dict(sorted(found.items()))


def heights(table: dict[str, Any], name: str) -> dict[int, float]:
    """Return the height of each seed: the largest ratio of a loss to its base.

    The base of a loss is the least running median of the losses before it. Seeds with a loss that
    is not finite are left out.
    """
    runs = table["arms"][name]["runs"]
    return {run["seed"]: run["highest"] for run in runs if run.get("highest") is not None}


def slopes(table: dict[str, Any], kind: str) -> tuple[Limits, Limits] | None:
    """Fit the power law (1 - beta2)^a rate^b to the heights; return a and b with 95 % limits.

    Each seed has its own least-squares fit; a and b are the means over the seeds. Return None if
    fewer than three seeds have a height for every pair of beta2 and rate, or if the pairs do not
    determine both exponents.
    """
    arms = cells(table, kind)
    found = {cell: heights(table, name) for cell, name in arms.items()}
    seeds = sorted(set.intersection(*(set(h) for h in found.values()))) if found else []
    design = np.array([[np.log10(1 - beta2), np.log10(rate), 1.0] for beta2, rate in found]).reshape(-1, 3)
    if np.linalg.matrix_rank(design) < 3:
        return None
    fits = [np.linalg.lstsq(design, np.log10([h[seed] for h in found.values()]), rcond=None)[0] for seed in seeds]
    by_beta, by_rate = (mean_interval([float(fit[axis]) for fit in fits]) for axis in (0, 1))
    return None if by_beta is None or by_rate is None else (by_beta, by_rate)


def markdown(table: dict[str, Any], kind: str) -> str:
    """Return a Markdown table of the median height and the outcomes for each beta2 and rate."""
    arms = cells(table, kind)
    rates, betas = sorted({rate for _, rate in arms}), sorted({beta2 for beta2, _ in arms})
    lines = []
    for beta2 in betas:
        words = []
        for rate in rates:
            name = arms.get((beta2, rate))
            if name is None:
                words.append("not run")
                continue
            values = list(heights(table, name).values())
            middle = f"{np.median(values):.3g}" if len(values) == len(table["arms"][name]["runs"]) else "not finite"
            words.append(f"{middle} ({report.outcomes_text(table, name)})")
        lines.append([f"{beta2:g}", *words])
    return markdown_table(["beta2", *(f"rate {rate:g}" for rate in rates)], lines)
