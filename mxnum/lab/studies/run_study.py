"""One call for a whole study: run what is missing, collect every record, draw the conclusions."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from mxnum import errors
from mxnum.lab.mlp import machine as machines
from mxnum.lab.mlp.config import Experiment
from mxnum.lab.studies import report, studies, sweep
from mxnum.lab.studies.studies import Study
from mxnum.output.files import as_path, remove_abandoned


@dataclass(frozen=True)
class Outcome:
    """What a study came to."""

    #: The records of the runs in the store: arms with their configurations and runs, as `report.collect` gives them.
    table: dict[str, Any]
    #: One sentence for each arm against the control arm.
    verdict: list[str]
    #: Runs that ended with an exception; the others are in the table all the same.
    failed: list[sweep.Failure]
    #: How long this call took; runs that were in the store cost nothing.
    seconds: float


def run_study(
    study: str | Study = "quick",
    store: str | Path = "runs",
    *,
    arms: Sequence[str] | None = None,
    seeds: int | None = None,
    first_seed: int | None = None,
    changes: Mapping[str, Any] | None = None,
    processes: int | None = None,
    stack: int = 6,
    niceness: int = 0,
    scheduler: str | None = None,
    machine: str = "cpu",
    say: Callable[[str], None] = print,
    show: sweep.Show | None = None,
) -> Outcome:
    """Run what the store lacks of a study, on processes of this machine, and say what came out.

    It may be interrupted: the same call with the same store goes on from the last checkpoints, and the trajectories are
    the same bit for bit. The quick study is ``run_study("quick", folder)``: 48 runs, three minutes on two cores.
    Call it under ``if __name__ == "__main__":``, because the processes import the main module.

    Parameters
    ----------
    study
        A name of `studies.STUDIES`, or a `Study`.
    store
        The folder of the runs. Studies of one width share arms there, so `confirm` continues `quick`.
    arms, seeds, first_seed
        Only these arms; how many seeds, and the first (default: the study's). The records that come back are of all
        arms in the store, and of these seeds (of the study's number, where fewer are asked for).
    changes
        Other values for fields of every `Experiment`, as ``{"rate": 0.1}``; use a store of its own for them. More
        ``"steps"`` prolong the runs that are there.
    processes, stack, niceness, scheduler
        How many processes (default: one for each core), how many seeds each trains together, how politely; or the
        address of a dask.distributed scheduler. The bits depend on none of them.
    machine
        "cpu"; "amx" or "avx512_bf16" for a CPU with products in bfloat16; "torch" or "cuda" for PyTorch on the CPU or
        on a GPU, where one process suffices. Last bits differ.
    say, show
        Takes a line for each group of seeds that is done; takes the `sweep.State` about once a second (default: it is
        said every ten seconds).
    """
    started = time.monotonic()
    machines.check(machine, here=not scheduler)
    whole = _changed(studies.get(study) if isinstance(study, str) else study, changes or {})
    names = whole.arms if arms is None else [errors.choose("arms", name, tuple(whole.arms)) for name in arms]
    # What takes longest goes first, so that no process is left with it alone.
    names = sorted(names, key=lambda name: not whole.arms[name].precision.weights.is_mx)
    wanted: dict[str, Experiment] = {name: whole.arms[name] for name in names}
    count = whole.seeds if seeds is None else errors.integer("seeds", seeds, 1, 1 << 20)
    first = whole.first_seed if first_seed is None else first_seed
    root = as_path(store, "store").resolve()  # workers of a cluster may be in another folder
    remove_abandoned(root)
    for name, experiment in wanted.items():
        for path in sweep.arm_directory(root / whole.setting, name).glob("seed-*.json"):
            steps = report.read_run(path, name, experiment)["steps"]
            if steps > experiment.steps:
                say(f"{str(path)!r} has {steps} steps, not {experiment.steps}: it is kept, and reported whole.")
    tasks = sweep.tasks_for(
        wanted,
        range(first, first + count),
        root / whole.setting,
        stack=stack,
        measure_every=whole.measure_every,
        machine=machine,
        measure_above=whole.measure_above,
        keeps_checkpoint=whole.keeps_checkpoints,
    )
    say(f"{whole.name}: {len(wanted)} arms, {count} seeds from {first}, {len(tasks)} tasks to do.")
    if scheduler:
        failed = sweep.run_on_cluster(tasks, scheduler, say=say, show=show)
    else:
        failed = sweep.run_all(tasks, processes=processes, niceness=niceness, say=say, show=show)
    # The table has every arm that is there, also those that this call did not ask for.
    try:
        table = report.collect(whole, root, range(first, first + max(whole.seeds, count)))
    except ValueError:
        if not failed:
            raise
        return Outcome({"study": whole.name, "arms": {}}, [], failed, time.monotonic() - started)
    return Outcome(table, report.conclusions(table), failed, time.monotonic() - started)


def _changed(study: Study, changes: Mapping[str, Any]) -> Study:
    return replace(study, arms={name: arm.but(**changes) for name, arm in study.arms.items()}) if changes else study
