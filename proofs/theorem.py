"""Define theorems and outcomes for the runner, the tests and the ledger."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

Verdict = Literal["proved", "refuted", "unknown", "error"]
Tier = Literal["fast", "full"]


@dataclass(frozen=True)
class Outcome:
    """The outcome of checking a theorem; every verdict but "proved" is a failure."""

    verdict: Verdict
    #: The solver that answered: "z3", "bitwuzla", "z3+bitwuzla" if both agree, or "sweep" for an
    #: exhaustive check.
    solver: str
    seconds: float
    #: A counterexample, the number of cases that a sweep checked, or the message of an error.
    detail: str = ""


@dataclass(frozen=True)
class Theorem:
    """A theorem: a statement about named kernels, and the procedure that checks it."""

    #: A unique name with parts separated by slashes, such as "encode/float32/e4m3/rne/saturate".
    name: str
    #: What is proved about each kernel, in a sentence that a numerics engineer understands.
    statement: str
    #: Names of the functions that the theorem is about.
    kernels: tuple[str, ...]
    #: The procedure, which runs in a worker process and must not depend on global state.
    check: Callable[[], Outcome] = field(repr=False)
    #: The assumptions in words: "x is any float32", "scale code in 0..255", "random in 0..2**30-1".
    hypotheses: tuple[str, ...] = ()
    tier: Tier = "fast"
    #: Functions whose code the ledger hashes; a changed function makes the ledger stale.
    functions: tuple[Callable[..., object], ...] = field(default=(), repr=False)
