"""Runs at the size that the paper of [I] has: width 512, 4 layers, batches of 2048, rate 6e-4.

A run takes hours of one core, so there are few: an arm is decided from `SEEDS` seeds on, and before that its
runs are told.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from mxnum.lab.claims.claim import Context
from mxnum.lab.claims.evidence import counted
from mxnum.lab.studies import report
from mxnum.lab.studies.excursions import Course

WHERE = "at the paper's size (d = 512, 4 layers, batch 2048)"
SEEDS = 2
FILE, PREFIX = "paper-scale.json", "paper scale, "
CONTROL = f"{PREFIX}FP32"


def table(context: Context, file: str = FILE) -> dict[str, Any]:
    """Return what was run, perhaps no arm."""
    found: dict[str, Any] = context.json(file) if context.has(file) else {"arms": {}}
    return found


@dataclass(frozen=True)
class Jumps:
    """How many of the planned runs jump: in E4M3 and its variants, in E2M1, in FP32."""

    #: Runs in E4M3 and its variants, those that jump, and those that jump where FP32 on their seed stays calm.
    runs: int
    e4m3: int
    beside_calm: int
    #: Runs in FP32, and those that jump.
    of: int
    fp32: int
    #: The probability that all jumps fall to E4M3 if both kinds have one hazard, by the steps before a jump.
    chance: float
    #: True if E2M1 jumps on every seed and FP32 on none; None otherwise.
    e2m1_always: bool | None
    e2m1: str
    by_arm: str
    seeds: list[int]
    steps: int


def jumps(context: Context) -> Jumps:
    """Count the jumps within the planned steps; a run that was prolonged counts as if it had ended there."""
    found = table(context)
    planned = {
        name.removeprefix(PREFIX): [
            replace(run, horizon=arm["experiment"]["steps"]) for run in report.courses(found, name)
        ]
        for name, arm in found["arms"].items()
    }
    fp32, e2m1 = planned.pop("FP32", []), planned.pop("E2M1", [])
    runs = [run for each in planned.values() for run in each]
    controls = {run.seed: run for run in fp32}
    beside = [run for run in runs if run.first is not None and _is_calm_to(controls.get(run.seed), run.first)]
    risen = [sum(run.first is not None for run in kind) for kind in (runs, fp32)]
    ours = sum(min(run.steps, run.horizon) if run.first is None else run.first for run in runs)
    theirs = sum(run.steps if not run.excursions else run.excursions[0].start for run in fp32)
    always = bool(e2m1) and bool(fp32) and all(run.first is not None for run in e2m1) and not risen[1]
    return Jumps(
        len(runs), risen[0], len(beside), len(fp32), risen[1],
        (ours / (ours + theirs)) ** risen[0] if ours else 1.0,
        True if always and len(e2m1) >= SEEDS else None, f"{told(e2m1)}; FP32: {told(fp32)}" if e2m1 else "not run",
        "; ".join(f"{name} {told(each)}" for name, each in planned.items()),
        sorted({run.seed for run in runs}), max((run.horizon for run in runs), default=0),
    )  # fmt: skip


def _is_calm_to(run: Course | None, step: int) -> bool:
    return run is not None and run.steps > step and not any(e.start <= step for e in run.excursions)


def told(runs: list[Course]) -> str:
    """Return how many runs rise, when, and where they end."""
    risen, ends = sum(bool(run.counted) for run in runs), [run.final for run in runs if run.final is not None]
    least, most = (limit(run.steps for run in runs) for limit in (min, max))
    steps = f"{least:,}" if least == most else f"{least:,} to {most:,}"
    text = f"{risen} of {counted(len(runs), 'run')} with an excursion in {steps} steps"
    starts = [f"seed {run.seed} from step {run.counted[0].start:,}" for run in runs if run.counted]
    text += f" ({', '.join(starts)})" if starts else ""
    return text + (f", ending at {min(ends):.3g}" + (f" to {max(ends):.3g}" if len(ends) > 1 else "") if ends else "")
