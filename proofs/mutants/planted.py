"""Plant small mistakes in kernels, and check that the solvers find each mistake.

If the `fate` of a change is "equivalent", the change is no mistake, and the solvers must prove that
it changes no result.
"""

from __future__ import annotations

import time
from functools import partial

from proofs.mutants import conversions, sums
from proofs.mutants.mutation import PACKAGE, Fate, Mutant, judge, originals
from proofs.theorem import Outcome, Theorem

STATEMENTS: dict[Fate, str] = {
    "refuted": "A planted mistake is found: for some input, the mutant's result is wrong and the kernel's is right.",
    "unsafe": "A planted mistake is found: the mutant's results are right, but an intermediate result overflows.",
    "equivalent": "This change is no mistake: for every input, the mutant gives the kernel's result, without overflow.",
}


def mutants() -> list[Mutant]:
    """Return all mutants."""
    return [*conversions.mutants(), *sums.mutants()]


def theorems() -> list[Theorem]:
    """Return a theorem for each mutant; it is proved if the verdict equals the mutant's `fate`."""
    return [
        Theorem(
            name=f"mutant/{mutant.module}/{mutant.name}",
            statement=STATEMENTS[mutant.fate] + (f" Reason: {mutant.reason}." if mutant.reason else ""),
            kernels=(mutant.probe.name,),
            check=partial(check, mutant),
            hypotheses=(f"{mutant.old!r} becomes {mutant.new!r} in {PACKAGE}.{mutant.module}",),
            functions=(mutant.probe.build(originals()),),
        )
        for mutant in mutants()
    ]


def check(mutant: Mutant) -> Outcome:
    """Judge the mutant; the outcome is "proved" if the verdict equals the mutant's `fate`."""
    started = time.perf_counter()
    try:
        fate, solver, detail = judge(mutant)
    except Exception as problem:
        return Outcome("error", "z3", time.perf_counter() - started, f"{type(problem).__name__}: {problem}")
    verdict = "proved" if fate == mutant.fate else "refuted"
    text = f"{fate}: {detail}" if fate == mutant.fate else f"declared {mutant.fate}, found {fate}: {detail}"
    return Outcome(verdict, solver, time.perf_counter() - started, text)  # type: ignore[arg-type]
