"""Theorems which state that a proof notices a mistake planted in a module's text (a mutant)."""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable
from functools import partial
from types import ModuleType
from typing import Any

from proofs.theorem import Outcome, Theorem, Verdict

#: The type of a function that checks a module. Its argument is the mutant: the module with a
#: mistake.
Check = Callable[[ModuleType], Outcome]


def stated(name: str, statement: str, module: ModuleType, old: str, new: str, theorem: Check) -> Theorem:
    """Return a theorem which states that `theorem` is false for the mutant.

    The mutant is the module with `old` replaced by `new`.
    """
    return Theorem(
        name=name,
        statement=statement,
        kernels=(module.__name__,),
        check=partial(check, module, old, new, theorem),
        hypotheses=(f"{old!r} becomes {new!r} in {module.__name__}",),
        functions=functions_of(module),
    )


def given_as(argument: str, theorem: Callable[..., Outcome]) -> Check:
    """Return a check that calls `theorem` with the mutant as the keyword argument `argument`."""
    return lambda changed: theorem(**{argument: changed})


def check(module: ModuleType, old: str, new: str, theorem: Check) -> Outcome:
    """Run `theorem` on the mutant, and return the outcome with the opposite verdict.

    The verdict is "proved" if `theorem` is refuted, because the theorem then notices the mistake.
    """
    started = time.perf_counter()
    outcome = theorem(variant(module, old, new))
    verdict: Verdict = "proved" if outcome.verdict == "refuted" else "refuted"
    return Outcome(verdict, outcome.solver, time.perf_counter() - started, f"{outcome.verdict}: {outcome.detail}")


def variant(module: ModuleType, old: str, new: str) -> ModuleType:
    """Return the module with one change; raise ValueError unless `old` occurs exactly once."""
    text = inspect.getsource(module)
    if (count := text.count(old)) != 1:
        raise ValueError(f"{old!r} occurs {count} times in {module.__name__}, not once")
    changed = ModuleType(module.__name__)
    exec(compile(text.replace(old, new), f"<{module.__name__}>", "exec"), changed.__dict__)
    return changed


def functions_of(module: ModuleType) -> tuple[Callable[..., Any], ...]:
    """Return the functions of a module; a change to any of them makes a mutant's record stale."""
    found = (inspect.unwrap(value) for value in vars(module).values() if callable(value))
    return tuple(value for value in found if inspect.isfunction(value) and value.__module__ == module.__name__)
