"""Mistakes planted in a module by changing its text, which a theorem about what the module defines must refute."""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable
from functools import partial
from types import ModuleType
from typing import Any

from proofs.theorem import Outcome, Theorem, Verdict

#: Checks a module; the mutant is given to it.
Check = Callable[[ModuleType], Outcome]


def stated(name: str, statement: str, module: ModuleType, old: str, new: str, theorem: Check) -> Theorem:
    """That the theorem refutes the mutant."""
    return Theorem(
        name=name,
        statement=statement,
        kernels=(module.__name__,),
        check=partial(check, module, old, new, theorem),
        hypotheses=(f"{old!r} becomes {new!r} in {module.__name__}",),
        functions=functions_of(module),
    )


def given_as(argument: str, theorem: Callable[..., Outcome]) -> Check:
    """The mutant is given to the theorem under a name."""
    return lambda changed: theorem(**{argument: changed})


def check(module: ModuleType, old: str, new: str, theorem: Check) -> Outcome:
    """Proved if the theorem refutes the mutant."""
    started = time.perf_counter()
    outcome = theorem(variant(module, old, new))
    verdict: Verdict = "proved" if outcome.verdict == "refuted" else "refuted"
    return Outcome(verdict, outcome.solver, time.perf_counter() - started, f"{outcome.verdict}: {outcome.detail}")


def variant(module: ModuleType, old: str, new: str) -> ModuleType:
    """The module with one change, which must have exactly one place to go."""
    text = inspect.getsource(module)
    if (count := text.count(old)) != 1:
        raise ValueError(f"{old!r} occurs {count} times in {module.__name__}, not once")
    changed = ModuleType(module.__name__)
    exec(compile(text.replace(old, new), f"<{module.__name__}>", "exec"), changed.__dict__)
    return changed


def functions_of(module: ModuleType) -> tuple[Callable[..., Any], ...]:
    """What a module defines: a mutant of it is tried again after it changes."""
    found = (inspect.unwrap(value) for value in vars(module).values() if callable(value))
    return tuple(value for value in found if inspect.isfunction(value) and value.__module__ == module.__name__)
