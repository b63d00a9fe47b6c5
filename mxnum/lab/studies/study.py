"""A study, and its interface to the network that its arms train."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

from mxnum.lab.mlp.config import Experiment

#: The networks. Each has a module in this package whose `MODEL` is its `Model`, and a folder of
#: study files.
MODELS = ("mlp", "language_model")
#: The first seed, drawn once by `secrets.randbelow` after every setting of `studies` had been
#: fixed. `--fresh` draws another.
FIRST_SEED = 39304300


@dataclass(frozen=True)
class Study:
    """Arms that are compared on the same seeds: the same initial parameters and batches."""

    name: str
    question: str
    #: The configuration of each arm: an `Experiment` or a `Setting`.
    arms: Mapping[str, Any]
    #: The number of seeds.
    seeds: int
    #: The arm with which the others are compared.
    control: str
    measure_every: int = 250
    first_seed: int = FIRST_SEED
    #: The control of each arm that has its own, such as FP32 at its rate.
    controls: Mapping[str, str] = field(default_factory=dict)
    #: The step before which excursions must start to count; they are watched up to twice this step.
    #: None: all steps count.
    horizon: int | None = None
    #: Runs are also measured at every step after a loss above this times the least of the last 500.
    measure_above: float | None = None
    #: True if runs keep their last checkpoint (three times the size of the parameters), so that
    #: more steps can follow.
    keeps_checkpoints: bool = False
    #: The folder of the runs, in which arms of one name have one configuration; None: that of its
    #: `Model`.
    own_folder: str | None = None
    #: For each arm that a grid made, its name in the study file.
    named: Mapping[str, str] = field(default_factory=dict)

    @property
    def model(self) -> Model:
        """The network that the arms train."""
        return model_of(next(iter(self.arms.values())))

    @property
    def folder(self) -> str:
        """The folder of the runs."""
        return self.model.folder(self) if self.own_folder is None else self.own_folder

    def control_of(self, arm: str) -> str:
        """Return the arm that `arm` is compared with."""
        return self.controls.get(arm, self.control)


class Model:
    """A network that studies train: how to train a task, and how to read and show its runs."""

    #: The configuration of an arm that changes nothing; it has `steps`, `but`, `to_dict` and
    #: `from_dict`.
    base: Any
    #: The key of the configuration in the JSON file of a run.
    key: str
    #: Defaults of a study file, and the extra keys that it may have at its top.
    first_seed = FIRST_SEED
    measure_every = 250
    extra: tuple[str, ...] = ()
    #: The default number of seeds that one process trains together.
    stack = 1
    #: True if a run with fewer steps is the beginning of one with more.
    prolongs = False

    def folder(self, study: Study) -> str:
        """Return the folder of the runs of a study without its own folder."""
        return ""

    def check(self, study: Study, stack: int, machine: str, here: bool, keep_operands: bool) -> None:
        """Raise an error if the requested runs cannot be trained, `here` or on a cluster."""
        raise NotImplementedError

    def order(self, configuration: Any) -> int:
        """Return the rank of an arm among those that start together; the slowest go first."""
        return 0

    def train(self, task: Any, progress: Any) -> None:
        """Train and save the seeds of a `sweep.Task`, from a checkpoint if there is one."""
        raise NotImplementedError

    def summary(self, configuration: Any, stored: dict[str, Any], arrays: dict[str, Any], path: Path) -> dict[str, Any]:
        """Return what a table keeps of a stored run."""
        raise NotImplementedError

    def under_way(self, folder: Path, configuration: Any) -> Iterable[dict[str, Any]]:
        """Yield the summary of each unfinished run in the checkpoints of an arm."""
        return ()

    def finish(self, study: Study, table: dict[str, Any]) -> None:
        """Add to a collected table what only studies of this network have."""
        raise NotImplementedError

    def files(self, table: dict[str, Any]) -> dict[str, str]:
        """Return the texts to write beside a table's JSON file, by their suffixes."""
        raise NotImplementedError


def model_named(name: str) -> Model:
    """Return one of `MODELS`."""
    found: Model = import_module(f"mxnum.lab.studies.{name}").MODEL
    return found


def model_of(configuration: Any) -> Model:
    """Return the model that a configuration belongs to."""
    return model_named("mlp" if isinstance(configuration, Experiment) else "language_model")
