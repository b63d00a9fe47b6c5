"""What a study is, and what it has to know of the network that its arms train."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

from mxnum.lab.mlp.config import Experiment

#: The networks: each has a module here whose `MODEL` is its `Model`, and a folder of study files.
MODELS = ("mlp", "language_model")
#: Drawn once, by `secrets.randbelow`, after every setting of `studies` had been fixed. `--fresh` draws another.
FIRST_SEED = 39304300


@dataclass(frozen=True)
class Study:
    """Arms that are compared on the same seeds: the same initial parameters and batches."""

    name: str
    question: str
    #: An `Experiment` each, or a `Setting` each.
    arms: Mapping[str, Any]
    #: How many seeds.
    seeds: int
    #: The arm that the others are compared with.
    control: str
    measure_every: int = 250
    first_seed: int = FIRST_SEED
    #: Arms with a control of their own, as FP32 at their rate.
    controls: Mapping[str, str] = field(default_factory=dict)
    #: Excursions that start before it count, and are watched up to twice of it; None: all that were run.
    horizon: int | None = None
    #: Measure also at every step after a loss above this times the least of the last 500.
    measure_above: float | None = None
    #: Whether runs keep their last checkpoint, so that more steps can follow: as large as three times the parameters.
    keeps_checkpoints: bool = False
    #: The folder of its runs, within which arms of one name are one configuration; None: that of its `Model`.
    own_folder: str | None = None
    #: The name in the study file of each arm that a grid made.
    named: Mapping[str, str] = field(default_factory=dict)

    @property
    def model(self) -> Model:
        """Return what trains the arms."""
        return model_of(next(iter(self.arms.values())))

    @property
    def folder(self) -> str:
        """Return the folder of the runs."""
        return self.model.folder(self) if self.own_folder is None else self.own_folder

    def control_of(self, arm: str) -> str:
        """Return the arm that `arm` is compared with."""
        return self.controls.get(arm, self.control)


class Model:
    """A network that studies train: how one task is trained, and how its runs are read and shown."""

    #: The configuration of an arm in which nothing is changed; it has `steps`, `but`, `to_dict` and `from_dict`.
    base: Any
    #: The key of the configuration in the JSON file of a run.
    key: str
    #: What a study file has unless it says otherwise, and what else it may have at its top.
    first_seed = FIRST_SEED
    measure_every = 250
    extra: tuple[str, ...] = ()
    #: Seeds that one process trains together, unless a call says otherwise.
    stack = 1
    #: Whether a run with fewer steps is the beginning of one with more.
    prolongs = False

    def folder(self, study: Study) -> str:
        """Return the folder of the runs of a study that has none of its own."""
        return ""

    def check(self, study: Study, stack: int, machine: str, here: bool, keep_operands: bool) -> None:
        """Raise an error if runs asked for in this way cannot be trained, `here` or on a cluster."""
        raise NotImplementedError

    def order(self, configuration: Any) -> int:
        """Return the rank of an arm among those that start together; what takes longest goes first."""
        return 0

    def train(self, task: Any, progress: Any) -> None:
        """Train and save the seeds of a `sweep.Task`, from a checkpoint if there is one."""
        raise NotImplementedError

    def summary(self, configuration: Any, stored: dict[str, Any], arrays: dict[str, Any], path: Path) -> dict[str, Any]:
        """Return what a table keeps of a stored run."""
        raise NotImplementedError

    def under_way(self, folder: Path, configuration: Any) -> Iterable[dict[str, Any]]:
        """Yield the same of runs in the checkpoints of an arm."""
        return ()

    def finish(self, study: Study, table: dict[str, Any]) -> None:
        """Add to a collected table what only studies of this network have."""
        raise NotImplementedError

    def files(self, table: dict[str, Any]) -> dict[str, str]:
        """Return the text beside the JSON file of a table, by the ends of the files' names: the page, and more."""
        raise NotImplementedError


def model_named(name: str) -> Model:
    """Return one of `MODELS`."""
    found: Model = import_module(f"mxnum.lab.studies.{name}").MODEL
    return found


def model_of(configuration: Any) -> Model:
    """Return the model that a configuration is of."""
    return model_named("mlp" if isinstance(configuration, Experiment) else "language_model")
