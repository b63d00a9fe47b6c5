"""Where a network is trained: numpy and compiled loops on the CPU, or CuPy on a GPU; the rest is the same code."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

import numpy as np

from mxnum import errors
from mxnum.experiments import kernels, vector

Array = Any
MACHINES = ("cpu", "cuda")


@dataclass(frozen=True)
class Machine:
    """A library of arrays that numpy's names work in, and the vector operations for its arrays."""

    xp: Any
    kernels: ModuleType
    #: What results depend on besides the host.
    about: Mapping[str, str] = field(default_factory=dict)

    def to(self, array: Array) -> Array:
        """A numpy array where the network is; on the CPU the array itself."""
        return array if self.xp is np else self.xp.asarray(array)

    def host(self, array: Array) -> Array:
        """The inverse of `to`."""
        return array if self.xp is np else self.xp.asnumpy(array)


CPU = Machine(np, kernels)


def machine(name: str) -> Machine:
    """The CPU, or the current GPU by CuPy."""
    if errors.choose("machine", name, MACHINES) == "cpu":
        return CPU
    try:
        import cupy
    except ImportError:
        raise errors.needs_extra("Experiments on a GPU", "CuPy", "cuda") from None
    try:
        found = cupy.cuda.runtime.getDeviceCount()
    except cupy.cuda.runtime.CUDARuntimeError as problem:
        raise errors.no_driver(problem) from None
    if not found:
        raise errors.no_driver("no GPU was found")
    gpu = cupy.cuda.runtime.getDeviceProperties(cupy.cuda.Device().id)["name"].decode()
    return Machine(cupy, vector, {"gpu": gpu, "cupy": cupy.__version__})


def check(name: str, here: bool = True) -> None:
    """An error unless there is such a machine: of that name, and with `here` one that this process can use."""
    if errors.choose("machine", name, MACHINES) != "cpu" and here:
        machine(name)


def library(x: Array) -> Any:
    """The library that an array belongs to: numpy, or CuPy."""
    name = type(x).__module__.partition(".")[0]
    return sys.modules[name] if name == "cupy" else np
