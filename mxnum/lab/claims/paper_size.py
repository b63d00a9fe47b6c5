"""What rows I5 to I8, B4 and B6 say of the size that the paper has: width 512, 4 layers, batches of 2048, rate 6e-4.

A run takes hours of one core, so there are few: an arm is decided from `SEEDS` seeds on, and before that its
runs are told.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from mxnum.lab.claims.evidence import Statement
from mxnum.lab.claims.findings import counted
from mxnum.lab.claims.registry import Context
from mxnum.lab.studies import critical, interventions, report
from mxnum.lab.studies.excursions import Course

WHERE = "at the paper's size (d = 512, 4 layers, batch 2048)"
SEEDS = 2
_FILE, _RATES, _PREFIX = "paper-scale.json", "paper-rates.json", "paper scale, "
_ACTIONS = "paper-scale/interventions.json"
_CONTROL, _CODE = f"{_PREFIX}FP32", "the released code"
#: Looks that are averaged, early and late, and the steps from one to the next; there are more where a loss is high.
_LOOKS, _EVERY = 10, 50


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
    planned = {
        name.removeprefix(_PREFIX): [
            replace(run, horizon=arm["experiment"]["steps"]) for run in report.courses(_table(context), name)
        ]
        for name, arm in _table(context)["arms"].items()
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
        True if always and len(e2m1) >= SEEDS else None, f"{_told(e2m1)}; FP32: {_told(fp32)}" if e2m1 else "not run",
        "; ".join(f"{name} {_told(each)}" for name, each in planned.items()),
        sorted({run.seed for run in runs}), max((run.horizon for run in runs), default=0),
    )  # fmt: skip


def _is_calm_to(run: Course | None, step: int) -> bool:
    return run is not None and run.steps > step and not any(e.start <= step for e in run.excursions)


def divergence(context: Context) -> list[Statement]:
    """Whether each arm diverges where FP32 does not."""
    table = _table(context)
    names = [name for name in table["arms"] if name != _CONTROL]
    if not names:
        return [Statement(f"E4M3 diverges where FP32 does not, {WHERE}", None, "not run")]
    controls = report.courses(table, _CONTROL) if _CONTROL in table["arms"] else []
    fp32 = f"FP32: {_told(controls)}" if controls else "FP32 was not run"
    found = []
    for name in names:
        runs = report.courses(table, name)
        arm = name.removeprefix(_PREFIX).replace("released code", _CODE)
        what = f"{arm} diverges where FP32 does not, {WHERE}"
        whole = all(run.steps >= table["arms"][name]["experiment"]["steps"] for run in runs)
        found.append(Statement(what, _diverges(runs, controls, whole), f"{_told(runs)}; {fp32}"))
    return found


def growth(context: Context) -> list[Statement]:
    """What zeta is early, late and at most, as long as nothing has risen."""
    found = []
    for name, arm in _table(context)["arms"].items():
        zeta = [_calm_looks(run) for run in arm["runs"]]
        if name == _CONTROL or not zeta:
            continue
        early, late = (np.mean([z[part] for z in zeta]) for part in (slice(_LOOKS), slice(-_LOOKS, None)))
        numbers = (
            f"before any excursion, one look in {_EVERY} steps: on average {early:.2f} over the first ten and "
            f"{late:.2f} over the last ten; {max(map(max, zeta)):.2f} at most; {counted(len(zeta), 'run')}"
        )
        found.append(Statement(f"{name.removeprefix(_PREFIX)}: zeta grows during training, {WHERE}", None, numbers))
    return found or [Statement(f"the same {WHERE}", None, "not run")]


def _calm_looks(run: dict[str, Any]) -> list[float]:
    """Zeta at the regular looks before the first excursion, without the first step."""
    end = run["excursions"][0]["start"] if run["excursions"] else math.inf
    pairs = zip(run["measured_at"], run["measured"]["zeta"], strict=True)
    return [zeta for at, zeta in pairs if zeta is not None and 0 < at < end and at % _EVERY == 0]


def released_code(context: Context) -> Statement:
    """The arm with the six switches as the code was released."""
    found = [s for s in divergence(context) if s.what.startswith(_CODE)]
    return found[0] if found else Statement(f"{_CODE} diverges where FP32 does not, {WHERE}", None, "not run")


def actions(context: Context) -> Statement:
    """What becomes of a jump after each action; one seed decides nothing."""
    if context.has(_ACTIONS):
        acted = context.json(_ACTIONS)
        told = list(map(_acted, interventions.rows(acted)))
        seeds, watch = counted(len(acted["seeds"]), "seed"), acted["plan"]["watch"]
        what = f"the same in {acted['base'].removeprefix(_PREFIX)} {WHERE}"
        return Statement(what, None, f"{seeds}; how many rose within {watch} steps: {'; '.join(told)}")
    table = _table(context)
    runs = [run for name in table["arms"] if name != _CONTROL for run in report.courses(table, name)]
    calm = bool(runs) and not any(run.counted for run in runs)
    numbers = f"nothing to avert: none of {counted(len(runs), 'run')} had an excursion" if calm else "not run"
    return Statement(f"the same {WHERE}", None, numbers)


def _acted(row: interventions.Row) -> str:
    after = row.arm.median_time()
    return f"{row.name} {row.arm.events} of {row.arm.runs}" + ("" if after is None else f" (after {after:.0f})")


def variants(context: Context) -> Statement:
    """Activations and layer norm."""
    numbers = "only GELU with layer norm was run, see I6" if _table(context)["arms"] else "not run"
    return Statement(f"the same in E4M3 {WHERE}", None, numbers)


def rates(context: Context) -> list[Statement]:
    """At which rates each kind rises, beside FP32 on the same seeds."""
    runs: dict[str, dict[float, list[Course]]] = {}
    table = _table(context, _RATES)
    for name in table["arms"]:
        kind, rate = critical.rate_of(name)
        runs.setdefault(kind, {})[rate] = report.courses(table, name)
    controls = runs.pop("FP32", {})
    found = []
    for kind, own in runs.items():
        numbers = "; ".join(f"{rate:g}: {_told(own[rate])}" for rate in sorted(own))
        fp32 = "; ".join(f"{rate:g}: {_told(controls[rate])}" for rate in sorted(controls)) or "not run"
        what = f"{kind} has a lower critical rate of excursions than FP32, {WHERE}"
        found.append(Statement(what, _rises_at_less(own, controls), f"{numbers}; FP32: {fp32}"))
    return found or [Statement(f"E4M3 has a lower critical rate of excursions than FP32, {WHERE}", None, "not run")]


def _table(context: Context, file: str = _FILE) -> dict[str, Any]:
    table: dict[str, Any] = context.json(file) if context.has(file) else {"arms": {}}
    return table


def _rises_at_less(own: dict[float, list[Course]], controls: dict[float, list[Course]]) -> bool | None:
    """Whether all of this kind and none of FP32 rise at the least rate where any does; None where it is not clear."""
    for rate in sorted(own.keys() & controls.keys()):
        ours, theirs = ([bool(run.counted) for run in kind[rate]] for kind in (own, controls))
        if min(len(ours), len(theirs)) >= SEEDS and any(ours + theirs):
            return True if all(ours) and not any(theirs) else False if all(theirs) else None
    return None


def _diverges(runs: list[Course], controls: list[Course], whole: bool) -> bool | None:
    """Each seed against FP32 of the same seed; None where they do not agree, are too few, or calm but not `whole`."""
    others = {run.seed: run for run in controls}
    pairs = [(run, others[run.seed]) for run in runs if run.seed in others]
    if len(pairs) < SEEDS:
        return None
    if all(not run.counted for run, _ in pairs):
        return False if whole else None
    stayed = all(run.counted and run.counted[-1].end is None for run, _ in pairs)
    calm = all(not fp32.counted and (not run.counted or fp32.steps > run.counted[0].start) for run, fp32 in pairs)
    return True if stayed and calm else None


def _told(runs: list[Course]) -> str:
    risen, ends = sum(bool(run.counted) for run in runs), [run.final for run in runs if run.final is not None]
    least, most = (limit(run.steps for run in runs) for limit in (min, max))
    steps = f"{least:,}" if least == most else f"{least:,} to {most:,}"
    text = f"{risen} of {counted(len(runs), 'run')} with an excursion in {steps} steps"
    starts = [f"seed {run.seed} from step {run.counted[0].start:,}" for run in runs if run.counted]
    text += f" ({', '.join(starts)})" if starts else ""
    return text + (f", ending at {min(ends):.3g}" + (f" to {max(ends):.3g}" if len(ends) > 1 else "") if ends else "")
