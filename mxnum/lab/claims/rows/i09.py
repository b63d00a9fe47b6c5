"""I9: two mitigations keep language models stable, by the losses that Su et al. published."""

from __future__ import annotations

import math
from collections.abc import Iterable
from itertools import product
from typing import Any

import numpy as np

from mxnum.lab.claims import language_models, losses
from mxnum.lab.claims.claim import Claim, Context
from mxnum.lab.claims.evidence import Comparison, Evidence, Statement, below, ours, unanimous
from mxnum.lab.claims.language_models import gaps, words
from mxnum.lab.claims.losses import (
    ASTRAY,
    BF16,
    BF16_ACTIVATIONS,
    GRID,
    MITIGATED,
    MIXED,
    THROUGHOUT,
    Run,
    mean_interval,
)
from mxnum.lab.theory import Recipe, project_shares
from mxnum.output import palette

CLAIM = Claim(
    "I9",
    "What keeps language models stable",
    "Two mitigations keep language models of 2e17 to 4.8e19 FLOP stable in all FP8 formats: bf16 activations and "
    "layer norm, or quantization of the forward pass alone. E4M3 weights with bf16 activations match bf16. The "
    "forward pass is a third of the work, so quantizing it alone saves at most 33 % of the time. If FP8 is twice as "
    "fast as bf16, quantizing the forward pass alone makes training 1.2 times as fast.",
    "The authors published the losses of their runs, and later deleted them from their repository. The losses show "
    "which runs end above their own least loss, and the gap to bf16 at the same numbers of parameters and tokens. "
    "`mxnum.lab.theory.project_shares` computes the speed-up.",
    "Runs at 4.8e19 FLOP with E4M3 weights and bf16 activations, and with forward-only quantization, would decide "
    "the claim.",
    takes=language_models.RECIPE_FILES,
)


@CLAIM.check
def _check(context: Context) -> Evidence:
    hazards = {run.cell for run in _astray(BF16)}
    published = [*(_stable(what, arm, hazards) for what, arm in MITIGATED.items()), _matches()]
    furthest = {what: max(run.budget for run in losses.arm(arm)) for what, arm in MITIGATED.items()}
    at_most = ", ".join(f"{what} up to {budget:.2g}" for what, budget in furthest.items())
    reach = Statement("the claim holds up to 4.8e19 FLOP", None, f"the published losses include {at_most} FLOP")
    doubled, unlimited = (
        project_shares({"mlp": 1.0}, Recipe.of("fp8", "bf16"), rates={"fp8": rate}).speed_up for rate in (2.0, math.inf)
    )
    comparisons = [
        Comparison("forward only: the largest possible saving of time, %", 33, 100 * (1 - 1 / unlimited), 0.5),
        Comparison("forward only: the speed-up if FP8 is twice as fast as bf16", 1.2, doubled, 0.05),
    ]
    runs = sum(len(losses.arm(arm)) for arm in MITIGATED.values())
    gap, most = mean_interval(losses.gaps(BF16_ACTIVATIONS["E4M3"]).values())[0], max(furthest.values())
    short = [what for what, budget in furthest.items() if budget < most]
    answer = (
        f"None of {runs} mitigated runs ends more than {ASTRAY} above its least loss, except at sizes where bf16 does. "
        f"On average, E4M3 weights with bf16 activations change bf16's least loss by {gap:+.4f} nats. Undecided at "
        f"{most:.2g} FLOP, where {len(short)} of {len(furthest)} arms have no runs."
    )
    return Evidence(
        comparisons,
        [*published, reach, *of_our_own(context)],
        _note(hazards),
        {**losses.SOURCE, "astray": f"ends more than {ASTRAY} above its least loss", "seed": losses.SEED},
        answer if unanimous(published) and short else "",
        f"{gap:+.4f} nats",
    )


def _by_budget(runs: Iterable[Run]) -> str:
    """Return, as text, how many runs went astray at each training budget in FLOP."""
    counts: dict[float, list[bool]] = {}
    for run in runs:
        counts.setdefault(run.budget, []).append(run.astray)
    return ", ".join(f"{sum(c)} of {len(c)} at {budget:.2g}" for budget, c in sorted(counts.items()))


def _astray(name: str) -> list[Run]:
    return [run for run in losses.arm(name) if run.astray]


def _stable(what: str, arm: str, hazards: set[tuple[int, int]]) -> Statement:
    runs, gone = losses.arm(arm), _astray(arm)
    elsewhere = [run for run in gone if run.cell not in hazards]
    numbers = f"{len(gone)} of {len(runs)} runs go astray (by FLOP: {_by_budget(runs)})"
    if gone:
        numbers += (
            f"; bf16 goes astray too at the sizes (parameters and tokens) of {len(gone) - len(elsewhere)} of them"
        )
    unfinished = sum(not run.finished for run in runs)
    if unfinished:
        numbers += f"; {unfinished} of all runs did not finish"
    missing = len({run.cell for run in losses.arm(BF16)} - {run.cell for run in runs})
    numbers += f"; runs at {missing} of bf16's {len(losses.arm(BF16))} sizes are missing"
    sentence = (
        f"{what}: no run ends more than {ASTRAY} above its least loss, except at sizes at which the bf16 run does too"
    )
    return Statement(sentence, not elsewhere, numbers)


def _matches() -> Statement:
    """Judge whether the confidence interval of E4M3's mean gap to bf16 lies within ±`GRID` / 2."""
    e4m3 = BF16_ACTIVATIONS["E4M3"]
    found, bad = losses.gaps(e4m3), {run.cell for name in (BF16, e4m3) for run in _astray(name)}
    mean, low, high = mean_interval(found.values())
    by_final = mean_interval(gap for cell, gap in losses.gaps(e4m3, "final").items() if cell not in bad)
    others = {what: mean_interval(losses.gaps(arm).values()) for what, arm in (MITIGATED | THROUGHOUT | MIXED).items()}
    rest = "; ".join(f"{what} {m:+.4f} ({a:+.4f} to {b:+.4f})" for what, (m, a, b) in others.items())
    return Statement(
        f"E4M3 weights with bf16 activations match bf16: the mean gap in least loss is within {GRID / 2} (the losses "
        f"are rounded to multiples of {GRID})",
        low > -GRID / 2 and high < GRID / 2,
        f"the mean gap over {len(found)} sizes is {mean:+.4f} ({losses.LEVEL:.0%} interval {low:+.4f} to {high:+.4f}); "
        f"the mean gap in final loss, over the sizes at which no run goes astray, is {by_final[0]:+.4f} "
        f"({by_final[1]:+.4f} to {by_final[2]:+.4f}). The mean gaps in least loss of all arms: {rest}",
    )


def _note(hazards: set[tuple[int, int]]) -> str:
    plain = {what: (losses.arm(arm), _astray(arm)) for what, arm in (THROUGHOUT | MIXED).items()}
    without = "; ".join(
        f"{what} {len(gone)} of {len(runs)}" + (f" ({_by_budget(runs)} FLOP)" if gone else "")
        for what, (runs, gone) in plain.items()
    )
    arms = {run.arm for run in losses.runs()}
    twice = [found for found in losses.by_cell(BF16_ACTIVATIONS["E5M2"], "least").values() if len(found) == 2]
    apart = [abs(a - b) for a, b in twice]
    worst = max(hazards, key=lambda cell: sum(run.cell == cell for run in losses.runs() if run.astray))
    there = [run for run in losses.runs() if run.cell == worst and not math.isnan(run.final - run.least)]
    gone = [run for run in there if run.astray]
    ours = next(run for run in there if run.arm == BF16)
    return (
        f"Runs without a mitigation that go astray: {without}. At one size (N = {worst[0]:,}, D = {worst[1]:,}), "
        f"{len(there)} of {len(arms)} arms recorded both a final and a least loss. {len(gone)} of these go "
        f"astray, bf16 among them (final loss {ours.final:.3f}, least {ours.least:.3f}). All runs "
        "share one seed, so the cause seems to be a batch and the learning rate at this batch, not a format. Runs in "
        "E4M3 throughout never go astray by this measure, but few of these runs have large compute. Their losses are "
        "above bf16's; a mitigation closes this gap. At "
        f"{len(twice)} sizes, models with E5M2 weights and bf16 activations were trained twice from the same seed. "
        f"The two least losses are equal at {apart.count(0)} of these sizes; at the other sizes they differ by up to "
        f"{max(apart):.2g}."
    )


def of_our_own(context: Context) -> list[Statement]:
    """Judge the two mitigations of 8-bit formats in this project's language models."""
    made = []
    for model, table in language_models.of_recipes(context):
        for kind, way in product(("E4M3", "E5M2"), ("forward only", "weights alone, bf16 activations")):
            arm = f"{kind} {way}"
            if arm not in table["arms"]:
                continue
            half, values = gaps(table, arm, share=0.5, of=kind), gaps(table, arm)
            what = f"{model}, {arm}: the gap to the control is less than half of the gap of {kind} without mitigation"
            made.append(Statement(what, below(half), f"{words(values)}; {kind} {words(gaps(table, kind))}"))
    return ours(*made)


@CLAIM.figure()
def _draw(ax: Any, context: Context) -> str:
    arms = {"bf16": BF16} | MITIGATED | THROUGHOUT | MIXED
    shown = [name for name in arms if _astray(arms[name])]
    for i, name in enumerate(shown):
        runs = losses.arm(arms[name])
        budgets = sorted({run.budget for run in runs})
        shares = [np.mean([run.astray for run in runs if run.budget == budget]) for budget in budgets]
        ax.plot(budgets, shares, "os^Dv*"[i % 6] + "-", ms=4, lw=1, label=name, color=palette.COLOURS[i % 7])
    ax.set(xlabel="FLOP", ylabel="share of models that go astray", xscale="log")
    ax.legend(fontsize=8)
    return (
        f"The share of language models that go astray (end more than {ASTRAY} above their own least loss), by "
        "training FLOP. In the arms that are not shown, no model goes astray."
    )
