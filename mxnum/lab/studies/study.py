"""Define `Study`, and `Model`, the interface to the network that the arms of a study train."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

from mxnum.lab.mlp.config import Experiment

#: The names of the networks. Each network has a folder of study files, and a module with the same
#: name in this package. In the module of a network, `MODEL` is the network's `Model`.
MODELS = ("mlp", "language_model")
#: The default first seed. This seed was drawn with `secrets.randbelow` after all settings in
#: `studies` had been fixed. The option `--fresh` draws another first seed.
FIRST_SEED = 39304300


@dataclass(frozen=True)
class Study:
    """Arms that are compared on the same seeds: with the same initial parameters and batches."""

    name: str
    question: str
    #: The configuration of each arm: an `Experiment` or a `Setting`.
    arms: Mapping[str, Any]
    #: The number of seeds.
    seeds: int
    #: The arm with which the other arms are compared by default.
    control: str
    measure_every: int = 250
    first_seed: int = FIRST_SEED
    #: For each arm that is not compared with `control`, the arm with which this arm is compared,
    #: such as FP32 at the same learning rate.
    controls: Mapping[str, str] = field(default_factory=dict)
    #: An excursion counts if it starts before this step. A run has recovered if the loss comes back
    #: by twice this step. If None, all excursions count.
    horizon: int | None = None
    #: The factor for additional measurements. A step is also measured if the loss of the previous
    #: step is above this factor times the least of the last 500 losses.
    measure_above: float | None = None
    #: True if runs keep their last checkpoint (three times the size of the parameters), so that
    #: training can continue for more steps.
    keeps_checkpoints: bool = False
    #: The folder of the runs. Arms with the same name in this folder must have the same
    #: configuration. If None, the `Model` chooses the folder.
    own_folder: str | None = None
    #: For each arm that comes from a grid, the name of the arm in the study file.
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
        """Return the arm with which `arm` is compared."""
        return self.controls.get(arm, self.control)


class Model:
    """The interface to a network: its methods train, read and show the runs of a study."""

    #: The default configuration. Every configuration has a field `steps` and the methods `but`,
    #: `to_dict` and `from_dict`.
    base: Any
    #: The key of the configuration in the JSON file of a run.
    key: str
    #: For study files: the default first seed, the default number of steps between measurements,
    #: and the keys that are allowed for this network only.
    first_seed = FIRST_SEED
    measure_every = 250
    extra: tuple[str, ...] = ()
    #: The default number of seeds that one process trains together.
    stack = 1
    #: True if a run with fewer steps can be continued to a run with more steps.
    prolongs = False

    def folder(self, study: Study) -> str:
        """Return the folder of the runs of a study that has no `own_folder`."""
        return ""

    def check(self, study: Study, stack: int, machine: str, here: bool, keep_operands: bool) -> None:
        """Raise an error if the runs cannot be trained; with `here`, also check this computer."""
        raise NotImplementedError

    def order(self, configuration: Any) -> int:
        """Return the rank of an arm. Tasks of low rank start first, so slow arms get low ranks."""
        return 0

    def train(self, task: Any, progress: Any) -> None:
        """Train and save the runs of a `sweep.Task`; continue from its checkpoint if it has one."""
        raise NotImplementedError

    def summary(self, configuration: Any, stored: dict[str, Any], arrays: dict[str, Any], path: Path) -> dict[str, Any]:
        """Return those data of a stored run that are copied to tables."""
        raise NotImplementedError

    def under_way(self, folder: Path, configuration: Any) -> Iterable[dict[str, Any]]:
        """Yield the summary of each unfinished run in the checkpoints of an arm."""
        return ()

    def finish(self, study: Study, table: dict[str, Any]) -> None:
        """Add to a collected table the entries that only studies of this network have."""
        raise NotImplementedError

    def files(self, table: dict[str, Any]) -> dict[str, str]:
        """Return the files to write beside a table's JSON file: their texts, indexed by suffix."""
        raise NotImplementedError


def model_named(name: str) -> Model:
    """Return the `Model` of the network with this name, one of `MODELS`."""
    found: Model = import_module(f"mxnum.lab.studies.{name}").MODEL
    return found


def model_of(configuration: Any) -> Model:
    """Return the `Model` of the network that a configuration is for."""
    return model_named("mlp" if isinstance(configuration, Experiment) else "language_model")
