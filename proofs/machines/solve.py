"""Ask solvers whether a theorem holds, and judge their answers.

A theorem is proved if its hypotheses and the negated goal are unsatisfiable together. Each proof
names one or both solvers, and every named solver must answer "unsat". A disagreement between
solvers is an error, and `unknown` never counts as proved. Each proof also shows that its hypotheses
are satisfiable, because hypotheses that contradict each other imply every goal.

bitwuzla's wheel rejects wide floats, so z3 translates floating-point terms to bit-vectors. z3's SAT
core and bitwuzla then answer the same question. No solver checks the translation, so the proofs
rely on z3 to translate correctly.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import z3

from mxnum.prove.solvers import ask_bit_vectors, bit_vectors
from proofs.theorem import Outcome

#: The time limit of a solver for one question, in seconds.
TIMEOUT = 240
#: The value of `engines` with which `prove` asks both solvers.
BOTH = ("z3", "bitwuzla")


def ask(assertions: Sequence[z3.BoolRef], engine: str, timeout: int = TIMEOUT) -> str:
    """Return "sat", "unsat" or "unknown" from one engine: "z3" or "bitwuzla"."""
    return ask_bit_vectors(bit_vectors(assertions), engine, timeout)


def prove(
    hypotheses: Iterable[z3.BoolRef],
    goal: z3.BoolRef,
    *,
    engines: Sequence[str] = ("z3",),
    show: Sequence[z3.ExprRef] = (),
    example: Iterable[tuple[z3.BitVecRef, int]] = (),
    timeout: int = TIMEOUT,
) -> Outcome:
    """Prove that the hypotheses imply the goal; every engine must confirm the proof.

    If the goal is refuted, the outcome shows a counterexample: the values of the inputs in `show`.
    `example` holds values of inputs that satisfy the hypotheses. With these values, it is cheap to
    check that the hypotheses are satisfiable. Without `example`, a solver searches for such values.
    """
    started = time.perf_counter()
    hypotheses = list(hypotheses)

    def outcome(verdict: Any, detail: str = "") -> Outcome:
        return Outcome(verdict, "+".join(engines), time.perf_counter() - started, detail)

    if ask([*hypotheses, *(name == value for name, value in example)], engines[0], timeout) != "sat":
        return outcome("error", "the premises are not shown to be satisfiable")
    question = bit_vectors([*hypotheses, z3.Not(goal)])
    answers = {engine: ask_bit_vectors(question, engine, timeout) for engine in engines}
    if set(answers.values()) == {"unsat"}:
        return outcome("proved")
    if {"sat", "unsat"} <= set(answers.values()):
        return outcome("error", f"the solvers disagree: {answers}")
    if "sat" in answers.values():
        return outcome("refuted", witness([*hypotheses, z3.Not(goal)], show, timeout))
    return outcome("unknown", str(answers))


def together(cases: Iterable[tuple[str, Callable[[], Outcome]]]) -> Outcome:
    """Return one outcome for a family of cases.

    The outcome is "proved" if every case is proved, and "error" if there are no cases. If cases are
    not proved, the function returns the outcome of the first of them. The label of this case is put
    before the outcome's detail.
    """
    seconds, solvers = 0.0, dict[str, None]()
    for label, check in cases:
        outcome = check()
        seconds += outcome.seconds
        solvers[outcome.solver] = None
        if outcome.verdict != "proved":
            return Outcome(outcome.verdict, outcome.solver, seconds, f"{label}: {outcome.detail}")
    if not solvers:
        return Outcome("error", "-", seconds, "there is no case: nothing was checked")
    return Outcome("proved", ", ".join(solvers), seconds)


def follows(goal: z3.BoolRef, *premises: z3.BoolRef) -> bool:
    """Return True if z3 shows that premises about integers or reals imply the goal.

    The result is False if no numbers satisfy the premises.
    """
    solver = z3.Solver()
    solver.set("timeout", TIMEOUT * 1000)
    solver.add(*premises)
    if solver.check() != z3.sat:
        return False
    solver.add(z3.Not(goal))
    return bool(solver.check() == z3.unsat)


def witness(assertions: Sequence[z3.BoolRef], show: Sequence[z3.ExprRef], timeout: int = TIMEOUT) -> str:
    """Return values of the terms in `show` that satisfy the assertions, in hexadecimal."""
    solver = z3.Solver()
    solver.set("timeout", timeout * 1000)
    solver.add(*assertions)
    if solver.check() != z3.sat:
        return "no model within the time limit"
    model = solver.model()
    return ", ".join(f"{name} = {model.eval(name, model_completion=True).as_long():#x}" for name in show)
