"""Summarize stored MLP runs: shared settings, final losses, and the hazard of a jump."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from mxnum.lab.claims import evidence
from mxnum.lab.claims.claim import Context
from mxnum.lab.claims.evidence import Statement
from mxnum.lab.studies import report
from mxnum.lab.studies.excursions import Outcome
from mxnum.lab.studies.statistics import Arm, Comparison, compare, mean_interval, wilson

#: The level of significance of a difference between arms, after Holm's correction over the
#: statements of a row.
LEVEL = 0.01
#: A final loss is the geometric mean of this many bins at the end of the stored curve. These bins
#: cover a fifth of the run.
LAST_BINS = 8
#: The statement "no run is lost" holds only if the upper 95 % limit (Wilson) of the share of lost
#: runs is below this number.
SHARE = 0.25
#: The limits within which a hazard ratio counts as no difference, fixed before the study `hazard`.
NO_DIFFERENCE = 0.5, 2.0
Table = dict[str, Any]


def command(study: str) -> str:
    """Return the command that trains a study and stores its results."""
    return f"mxnum lab run {study} --results docs/lab/results"


def settings(table: Table) -> dict[str, Any]:
    """Return the settings that all arms share."""
    arms = list(table["arms"].values())
    keys = ("width", "layers", "batch", "rate", "steps", "optimizer", "activation")
    shared = {k: arms[0]["experiment"][k] for k in keys if len({arm["experiment"][k] for arm in arms}) == 1}
    return {"study": table["study"], **shared, "seeds": [r["seed"] for r in arms[0]["runs"]]}


def gaps(table: Table, arm: str, other: str) -> list[float]:
    """Return the difference of the final log losses of two arms, for each seed that both have."""
    ours, theirs = final_logs(table, arm), final_logs(table, other)
    return [ours[seed] - theirs[seed] for seed in sorted(ours.keys() & theirs.keys())]


def final_logs(table: Table, arm: str) -> dict[int, float]:
    """Return, for each seed, the mean log loss in the last `LAST_BINS` bins of the stored curve."""
    ends = {run["seed"]: run["curve"][-LAST_BINS:] for run in table["arms"][arm]["runs"]}
    return {seed: float(np.mean(np.log(last))) for seed, last in ends.items() if last and all(last)}


def words(values: list[float]) -> str:
    """Return a text with the mean gap of two arms' losses and its confidence limits, in percent.

    `values` holds a difference of log losses for each seed.
    """
    found = mean_interval(values, 1 - LEVEL)
    if found is None:
        return "too few runs"
    mean, low, high = (math.expm1(v) for v in found)
    return f"{mean:+.1%} ({1 - LEVEL:.0%}: {low:+.1%} to {high:+.1%})"


def below(values: list[float], limit: float = 0.0) -> tuple[bool | None, str]:
    """Return whether the mean of values is below a limit, and the text that `words` returns.

    The first result is None if `limit` lies between the confidence limits of the mean, or if there
    are too few values.
    """
    return evidence.below(values, limit, LEVEL), words(values)


def draw_final_losses(ax: Any, context: Context) -> str | None:
    """Draw the final losses of the study `recipes` relative to FP32, for claims M1 and M10."""
    if not context.has("recipes.json"):
        return None
    ends = {
        name: {r["seed"]: r["last_loss"] for r in arm["runs"] if r["last_loss"] is not None}
        for name, arm in context.json("recipes.json")["arms"].items()
    }
    reference = ends.pop("recipe FP32", {})
    names = [name for name, of in ends.items() if of.keys() & reference.keys()][::-1]
    if not names:
        return None
    for at, name in enumerate(names):
        over = [100 * (loss / reference[seed] - 1) for seed, loss in ends[name].items() if seed in reference]
        ax.plot(over, [at] * len(over), "o", ms=3, alpha=0.5, color="C0")
        ax.plot([np.median(over)], [at], "|", ms=12, color="C1")
    ax.set_yticks(range(len(names)), [name.removeprefix("recipe ") for name in names], fontsize=8)
    ax.set(xlabel="final loss above FP32's, %")
    return "How far the final loss of each recipe lies above FP32's. Each dot is a seed; lines are medians."


def none_away(table: Table, arm: str) -> tuple[bool, str]:
    """Return whether an arm loses no runs, and the counts as text.

    The first result is True if no run is lost and the arm has enough runs. There are enough if the
    upper 95 % limit of the share of lost runs is below `SHARE`.
    """
    away, runs = report.outcomes(table, arm)[Outcome.RUNAWAY], len(table["arms"][arm]["runs"])
    limit = wilson(away, runs)[1]
    return away == 0 and limit < SHARE, f"{away} of {runs} runs; upper 95 % limit {limit:.0%}"


def is_sure(test: Comparison) -> bool:
    """Return True if a test is significant at `LEVEL` after Holm's correction."""
    return test.corrected_p is not None and test.corrected_p < LEVEL


def over_rates(table: Table, kind: str, control: str = "FP32", event: str = "first") -> list[tuple[Arm, Arm]]:
    """Return a pair of an arm and its control for each rate at which the table has both."""
    rates = sorted({arm["experiment"]["rate"] for arm in table["arms"].values()})
    names = [(f"{kind}, rate {rate:g}", f"{control}, rate {rate:g}") for rate in rates]
    there = [pair for pair in names if {*pair} <= set(table["arms"])]
    return [(report.arm_of(table, a, event=event), report.arm_of(table, b, event=event)) for a, b in there]


def hazard_of_e4m3(table: Table) -> Statement:
    """Judge whether E4M3 has a higher hazard of an excursion than FP32, over a table's rates."""
    test = compare(over_rates(table, "E4M3"))
    what = "over three learning rates, the hazard of an excursion is higher in E4M3 than in FP32"
    if test.ratio is None:
        return Statement(what, None, str(test))
    ratio, low, high = test.ratio
    holds = True if low > 1 else False if low >= NO_DIFFERENCE[0] and high <= NO_DIFFERENCE[1] else None
    return Statement(what, holds, f"hazard ratio {ratio:.2f} (95 %: {low:.2f} to {high:.2f}), {test}")
