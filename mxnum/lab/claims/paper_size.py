"""Read stored runs of an MLP that is as large as the MLP of Su et al. (arXiv 2506.20752).

The MLP has width 512 and 4 layers, and is trained with batches of 2048 and a learning rate of 6e-4.
A run takes hours on one core, so there are few runs. An arm with fewer than `SEEDS` seeds decides
no claim; the claims only report its runs.
"""

from __future__ import annotations

from dataclasses import replace
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
    """Return the table of a results file, or a table without arms if the file does not exist."""
    found: dict[str, Any] = context.json(file) if context.has(file) else {"arms": {}}
    return found


def planned(context: Context) -> dict[str, list[Course]]:
    """Return the runs of each arm; excursions after the planned number of steps do not count."""
    found = table(context)
    return {
        name.removeprefix(PREFIX): [replace(r, horizon=arm["experiment"]["steps"]) for r in report.courses(found, name)]
        for name, arm in found["arms"].items()
    }


def in_e4m3(context: Context) -> tuple[list[Course], list[Course]]:
    """Return two lists of runs from `planned`: the runs of all E4M3 arms, and the FP32 runs."""
    arms = planned(context)
    return [run for name, runs in arms.items() if name not in ("FP32", "E2M1") for run in runs], arms.get("FP32", [])


def jumping(runs: list[Course]) -> int:
    """Return the number of runs that have an excursion."""
    return sum(run.first is not None for run in runs)


def described(runs: list[Course]) -> str:
    """Return a text that says which runs have an excursion, when it starts, and how runs end."""
    risen, ends = sum(bool(run.counted) for run in runs), [run.final for run in runs if run.final is not None]
    least, most = (limit(run.steps for run in runs) for limit in (min, max))
    steps = f"{least:,}" if least == most else f"{least:,} to {most:,}"
    text = f"{risen} of {counted(len(runs), 'run')} with an excursion in {steps} steps"
    starts = [f"seed {run.seed} from step {run.counted[0].start:,}" for run in runs if run.counted]
    text += f" ({', '.join(starts)})" if starts else ""
    return text + (f", ending at {min(ends):.3g}" + (f" to {max(ends):.3g}" if len(ends) > 1 else "") if ends else "")
