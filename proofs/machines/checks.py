"""Helpers for checks that run functions on unusual arguments."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from proofs.machines.ratios import Hidden
from proofs.theorem import Outcome, Verdict

#: Replacements for `store` and `load`; their table is a dictionary.
ON_DICTIONARIES: dict[str, Any] = {
    "store": lambda table, index, value: table.__setitem__(index, value),
    "load": lambda table, index: table[index],
}


@contextmanager
def patched(module: Any, **names: Any) -> Iterator[None]:
    """Replace names of a module within a `with` statement."""
    before = {name: getattr(module, name) for name in names}
    try:
        for name, value in names.items():
            setattr(module, name, value)
        yield
    finally:
        for name, value in before.items():
            setattr(module, name, value)


def outcome_of(problems: Iterator[str], solver: str, detail: Callable[[], str] = lambda: "") -> Outcome:
    """Return the outcome: "refuted" with the first problem, or "proved" if there is no problem."""
    started = time.perf_counter()
    try:
        problem = next(problems, "")
    except Hidden as hidden:
        problem = str(hidden)
    verdict: Verdict = "refuted" if problem else "proved"
    return Outcome(verdict, solver, time.perf_counter() - started, problem or detail())
