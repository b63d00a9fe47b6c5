"""What random bits depend on: a seed for each module, the operand, the step, and the element in the whole batch.

Philox is counted, so the bits of an element are known from these numbers alone: they are the same after a restart, when
a checkpointed part is computed again, and on any number of workers.
"""

from __future__ import annotations

import hashlib
from typing import Any

import torch

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
    """The seed of the module of that name: 64 bits that look unrelated to those of other modules."""
    digest = hashlib.blake2b(name.encode(), digest_size=8, key=seed.to_bytes(8, "little")).digest()
    return int.from_bytes(digest, "little")


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
