"""Solve assertions about bit-vectors with z3 or bitwuzla, within a time limit.

z3 first translates floating-point terms into bit-vectors, which both solvers can handle.
"""

from __future__ import annotations

import importlib.util
import os
import tempfile
import time
from collections.abc import Iterable, Sequence
from typing import Any, Literal, NamedTuple

import z3


class Answer(NamedTuple):
    """The answer of a solver: "sat" with the values of the symbols, "unsat" or "unknown"."""

    verdict: Literal["sat", "unsat", "unknown"]
    solver: str
    seconds: float
    values: dict[str, int]


def solve(assertions: Sequence[z3.BoolRef], symbols: Sequence[z3.BitVecRef], seconds: float) -> Answer:
    """Find values that satisfy all assertions, with bitwuzla if it is installed, else with z3."""
    started = time.perf_counter()
    solver = "z3" if importlib.util.find_spec("bitwuzla") is None else "bitwuzla"
    if seconds <= 0:
        return Answer("unknown", solver, 0.0, {})
    goal = z3.Goal()
    goal.add(*assertions)
    # These tactics eliminate no symbol, so the solver's model has a value for every symbol.
    (question,) = z3.Then("simplify", "fpa2bv", "simplify")(goal)
    model_of = _model_of_z3 if solver == "z3" else _model_of_bitwuzla
    verdict, values = model_of(question, symbols, seconds)
    return Answer(verdict, solver, time.perf_counter() - started, values)


def _model_of_z3(question: z3.Goal, symbols: Sequence[z3.BitVecRef], seconds: float) -> tuple[Any, dict[str, int]]:
    solver = z3.Then("simplify", "solve-eqs", "bit-blast", "sat").solver()
    solver.set("timeout", max(1, round(seconds * 1000)))
    solver.add(question.as_expr())
    verdict = str(solver.check())
    if verdict != "sat":
        return verdict, {}
    model = solver.model()
    return verdict, {str(name): model.eval(name, model_completion=True).as_long() for name in symbols}


def _model_of_bitwuzla(
    question: z3.Goal, symbols: Sequence[z3.BitVecRef], seconds: float
) -> tuple[Any, dict[str, int]]:
    verdict, parser = _run_bitwuzla(question, seconds, produce_models=True)
    if verdict != "sat":
        return verdict, {}
    declared = {str(term.symbol()) for term in parser.get_declared_funs()}
    found = {}
    for name in symbols:
        # A symbol that is not in the question may have any value; this function chooses 0.
        is_read = str(name) in declared
        found[str(name)] = int(parser.bitwuzla().get_value(parser.parse_term(str(name))).value(10)) if is_read else 0
    return verdict, found


def bit_vectors(assertions: Iterable[z3.BoolRef]) -> z3.Goal:
    """Return a goal of all assertions, with bit-vectors in place of floating-point terms."""
    goal = z3.Goal()
    goal.add(*assertions)
    (translated,) = z3.Then("simplify", "propagate-values", "fpa2bv", "simplify", "propagate-values")(goal)
    return translated


def ask_bit_vectors(question: z3.Goal, engine: str, timeout: int) -> str:
    """Return "sat", "unsat" or "unknown" from one engine: "z3" or "bitwuzla"."""
    return {"z3": _ask_z3, "bitwuzla": _ask_bitwuzla}[engine](question, timeout)


def _ask_z3(question: z3.Goal, timeout: int) -> str:
    solver = z3.Then("simplify", "solve-eqs", "bit-blast", "sat").solver()
    solver.set("timeout", timeout * 1000)
    solver.add(question.as_expr())
    return str(solver.check())


def _ask_bitwuzla(question: z3.Goal, timeout: int) -> str:
    return str(_run_bitwuzla(question, timeout)[0])


def _without_product_conditions(question: z3.BoolRef) -> z3.BoolRef:
    """Return the question without z3's conditions on products, which bitwuzla cannot read.

    z3 states two conditions about each product: it does not overflow, and it does not underflow.
    This function replaces each condition by an equation: the product, sign-extended to twice as
    many bits, equals the product of the sign-extended factors.
    """
    kinds, waiting, seen, pairs = (z3.Z3_OP_BSMUL_NO_OVFL, z3.Z3_OP_BSMUL_NO_UDFL), [question], set(), []
    while waiting:
        term = waiting.pop()
        if term.get_id() in seen:
            continue
        seen.add(term.get_id())
        waiting += term.children()
        if term.decl().kind() in kinds:
            a, b = term.children()
            x, y, product = (z3.SignExt(a.size(), each) for each in (a, b, a * b))
            pairs.append((term, x * y == product))
    return z3.substitute(question, *pairs)


def _written(question: z3.BoolRef) -> str:
    solver = z3.Solver()
    solver.add(question)
    text: str = solver.to_smt2()
    return text


def _run_bitwuzla(question: z3.Goal, seconds: float, produce_models: bool = False) -> tuple[Any, Any]:
    """Return bitwuzla's answer, and the parser, which gives access to the solver's model."""
    import bitwuzla

    written = _written(question.as_expr())
    if "bvsmul_no" in written:
        written = _written(_without_product_conditions(question.as_expr()))
    lines = (line for line in written.splitlines() if not line.startswith(";") and "set-info" not in line)
    text = "(set-logic QF_BV)\n" + "\n".join(lines).replace("(check-sat)", "")
    # bitwuzla does not know z3's names for divisions whose divisor is not zero.
    text = text.replace("bvudiv_i", "bvudiv").replace("bvurem_i", "bvurem")
    terms, options = bitwuzla.TermManager(), bitwuzla.Options()
    options.set(bitwuzla.Option.TIME_LIMIT_PER, max(1, round(seconds * 1000)))
    options.set(bitwuzla.Option.PRODUCE_MODELS, produce_models)
    with tempfile.NamedTemporaryFile("w", suffix=".smt2", delete=False) as file:
        file.write(text)
    try:
        parser = bitwuzla.Parser(terms, options)
        parser.parse(file.name, True, True)
        answer = str(parser.bitwuzla().check_sat())
    finally:
        os.unlink(file.name)
    return answer.split(".")[-1].lower(), parser
