"""Theorems and outcomes, as the runner, the tests and the ledger know them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

Verdict = Literal["proved", "refuted", "unknown", "error"]
Tier = Literal["fast", "full"]


@dataclass(frozen=True)
class Outcome:
    """The outcome of checking a theorem. Anything but "proved" is a failure, "unknown" included."""

    verdict: Verdict
    #: The solver that answered: "z3", "bitwuzla", "z3+bitwuzla" where both agree, "sweep" for an
    #: exhaustive check.
    solver: str
    seconds: float
    #: A witness for a refutation, a count for a sweep, the message of an error.
    detail: str = ""


@dataclass(frozen=True)
class Theorem:
    """A statement about named kernels and the procedure that checks it."""

    #: Slash-separated and unique, for ``--only``: "encode/float32/e4m3/rne/saturate".
    name: str
    #: One sentence that a numerics engineer understands; it covers every kernel of its family.
    statement: str
    #: Names of the function objects it is about.
    kernels: tuple[str, ...]
    #: Runs in a worker process; must not depend on global state.
    check: Callable[[], Outcome] = field(repr=False)
    #: The assumptions in words: "x is any float32", "scale code in 0..255", "random in 0..2**30-1".
    hypotheses: tuple[str, ...] = ()
    tier: Tier = "fast"
    #: Kernel function objects whose code the ledger hashes; a changed kernel makes the ledger
    #: stale.
    functions: tuple[Callable[..., object], ...] = field(default=(), repr=False)
