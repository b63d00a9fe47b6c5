"""Find by trial which theorems notice which mutants (versions of the definition with a mistake).

    python -m proofs.kills [--only PATTERN]

A theorem that notices no mutant proves little. A mutant changes some of the definition's factories.
For one mutant at a time, this command replaces these factories by the mutant's, in every module
that uses them. Then it builds the theorems anew, and checks those that are about the mutant's
kernel. A theorem notices a mutant if the solver refutes the theorem for the mutant, or cannot prove
it. The result is `kills.json`, which the ledger reads.
"""

from __future__ import annotations

import argparse
import importlib
import json
import pkgutil
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import proofs.theorems
from proofs.mutants.mutation import ORDER, PACKAGE, Mutant, variant
from proofs.mutants.planted import mutants
from proofs.runner import check
from proofs.theorem import Theorem

RECORD = Path(__file__).with_name("kills.json")


def kills(chosen: list[Mutant], report: Any = lambda mutant, noticed: None) -> dict[str, list[str]]:
    """Return, for each family of theorems, the list of mutants that the family notices.

    The theorems of a family share the first part of their names.
    """
    found: dict[str, list[str]] = {family: [] for family in sorted({_family(theorem) for theorem in _stated()})}
    for mutant in chosen:
        noticed = {_family(theorem) for theorem in noticing(mutant)}
        for family in noticed:
            found[family].append(f"{mutant.module}/{mutant.name}")
        report(mutant, sorted(noticed))
    return found


def noticing(mutant: Mutant) -> list[Theorem]:
    """Plant the mutant; return, for each family, the first theorem that notices this mutant."""
    found: dict[str, Theorem] = {}
    with planted(mutant):
        for theorem in _stated():
            family = _family(theorem)
            if mutant.probe.name not in theorem.kernels or family in found:
                continue
            if check(theorem).verdict in ("refuted", "unknown"):
                found[family] = theorem
    return list(found.values())


@contextmanager
def planted(mutant: Mutant) -> Iterator[None]:
    """Replace the factories that the mutant changes by the mutant's, within a `with` statement.

    All modules of `mxnum` and of `proofs.theorems` then use the mutant's factories.
    """
    _load_all()
    changed = variant(mutant.module, mutant.old, mutant.new)
    real = {name: importlib.import_module(f"{PACKAGE}.{name}") for name in ORDER}
    swaps = {
        id(value): changed[name][key]
        for name, module in real.items()
        for key, value in vars(module).items()
        if callable(value) and getattr(value, "__module__", None) == module.__name__
    }
    places = [module for name, module in sys.modules.items() if name.startswith(("mxnum.", "proofs.theorems."))]
    undo = [
        (module, key, value) for module in places for key, value in list(vars(module).items()) if id(value) in swaps
    ]
    try:
        for module, key, value in undo:
            setattr(module, key, swaps[id(value)])
        yield
    finally:
        for module, key, value in undo:
            setattr(module, key, value)


@cache
def _load_all() -> None:
    """Build the theorems once, so that every module that they import is loaded.

    A module that is first imported while a mutant is planted would keep the mutant's factories.
    """
    for _ in _stated():
        pass


def _stated() -> Iterator[Theorem]:
    """Yield the fast theorems of `proofs.theorems`, built from the factories as they are now."""
    for module in pkgutil.iter_modules(proofs.theorems.__path__):
        for theorem in importlib.import_module(f"proofs.theorems.{module.name}").theorems():
            if theorem.tier == "fast":
                yield theorem


def _family(theorem: Theorem) -> str:
    return theorem.name.split("/", 1)[0]


def read() -> dict[str, list[str]]:
    """Return the results of the last run, which are recorded in ``kills.json``."""
    found: dict[str, list[str]] = json.loads(RECORD.read_text()) if RECORD.exists() else {}
    return found


def main(arguments: list[str] | None = None) -> int:
    """Find which theorems notice the chosen mutants, and return the exit status.

    The status is 1 if all mutants were tried, and some family of theorems notices none of them.
    """
    parser = argparse.ArgumentParser(prog="python -m proofs.kills", description="Which theorems notice which mutants.")
    parser.add_argument(
        "--only", default="", metavar="PATTERN", help="only mutants whose name contains this; kills.json is not written"
    )
    options = parser.parse_args(arguments)
    chosen = [
        mutant
        for mutant in mutants()
        if mutant.fate != "equivalent" and options.only in f"{mutant.module}/{mutant.name}"
    ]
    started = time.perf_counter()

    def report(mutant: Mutant, noticed: list[str]) -> None:
        seconds = time.perf_counter() - started
        print(f"{seconds:6.0f} s  {mutant.module}/{mutant.name}: {', '.join(noticed) or 'NOTHING'}", flush=True)

    found = kills(chosen, report)
    if options.only:
        return 0
    RECORD.write_text(json.dumps(found, indent=1) + "\n")
    idle = [family for family, noticed in found.items() if not noticed]
    print(f"families that notice nothing: {', '.join(idle) or 'none'}")
    return int(bool(idle))


if __name__ == "__main__":
    sys.exit(main())
