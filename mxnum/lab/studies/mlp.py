"""Train, read and show the runs of studies of the residual MLP."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from mxnum import errors
from mxnum.lab import storage
from mxnum.lab.mlp import machine as machines
from mxnum.lab.mlp.config import Experiment
from mxnum.lab.mlp.loop import history, origin, train
from mxnum.lab.studies import report
from mxnum.lab.studies.study import Model, Study
from mxnum.lab.studies.sweep import Task, telling


class _Mlp(Model):
    base, key = Experiment(), "experiment"
    extra = ("horizon", "measure_above")
    stack, prolongs = 6, True

    def folder(self, study: Study) -> str:
        """Return the folder for the study's width, where all studies of this width share runs."""
        return f"width-{next(iter(study.arms.values())).width}"

    def check(self, study: Study, stack: int, machine: str, here: bool, keep_operands: bool) -> None:
        machines.check(machine, here=here)
        errors.require(not keep_operands, "keep_operands", "False for the residual MLP", keep_operands)

    def order(self, configuration: Experiment) -> int:
        return 0 if configuration.precision.weights.is_mx else 1

    def train(self, task: Task, progress: Any) -> None:
        # Each machine has its own checkpoint, because the bits of a run depend on the machine.
        where = "" if task.machine == "cpu" else f"-{task.machine}"
        name = f"checkpoint-{task.seeds[0]}-{task.seeds[-1]}-{len(task.seeds)}{where}.npz"
        tell = telling(task.label, progress)
        runs = train(
            task.configuration, task.seeds, measure_every=task.measure_every, measure_above=task.measure_above,
            checkpoint=task.directory / name, keep_checkpoint=task.keeps_checkpoint,
            report=lambda step, losses, training: tell(step), machine=task.machine,
        )  # fmt: skip
        for run in runs:
            run.save(task.directory)

    def summary(self, configuration: Experiment, stored: dict[str, Any], arrays: dict[str, Any], path: Path) -> Any:
        return report.summary(stored, arrays)

    def under_way(self, folder: Path, configuration: Experiment) -> Iterator[dict[str, Any]]:
        for path in sorted(folder.glob("checkpoint-*.npz")):
            arrays = storage.read_arrays(path)
            found, about = origin(arrays)
            is_of_arm = found is not None and found.but(steps=configuration.steps) == configuration
            for index, seed in enumerate(about.get("seeds", ()) if is_of_arm else ()):
                losses, at, diverged, measured = history(arrays, index)
                stored = {"seed": seed, "diverged": diverged, "steps": len(losses)}
                values = {f"measured_{name}": np.stack(each) for name, each in measured.items()}
                values |= {"losses": np.asarray(losses), "measured_at": np.asarray(at, np.int64)}
                yield report.summary(stored, values) | {"environment": about["environment"]}

    def finish(self, study: Study, table: dict[str, Any]) -> None:
        if study.controls:
            table["controls"] = {arm: study.control_of(arm) for arm in study.arms}
        if study.horizon is not None:
            table["horizon"] = study.horizon
        if study.control not in table["arms"]:
            table["control"] = next(iter(table["arms"]))

    def files(self, table: dict[str, Any]) -> dict[str, str]:
        return {"md": report.page(table)}


MODEL = _Mlp()
