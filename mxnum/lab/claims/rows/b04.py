"""B4: which difference between the paper's text and its released code causes the divergence."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mxnum.lab.claims import paper_size
from mxnum.lab.claims.claim import BY_TRAINING, Claim, Context
from mxnum.lab.claims.evidence import LEVEL, Evidence, Statement, Whose
from mxnum.lab.claims.mlp_runs import command, settings
from mxnum.lab.studies import report, studies
from mxnum.lab.studies.excursions import Course
from mxnum.lab.studies.statistics import Arm, compare, holm, sign_flip

CLAIM = Claim(
    "B4",
    "Which difference between the paper's text and code causes the divergence",
    "Some of the six differences between the paper's text and its released code cause the divergence that rows I6a "
    "and I7 are about.",
    BY_TRAINING,
    "A factorial experiment with the six switches, on at least eight seeds, at the size of row I6a, would "
    "decide the claim.",
    whose=Whose.OURS,
    needs=("factorial.json",),
    command=command("factorial"),
)
#: The arm of the study `runaway-switches` that follows the released code in all six differences.
SHIPPED = "released code, E2M1"


@CLAIM.check
def _check(context: Context) -> Evidence:
    """Judge which differences between text and code change the step at which the loss rises.

    The runs form a fractional factorial design of resolution IV. The tests compare runs with the
    same seed. With eight seeds, the least possible p-value is 1 / 128. Holm's correction over six
    tests multiplies it by up to six, so the level of significance is 5 %.
    """
    table = context.json("factorial.json")
    names, signs = list(studies.get("factorial").arms), studies.fraction()
    arms = {name: report.arm_of(table, name) for name in names if name in table["arms"]}
    seeds = sorted(set.intersection(*(set(arm.by_seed()) for arm in arms.values())))
    effects, counts = {}, {}
    for index, difference in enumerate(studies.DIFFERENCES):
        code, by_text = (
            [arms[n] for n, row in zip(names, signs, strict=True) if row[index] == way and n in arms] for way in (1, -1)
        )
        effects[difference] = [_mean_time(code, seed) - _mean_time(by_text, seed) for seed in seeds]
        counts[difference] = (
            f"the loss rises in {_rises(code)} runs with the code's setting, and in {_rises(by_text)} runs with the "
            "text's setting"
        )
    p = {name: sign_flip(values) for name, values in effects.items()}
    after = holm(p)
    evidence = {
        name: (
            f"{name}: {counts[name]}; the code's setting changes the mean step of the rise by "
            f"{np.mean(effects[name]):+.0f} (exact p {p[name]:.2g}, after Holm's correction {after[name]:.2g})"
        )
        for name in effects
    }
    acting = [name for name in evidence if after[name] < LEVEL]
    later = ", ".join(name for name in acting if np.mean(effects[name]) > 0) or "none"
    sooner = ", ".join(name for name in acting if np.mean(effects[name]) < 0) or "none"
    statements, shown = [], ""
    shipped, text = (arms.get(way * len(studies.DIFFERENCES)) for way in "CT")
    if shipped is not None and text is not None:
        shown = f" It rises in {_rises([shipped])} runs with the code's settings and {_rises([text])} with the text's."
        what = (
            "in E2M1, the loss rises more often or sooner with the released code's settings than with the text's "
            "settings"
        )
        numbers = (
            f"the loss rises in {_rises([shipped])} runs with the code's settings, and in {_rises([text])} runs with "
            f"the text's settings; {compare([(shipped, text)])}"
        )
        statements.append(Statement(what, shipped.events > 0 if shipped.runs >= 8 else None, numbers))
    carrying = "; ".join(evidence[name] for name in acting)
    at_size = released_code(context)
    statements += [
        Statement(
            "some of the six differences change the step at which the loss rises", True if acting else None, carrying
        ),
        at_size,
    ]
    answer = (
        f"In E2M1, {len(acting)} of {len(p)} differences change when the loss rises (later: {later}; sooner: {sooner})."
        + shown + " Undecided: E4M3, paper size." * (at_size.holds is None)
    )  # fmt: skip
    others = "; ".join(evidence[name] for name in evidence if after[name] >= LEVEL) or "none"
    note = (
        f"Settings of the released code that delay the rise of the loss: {later}. Settings of the released code that "
        f"hasten the rise: {sooner}. These effects are significant at {LEVEL:.0%} after Holm's correction over six "
        f"tests. Differences without a significant effect: {others}. All runs are in E2M1, and only the first rise "
        "counts. The main effects are confounded with interactions of three or more switches."
        f"{_on_fresh_seeds(context)}"
    )
    return Evidence((), statements, note, settings(table), answer, f"{len(acting)} of {len(p)} differences")


def _rises(group: Sequence[Arm]) -> str:
    return f"{sum(arm.events for arm in group)} of {sum(arm.runs for arm in group)}"


def _mean_time(arms: list[Arm], seed: int) -> float:
    """Return the mean over `arms` of the step at which the loss of a seed's run rises.

    If the loss does not rise, the last step that the study observes counts instead.
    """
    return float(np.mean([arm.by_seed()[seed][0] for arm in arms]))


def _on_fresh_seeds(context: Context) -> str:
    again = context.json("runaway-switches.json") if context.has("runaway-switches.json") else {"arms": {}}
    if SHIPPED not in again["arms"]:
        return ""
    steps = again["arms"][SHIPPED]["experiment"]["steps"]
    return (
        f" The released code on fresh seeds, for {steps:,} steps: {report.outcomes_text(again, SHIPPED)} with an "
        "excursion."
    )


def released_code(context: Context) -> Statement:
    """Judge whether, at the paper's size, the released code diverges in E4M3 but not in FP32."""
    table, control = paper_size.table(context), paper_size.CONTROL
    what = f"the released code diverges on seeds on which FP32 does not, {paper_size.WHERE}"
    name = next((arm for arm in table["arms"] if arm.startswith(f"{paper_size.PREFIX}released code")), None)
    if name is None:
        return Statement(what, None, "not run")
    runs, controls = report.courses(table, name), report.courses(table, control) if control in table["arms"] else []
    whole = all(run.steps >= table["arms"][name]["experiment"]["steps"] for run in runs)
    fp32 = f"FP32: {paper_size.described(controls)}" if controls else "FP32 was not run"
    return Statement(what, _diverges(runs, controls, whole), f"{paper_size.described(runs)}; {fp32}")


def _diverges(runs: list[Course], controls: list[Course], whole: bool) -> bool | None:
    """Judge whether the runs diverge while the FP32 runs with the same seeds do not diverge.

    Return True if two conditions hold. The last excursion of every run never ends. The FP32 run
    with the same seed has no excursion, and continues past the first excursion of the run. Return
    False if no run has an excursion and all runs are finished (`whole`). In all other cases, or if
    there are too few seeds, return None.
    """
    others = {run.seed: run for run in controls}
    pairs = [(run, others[run.seed]) for run in runs if run.seed in others]
    if len(pairs) < paper_size.SEEDS:
        return None
    if all(not run.counted for run, _ in pairs):
        return False if whole else None
    stayed = all(run.counted and run.counted[-1].end is None for run, _ in pairs)
    calm = all(not fp32.counted and (not run.counted or fp32.steps > run.counted[0].start) for run, fp32 in pairs)
    return True if stayed and calm else None
