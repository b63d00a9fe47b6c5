"""Track the numbers that determine random bits: seed, operand, step, and index in the batch.

Philox is a counter-based generator, so these four numbers alone determine the random bits of an
element. Random bits are the same after a restart, when a checkpointed part is recomputed, and on
any number of workers.
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

#: A step number must be below this limit, which is far above the length of any training run.
STEPS = 1 << 48


def seed_of(seed: Any) -> int:
    """Return a seed of 64 bits: the given integer, or a number drawn from a `torch.Generator`."""
    if isinstance(seed, torch.Generator):
        return drawn(seed)
    return errors.integer("seed", seed, 0, (1 << 64) - 1)


def module_seed(seed: int, name: str) -> int:
    """Return a module's 64-bit seed, a hash of the model's seed and the module's name."""
    digest = hashlib.blake2b(name.encode(), digest_size=8, key=seed.to_bytes(8, "little")).digest()
    return signed(int.from_bytes(digest, "little"))


def position_of(step: int, first: int, count: int) -> Any:
    """Return the position that operations take: a tensor of `step`, `first` and `count`.

    This process holds `count` samples of the batch; the first of them is sample number `first`. A
    position is a tensor, so that a compiled model is not compiled again when the step changes. The
    tensor is on the CPU, so that operations read it without waiting for a GPU. The tensor is not an
    inference tensor, because autograd cannot save inference tensors for the backward pass.
    """
    with torch.inference_mode(False):
        return torch.tensor([step, first, count], device="cpu")


def moved(position: Any, by: Any) -> Any:
    """Return the sum of two positions."""
    if torch.compiler.is_compiling():
        return position + by
    with torch.inference_mode(False):
        return position + by


def worker_of(worker: Any) -> int:
    """Return the number of this process: `worker`, else its `torch.distributed` rank, else 0."""
    if worker is not None:
        return errors.integer("worker", worker, 0, (1 << 31) - 1)
    is_set_up = torch.distributed.is_available() and torch.distributed.is_initialized()
    return int(torch.distributed.get_rank()) if is_set_up else 0


def signed(seed: int) -> int:
    """Return a seed of 64 bits as the signed integer that torch's operations take."""
    return seed - (1 << 64) if seed >= 1 << 63 else seed


def exporting() -> bool:
    """Return True if `torch.export` is tracing.

    The caller must not begin a step during an export, because `torch.export` cannot handle a new
    position tensor. With torch before 2.7, the result is always False.
    """
    return bool(getattr(torch.compiler, "is_exporting", bool)())


def recomputing() -> bool:
    """Return True during a backward pass, when every forward pass is a recomputation."""
    return not torch.compiler.is_compiling() and torch._C._current_graph_task_id() != -1


#: The end of error messages about steps that nobody counts.
NOT_BEGUN = (
    "no training step was begun. Call the emulated model itself, or call emulation.advance_step() before each step."
)


class Steps:
    """The current training step, and the samples of the batch that this process holds."""

    def __init__(self, worker: int):
        #: The tensor from `position_of`. A new step replaces the tensor and never changes it in
        #: place.
        self.position = position_of(0, worker, 1)
        self._next = position_of(1, 0, 0)
        #: The position of the forward pass whose backward pass began last; None before the first.
        self._returning: Any = None
        #: True if a step was counted for the current forward pass.
        self._counted = False

    @property
    def current(self) -> Any:
        """The position of the forward pass; a recomputation has the original pass's position."""
        return self._returning if self._returning is not None and recomputing() else self.position

    def advance(self) -> None:
        """Begin a step."""
        self.position, self._counted = moved(self.position, self._next), True

    def count(self, module: Any, _: Any) -> None:
        """Begin a training step, except in exports and recomputations.

        The model calls this method as a hook before each forward pass.
        """
        if module.training and not recomputing() and not exporting():
            self.advance()

    def require_counted(self, name: str) -> None:
        """Raise RuntimeError if no step was counted for the current forward pass.

        Without a new step, the pass would draw the random bits of the previous step again.
        """
        if not (self._counted or recomputing() or exporting()):
            raise RuntimeError(f"Module {name!r} draws random bits in training, but {NOT_BEGUN}")

    def remember(self, module: Any, _: Any, output: Any) -> None:
        """Record the step of a forward pass, so that its backward pass uses the same step.

        The model calls this method as a hook after each forward pass. The record is needed because
        another step may begin before the backward pass.
        """
        if not module.training or recomputing() or exporting():
            return
        self._counted = False
        for y in [] if torch.compiler.is_compiling() else _tensors(output):
            if y.grad_fn is not None:
                y.register_hook(partial(self._return_to, self.position))

    def _return_to(self, position: Any, _: Any) -> None:
        self._returning = position


def _tensors(output: Any) -> list[Any]:
    """Return the tensors in a model's output, which may be a tensor, containers or a dataclass."""
    found = []
    for leaf in tree_leaves(output):
        if isinstance(leaf, torch.Tensor):
            found.append(leaf)
        elif is_dataclass(leaf) and not isinstance(leaf, type):
            found += _tensors([getattr(leaf, each.name) for each in fields(leaf)])
    return found
