"""I6c: training in 4 bits runs away sooner."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mxnum.lab.claims.claim import BY_TRAINING, Claim, Context
from mxnum.lab.claims.evidence import Evidence, Statement, Whose
from mxnum.lab.claims.mlp_runs import LEVEL, is_sure, none_away, settings
from mxnum.lab.studies import report
from mxnum.lab.studies.excursions import Outcome
from mxnum.lab.studies.statistics import Arm, Comparison, compare
from mxnum.output import palette

CLAIM = Claim(
    "I6c",
    "Training in 4 bits runs away sooner",
    "In a residual MLP of width 32, training with everything in MXFP4 E2M1, layer norm included, runs away sooner "
    "than training in FP32. The paper's claim is about E4M3, not E2M1.",
    BY_TRAINING,
    whose=Whose.OURS,
    needs=("quick.json",),
    command="mxnum reproduce --quick --only I6c",
)
#: E2M1 must have at least this many more runaways than FP32, by a rule that was fixed before the
#: study `recovery` was run.
ENOUGH = 5
#: The learning rate of the confirmatory tests. The tests were fixed before the runs.
RATE = "rate 0.034"


@CLAIM.check
def _check(context: Context) -> Evidence:
    """Judge whether runs in E2M1 run away sooner than runs in FP32 on the same seeds.

    The confirmatory test is the exact paired log-rank test of the steps at which runaways begin.
    The test is two-sided, has the level `LEVEL`, and uses the seeds of the study `quick`. If
    results of the study `parts` are stored, the function applies the same test to them. If results
    of the study `recovery` are stored, the function also applies `_by_the_first_rule` to them, and
    judges whether no run of the arm `LN E2M1` is lost.
    """
    table = context.json("quick.json")
    if not {"FP32", "E2M1"} <= set(table["arms"]):
        return Evidence(note="All runs of an arm failed.", configuration=settings(table))
    ours, theirs, test = _contest(table)
    statements = [_sooner(table, "fresh")]
    if context.has("parts.json"):
        statements.append(_sooner(context.json("parts.json"), "more", f", {RATE}"))
    if context.has("recovery.json"):
        recovery = context.json("recovery.json")
        never, numbers = none_away(recovery, "LN E2M1")
        what = "at rate 0.024, no run is lost if only layer norm is in 4 bits"
        statements += [_by_the_first_rule(recovery), Statement(what, True if never else None, numbers)]
    words = {
        True: "Runs in 4 bits run away sooner than in FP32",
        False: "Runs in 4 bits run away later than in FP32",
        None: "No difference between 4 bits and FP32 is shown",
    }
    answer = (
        f"{words[statements[0].holds]}: with everything in E2M1 {ours.events} of {ours.runs} runs are lost, in FP32 "
        f"{theirs.events} of {theirs.runs}, at {RATE}."
    )
    note = (
        "A runaway is an excursion that starts before the horizon and has not ended at twice the horizon. In the arm "
        "LN E2M1 only gamma and beta are in E2M1, and all else is in bfloat16. FP32 runs are lost too, but later "
        "and at higher learning rates."
    )
    number = f"p = {'-' if test.p is None else f'{test.p:.2g}'}"
    return Evidence((), statements, note, settings(table), answer, number)


def _contest(table: Mapping[str, Any], rate: str = "") -> tuple[Arm, Arm, Comparison]:
    """Return the steps at which runaways start in E2M1 and in FP32, and the exact log-rank test."""
    a, b = (report.arm_of(dict(table), f"{name}{rate}", event="away") for name in ("E2M1", "FP32"))
    return a, b, compare([(a, b)])


def _sooner(table: Mapping[str, Any], pairs: str, rate: str = "") -> Statement:
    a, b, test = _contest(table, rate)
    what = (
        f"runs with everything in E2M1 are lost sooner than FP32 runs, at {RATE}, on {test.seeds} {pairs} pairs of runs"
    )
    holds = None if test.p is None or test.p >= LEVEL else test.comes_sooner
    return Statement(what, holds, f"lost: {a.events} of {a.runs} E2M1 runs, {b.events} of {b.runs} FP32 runs; {test}")


def _by_the_first_rule(table: dict[str, Any]) -> Statement:
    """Judge whether more runs run away in E2M1 than in FP32, in the study `recovery`.

    The rule was fixed before the study was run. It requires at least `ENOUGH` more runaways in E2M1
    than in FP32, and a significant test of the steps at which runaways begin.
    """
    others = [name for name in table["arms"] if name != "FP32"]  # Holm's correction counts all arms of the table
    test = report.compared(table, dict.fromkeys(others, "FP32"), event="away")["E2M1"]
    count, control = (report.outcomes(table, name)[Outcome.RUNAWAY] for name in ("E2M1", "FP32"))
    holds = test.comes_sooner if count - control >= ENOUGH and is_sure(test) else None
    what = f"at rate 0.024, at least {ENOUGH} more runs run away with everything in E2M1 than in FP32"
    return Statement(what, holds, f"{count} against {control}; {test}")


@CLAIM.figure(3.2)
def _draw_losses(ax: Any, context: Context) -> str | None:
    table = context.json("quick.json") if context.has("quick.json") else {"arms": ()}
    if not {"FP32", "E2M1"} <= set(table["arms"]):
        return None
    report.loss_figure(table, ["FP32", "E2M1"], axes=ax, colour=palette.colour, medians=True)
    return (
        "The loss of every run in FP32 and with everything in E2M1, with the same initial weights and inputs; the "
        "thick lines are the medians over runs. A run is lost if its loss jumps before step 4,000 and has not come "
        "back down by step 8,000."
    )


@CLAIM.figure()
def _draw_survival(ax: Any, context: Context) -> str | None:
    if not context.has("quick.json"):
        return None
    report.survival_figure(context.json("quick.json"), axes=ax, colour=palette.colour)
    return (
        "The share of runs that have not jumped by each step (Kaplan-Meier, with 95 % confidence), for each precision. "
        "Dashed lines: the share of runs that are not lost. In brackets: how many runs jumped, and how many of these "
        "were lost."
    )
