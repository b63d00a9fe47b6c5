"""Run a whole study in one call: train missing runs, collect all runs, and test the arms."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from mxnum import errors
from mxnum.lab.studies import report, studies, sweep
from mxnum.lab.studies.study import Study
from mxnum.output.files import as_path, remove_abandoned


@dataclass(frozen=True)
class Outcome:
    """The result of a study."""

    #: The stored runs, as `report.collect` returns them: arms with their configurations and runs.
    table: dict[str, Any]
    #: The runs that ended with an exception; `table` has all other runs.
    failed: list[sweep.Failure]
    #: The duration of the call of `run_study` in seconds, without the time of runs that were
    #: already stored.
    seconds: float

    @property
    def verdict(self) -> list[str]:
        """A sentence for each arm: whether it has excursions sooner or later than its control."""
        return report.conclusions(self.table) if self.table["arms"] else []


def run_study(
    study: str | Study = "quick",
    store: str | Path = "runs",
    *,
    arms: Sequence[str] | None = None,
    seeds: int | None = None,
    first_seed: int | None = None,
    changes: Mapping[str, Any] | None = None,
    processes: int | None = None,
    stack: int | None = None,
    niceness: int = 0,
    scheduler: str | None = None,
    machine: str = "cpu",
    keep_operands: bool = False,
    say: Callable[[str], None] = print,
    show: sweep.Show | None = None,
) -> Outcome:
    """Train the runs of a study that are not stored yet, and return the outcome of the study.

    To continue an interrupted study, repeat the call with the same store. The runs continue from
    their last checkpoints, and the results have the same bits as without the interruption.
    ``run_study("quick", folder)`` trains 48 runs, which takes three minutes on two cores. Call this
    function under ``if __name__ == "__main__":``, because the processes import the main module.

    Parameters
    ----------
    study
        A `Study`, or a name of `studies.STUDIES`.
    store
        The folder of the runs. Studies of the MLP with the same width share the runs of equal arms.
    arms, seeds, first_seed
        The names of the arms to train, the number of seeds, and the first seed. The defaults are
        those of the study. The returned table has all stored runs of the study, even if `arms` and
        `seeds` select only some runs.
    changes
        New values for settings of every arm, such as ``{"rate": 0.1}``. Arms with changed settings
        need a `store` of their own. With a larger value of ``"steps"``, stored runs of the MLP
        continue up to this step.
    processes, stack, niceness, scheduler
        `processes` is the number of processes (default: one for each core; 0: only this process).
        `stack` is the number of seeds that a process trains together. `niceness` is the operating
        system's niceness of the processes. If `scheduler` is the address of a dask.distributed
        scheduler, its cluster trains the runs instead. The number and kind of processes do not
        change the bits of results.
    machine
        "cpu" works for every study. For the MLP, "amx" and "avx512_bf16" use a CPU's products in
        bfloat16, and "torch" and "cuda" use PyTorch on the CPU or on a GPU, with one process. The
        last bits of losses depend on the machine.
    keep_operands
        Store the final operands of the linear layers of a language model, in
        ``seed-N-operands.npz``.
    say, show
        Functions that report progress. `run_study` calls `say` with a line of text for each
        completed group of seeds, and `show` with the `sweep.State` about once a second. Without
        `show`, it also calls `say` with the progress every ten seconds.
    """
    started = time.monotonic()
    whole = studies.get(study) if isinstance(study, str) else study
    if changes:
        whole = replace(whole, arms={name: arm.but(**changes) for name, arm in whole.arms.items()})
    model = whole.model
    stack = model.stack if stack is None else stack
    model.check(whole, stack, machine, here=not scheduler, keep_operands=keep_operands)
    errors.require(arms is None or bool(arms), "arms", "names of at least one arm", arms)
    names = whole.arms if arms is None else [errors.choose("arms", name, tuple(whole.arms)) for name in arms]
    wanted = {name: whole.arms[name] for name in sorted(names, key=lambda name: model.order(whole.arms[name]))}
    count = whole.seeds if seeds is None else errors.integer("seeds", seeds, 1, 1 << 20)
    first = whole.first_seed if first_seed is None else first_seed
    root = as_path(store, "store").resolve()  # workers may have another working directory
    remove_abandoned(root)
    for name, configuration in wanted.items():
        for path in sweep.arm_directory(root / whole.folder, name).glob("seed-*.json"):
            steps = report.read_run(path, name, configuration)["steps"]
            if steps > configuration.steps:
                say(
                    f"{str(path)!r} has {steps} steps, not {configuration.steps}; the run is kept, and all its "
                    "steps are reported."
                )
    part = replace(whole, arms=wanted, own_folder=whole.folder)
    how: dict[str, Any] = {"stack": stack, "machine": machine, "keep_operands": keep_operands}
    tasks = sweep.tasks_for(part, range(first, first + count), root, **how)
    say(f"{whole.name}: {len(wanted)} arms, {count} seeds from {first}, {len(tasks)} tasks to do.")
    if scheduler:
        failed = sweep.run_on_cluster(tasks, scheduler, say=say, show=show)
    else:
        failed = sweep.run_all(tasks, processes=processes, niceness=niceness, say=say, show=show)
    # The table has every arm in the store, even arms that this call did not train.
    try:
        table = report.collect(whole, root, range(first, first + max(whole.seeds, count)))
    except ValueError:
        if not failed:
            raise
        table = {"study": whole.name, "arms": {}}
    return Outcome(table, failed, time.monotonic() - started)
