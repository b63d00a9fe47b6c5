"""B2: the stability of SGD under multiplicative noise in the gradients."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from mxnum.lab.claims.claim import Claim, Context
from mxnum.lab.claims.evidence import Comparison, Evidence, Statement, Whose, decided, unanimous
from mxnum.lab.studies import critical
from mxnum.lab.studies.statistics import mean_interval
from mxnum.lab.theory import stability_limit
from mxnum.output import palette

CLAIM = Claim(
    "B2",
    "Stability under multiplicative noise",
    "Suppose that noise multiplies each gradient of SGD on a quadratic by 1 + zeta, where zeta has mean b > -1 and "
    "standard deviation s. Then SGD is stable exactly if the learning rate times the curvature is below "
    "2(1+b)/((1+b)^2+s^2). So clamping, whose b is negative, raises the limit.",
    "`mxnum.lab.theory` derives the formula; simulations must match the formula.",
    whose=Whose.OURS,
    needs=("sgd-limits.json",),
    command="mxnum lab sgd-limits --results docs/lab/results",
)
#: A confidence interval that contains the prediction confirms it only if the upper limit is below
#: `WIDEST` times the lower limit.
WIDEST, SEED = 1.25, 20260101


@CLAIM.check
def _check(context: Context) -> Evidence:
    table = context.json("sgd-limits.json")
    comparisons = [
        on_a_quadratic(b, s, of_limit)
        for b, s in ((0, 0.5), (0, 1), (-0.5, 0.5), (-0.125, 0))
        for of_limit in (0.9, 1.1)
    ]
    statements = [_on_the_mlp(row) for row in table["rows"]]
    note = (
        "The formula is for one dimension, in which one zeta multiplies the whole gradient. Independent noise for "
        "each element spreads over all directions and destabilises less. A bias without noise only rescales the "
        "learning rate, so the statements about such a bias hold by construction. The limits in brackets come from "
        f"Student's t, applied to the logarithms of the ratios of {len(table['seeds'])} seeds."
    )
    settings = {k: table["experiment"][k] for k in ("width", "layers", "batch", "steps")} | {"seeds": table["seeds"]}
    groups: dict[str, list[Statement]] = {}
    for row, statement in zip(table["rows"], statements, strict=True):
        noise = "noise common to all elements" if row["common"] else "independent noise for each element"
        groups.setdefault(noise if row["deviation"] else "a bias", []).append(statement)
    by_answer: dict[bool | None, list[str]] = {True: [], False: [], None: []}
    for kind, members in groups.items():
        by_answer[False if any(s.holds is False for s in members) else unanimous(members)].append(kind)
    act = "acts" if len(by_answer[True]) == 1 else "act"
    words = {True: f"On the MLP, {{}} {act} as predicted", False: "Not as predicted: {}", None: "Undecided: {}"}
    agree = f"{sum(c.agrees for c in comparisons)} of {len(comparisons)} figures"
    parts = [words[sure].format(" and ".join(kinds)) for sure, kinds in by_answer.items() if kinds]
    answer = f"On a quadratic, {agree} agree with the formula. {'. '.join(parts)}."
    return Evidence(comparisons, statements, note, settings, answer, agree)


def _on_the_mlp(row: dict[str, Any]) -> Statement:
    what = f"residual MLP, zeta of {critical.describe(row)}: the largest stable rate"
    limits = mean_interval([math.log(ratio) for ratio in row["ratios"]])
    centre, low, high = (math.exp(v) for v in limits) if limits is not None else (math.nan,) * 3
    predicted = row["predicted"]
    numbers = f"{centre:.3f} times the rate without zeta (95 %: {low:.3f} to {high:.3f}), predicted {predicted:.3f}"
    if row["deviation"] and not row["common"]:
        above = decided(low > predicted, high < predicted)
        return Statement(f"{what} is above the rate that the one-dimensional quadratic predicts", above, numbers)
    close = low / 1.02 <= predicted <= high * 1.02  # bisection finds a rate to within 2 %
    return Statement(
        f"{what} equals the rate that the quadratic predicts",
        close if high / low < WIDEST or not close else None,
        numbers,
    )


def on_a_quadratic(bias: float, deviation: float, of_limit: float) -> Comparison:
    """Simulate SGD, and compare the growth per step of the mean squared weight with the formula."""
    steps, runs = 3, 400_000
    rng, x = np.random.default_rng(SEED), np.ones(runs)
    rate = of_limit * float(stability_limit(bias, deviation**2))
    for _ in range(steps):
        x -= rate * (1 + bias + deviation * rng.standard_normal(runs)) * x
    squares = np.square(x)
    mean, error = float(squares.mean()), float(squares.std(ddof=1)) / math.sqrt(runs)
    found = mean ** (1 / steps)
    predicted = (1 - rate * (1 + bias)) ** 2 + (rate * deviation) ** 2
    where = "below" if of_limit < 1 else "above"
    what = (
        f"quadratic, zeta with mean {bias:g} and deviation {deviation:g}: growth of the mean square per step, at a "
        f"learning rate 10 % {where} the limit"
    )
    return Comparison(what, predicted, found, 5 * error / mean * found / steps + 1e-12)


@CLAIM.figure()
def _draw(ax: Any, context: Context) -> str | None:
    if not context.has("sgd-limits.json"):
        return None
    for row in context.json("sgd-limits.json")["rows"]:
        colour, marker = ("C0", "o") if row["common"] or not row["deviation"] else ("C1", "s")
        ax.plot([row["predicted"]] * len(row["ratios"]), row["ratios"], marker, ms=4, alpha=0.7, color=colour)
    ends = [0.4, 2.1]
    ax.plot(ends, ends, color=palette.COLOURS[6], lw=0.8)
    ax.set(xlabel="predicted by the quadratic", ylabel="measured on the network", xscale="log", yscale="log")
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_major_formatter("{x:g}")
        axis.set_minor_formatter("{x:g}")
    return (
        "The largest stable learning rate of SGD with noise in the gradient, divided by the rate without noise. "
        "Circles: noise common to all elements, or a bias without noise. Squares: independent noise for each "
        "element. On the line, measurement and formula agree."
    )
