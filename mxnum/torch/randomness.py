"""What random bits depend on: a seed for each module, the operand, the step, and the element in the whole batch.

Philox is counted, so the bits of an element are known from these numbers alone: they are the same after a restart, when
a checkpointed part is computed again, and on any number of workers.
"""

from __future__ import annotations

import hashlib
from dataclasses import fields, is_dataclass
from functools import partial
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from mxnum import errors
from mxnum.interop.torch import drawn

#: More steps than anybody runs.
STEPS = 1 << 48


def seed_of(seed: Any) -> int:
    """A seed of 64 bits from an integer, or drawn from a `torch.Generator`, which that advances."""
    if isinstance(seed, torch.Generator):
        return drawn(seed)
    return errors.integer("seed", seed, 0, (1 << 64) - 1)


def module_seed(seed: int, name: str) -> int:
    """Return the seed of the module of that name: 64 bits that look unrelated to those of other modules."""
    digest = hashlib.blake2b(name.encode(), digest_size=8, key=seed.to_bytes(8, "little")).digest()
    return signed(int.from_bytes(digest, "little"))


def position_of(step: int, first: int, count: int) -> Any:
    """What changes in a run, as operations take it: the step, and that `count` samples from `first` on are here.

    A tensor, so that a compiled model is not compiled anew when they change; on the CPU, and no inference tensor,
    whatever the context: it is kept for the backward pass.
    """
    with torch.inference_mode(False):
        return torch.tensor([step, first, count], device="cpu")


def moved(position: Any, by: Any) -> Any:
    """The sum of two positions."""
    if torch.compiler.is_compiling():
        return position + by
    with torch.inference_mode(False):
        return position + by


def worker_of(worker: Any) -> int:
    """The number of this process: as given, or its rank in `torch.distributed`, if that is set up."""
    if worker is not None:
        return errors.integer("worker", worker, 0, (1 << 31) - 1)
    is_set_up = torch.distributed.is_available() and torch.distributed.is_initialized()
    return int(torch.distributed.get_rank()) if is_set_up else 0


def signed(seed: int) -> int:
    """64 bits as torch's operations hold integers."""
    return seed - (1 << 64) if seed >= 1 << 63 else seed


def exporting() -> bool:
    """Whether `torch.export` follows: then a new position would be none (and torch before 2.7 does not say)."""
    return bool(getattr(torch.compiler, "is_exporting", bool)())


def recomputing() -> bool:
    """Whether this is a part of a backward pass: then what runs forward there, runs once more."""
    return not torch.compiler.is_compiling() and torch._C._current_graph_task_id() != -1


class Steps:
    """The step of training that random bits depend on, and which samples of the batch this process holds."""

    def __init__(self, worker: int):
        #: The step, the number of the first sample that is here, and how many are; a new tensor each time.
        self.position = position_of(0, worker, 1)
        self._next = position_of(1, 0, 0)
        #: The position of the forward pass whose backward pass this is.
        self._returning: Any = None
        #: True if a step was counted for what is computed now.
        self._counted = False

    @property
    def current(self) -> Any:
        """The position that operations draw from: what is computed again has that of its own step."""
        return self._returning if self._returning is not None and recomputing() else self.position

    def advance(self) -> None:
        """Begin a step."""
        self.position, self._counted = moved(self.position, self._next), True

    def count(self, module: Any, _: Any) -> None:
        """Begin a step, unless this is recomputed for the backward pass, or exported. (A hook of the model.)"""
        if module.training and not recomputing() and not exporting():
            self.advance()

    def require_counted(self, name: str) -> None:
        """Raise RuntimeError if no step was counted for what a module computes: its bits would be the last ones."""
        if not (self._counted or recomputing() or exporting()):
            raise RuntimeError(
                f"Module {name!r} draws random bits in training, but the emulated model was not called itself, so that "
                "no step was counted: call the model, or emulation.advance_step() before each step."
            )

    def remember(self, module: Any, _: Any, output: Any) -> None:
        """Tell the backward pass which step its output is of: another may have begun. (A hook of the model.)"""
        if not module.training or recomputing() or exporting():
            return
        self._counted = False
        for y in [] if torch.compiler.is_compiling() else _tensors(output):
            if y.grad_fn is not None:
                y.register_hook(partial(self._return_to, self.position))

    def _return_to(self, position: Any, _: Any) -> None:
        self._returning = position


def _tensors(output: Any) -> list[Any]:
    """The tensors in what a model returns, be it a tensor, containers or a dataclass."""
    found = []
    for leaf in tree_leaves(output):
        if isinstance(leaf, torch.Tensor):
            found.append(leaf)
        elif is_dataclass(leaf) and not isinstance(leaf, type):
            found += _tensors([getattr(leaf, each.name) for each in fields(leaf)])
    return found
