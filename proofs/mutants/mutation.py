"""Make mutants of the definition, and judge them.

A mutant is a module of `mxnum.definition` whose text has one change. The changed text is executed
in a namespace of its own, and its factory functions build the mutant's kernels. A solver searches
for an input for which mutant and original return different results. The exact reference then
confirms that the original's result is right and that the mutant's result is wrong. If there is no
such input, two solvers prove that mutant and original compute the same function.
"""

from __future__ import annotations

import ast
import importlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

import z3

import mxnum.definition
from mxnum.prove.sym import run
from proofs.machines.solve import BOTH, TIMEOUT, prove
from proofs.mutants.probes import ConcreteProbe, Modules, Probe

PACKAGE = "mxnum.definition"
#: The modules that a mutant may change, each after the modules that it imports. The module `word`
#: is not listed, because it has no arithmetic.
ORDER = ("unpack", "pack", "convert", "scale", "add", "random", "offset")

Fate = Literal["refuted", "unsafe", "equivalent"]


@dataclass(frozen=True)
class Mutant:
    """A change to one module of `mxnum.definition`, tried on one kernel.

    `fate` is the verdict that the mutant must get. "refuted": the result is wrong for some input.
    "unsafe": all results are right in the kernel's word, but an intermediate overflows, so Python
    ints, int32 and int64 may give different results. "equivalent": the mutant computes the same
    function as the original.
    """

    module: str
    name: str
    old: str
    new: str
    probe: Probe | ConcreteProbe
    fate: Fate = "refuted"
    #: Why an equivalent mutant is equivalent, or which promise an unsafe mutant breaks.
    reason: str = ""


def of_module(module: str, *entries: tuple[Any, ...]) -> list[Mutant]:
    """Return a mutant for each entry: (name, old, new, probe) or (..., probe, fate, reason)."""
    return [Mutant(module, *entry) for entry in entries]


def judge(mutant: Mutant) -> tuple[Fate, str, str]:
    """Return (verdict on the mutant, solver that reached the verdict, witness as text)."""
    original = mutant.probe.build(originals())
    changed = mutant.probe.build(variant(mutant.module, mutant.old, mutant.new))
    if isinstance(mutant.probe, ConcreteProbe):
        return _judge_listed(mutant.probe, original, changed)
    return _judge(mutant.probe, original, changed)


def _judge(probe: Probe, original: Callable[..., Any], changed: Callable[..., Any]) -> tuple[Fate, str, str]:
    variables = probe.variables()
    right, kept = run(original, *probe.words(variables))
    wrong, obligations = run(changed, *probe.words(variables))
    # Drop the obligations that the original has too, because other theorems prove them.
    known = {obligation.get_id() for obligation in kept}
    obligations = [obligation for obligation in obligations if obligation.get_id() not in known]
    inputs = probe.assumptions(variables)
    model = _model([*inputs, right != wrong])
    if model is not None:
        values = _values(model, variables)
        return "refuted", "z3", _genuine(probe, original, model.eval(wrong, model_completion=True).as_long(), values)
    model = _model([*inputs, z3.Not(z3.And(*obligations))])
    if model is not None:
        return "unsafe", "z3", f"an intermediate overflows at {_shown(probe, _values(model, variables))}"
    example = [(variable, 0) for variable in variables]
    goal = z3.And(right == wrong, *obligations)
    outcome = prove(inputs, goal, engines=BOTH, show=variables, example=example)
    if outcome.verdict != "proved":
        raise RuntimeError(f"no witness found, but equivalence not proved: {outcome.verdict}, {outcome.detail}")
    return "equivalent", outcome.solver, "the same result and no overflow for every input"


def _genuine(probe: Probe, original: Callable[..., Any], found: int, values: list[int]) -> str:
    """Return the witness as text; raise RuntimeError unless the exact reference confirms it."""
    right = original(*probe.arguments(values)) % (1 << probe.word)
    place = _shown(probe, values)
    if not probe.correct(right, *values):
        raise RuntimeError(f"the original gives {right:#x} at {place}, which the exact reference rejects")
    if probe.correct(found, *values):
        raise RuntimeError(f"the mutant's {found:#x} at {place} is as right as the original's {right:#x}")
    return f"at {place} it gives {found:#x}, not {right:#x}"


def _judge_listed(
    probe: ConcreteProbe, original: Callable[..., Any], changed: Callable[..., Any]
) -> tuple[Fate, str, str]:
    for values in probe.candidates:
        right = original(*values)
        if not probe.correct(right, *values):
            raise RuntimeError(f"the original gives {right} at {values}, which the exact reference rejects")
        found = changed(*values)
        if not probe.correct(found, *values):
            return "refuted", "listed inputs", f"at {values} it gives {found}, not {right}"
    raise RuntimeError("the mutant's result is right for every listed input")


def _model(assertions: list[z3.BoolRef]) -> z3.ModelRef | None:
    """Return a model that satisfies the assertions, or None if they cannot be satisfied."""
    solver = z3.Then("simplify", "solve-eqs", "bit-blast", "sat").solver()
    solver.set("timeout", TIMEOUT * 1000)
    solver.add(*assertions)
    answer = solver.check()
    if answer == z3.unknown:
        raise RuntimeError(f"z3 gave up: {solver.reason_unknown()}")
    return solver.model() if answer == z3.sat else None


def _values(model: z3.ModelRef, variables: list[z3.BitVecRef]) -> list[int]:
    return [model.eval(variable, model_completion=True).as_long() for variable in variables]


def _shown(probe: Probe, values: list[int]) -> str:
    return ", ".join(f"{entry.name} = {value:#x}" for entry, value in zip(probe.inputs, values, strict=True))


@cache
def originals() -> Modules:
    """Return the unchanged modules, which contain the same function objects that mxnum runs."""
    return {name: vars(importlib.import_module(f"{PACKAGE}.{name}")) for name in ORDER}


def variant(module: str, old: str, new: str) -> Modules:
    """Return the modules with one change; raise ValueError unless `old` occurs exactly once."""
    text = source(module)
    if (count := text.count(old)) != 1:
        raise ValueError(f"{old!r} occurs {count} times in {PACKAGE}.{module}, not once")
    return _load({module: text.replace(old, new)})


def source(module: str) -> str:
    """Return the source text of a module of `mxnum.definition`."""
    return (Path(mxnum.definition.__path__[0]) / f"{module}.py").read_text()


def _load(texts: dict[str, str]) -> Modules:
    """Return copies of the modules in `ORDER`. `texts` holds the texts of the changed modules."""
    modules: Modules = {}
    for name in ORDER:
        namespace: dict[str, Any] = {"__name__": f"{PACKAGE}.{name}"}
        tree = ast.parse(texts.get(name, source(name)))
        # A copy must import from the other copies, because the changed module is one of them.
        for statement in [node for node in tree.body if isinstance(node, ast.ImportFrom)]:
            package, _, imported = (statement.module or "").rpartition(".")
            if package == PACKAGE and imported in modules:
                tree.body.remove(statement)
                names = ((alias.name, alias.asname or alias.name) for alias in statement.names)
                namespace.update({here: modules[imported][there] for there, here in names})
        exec(compile(tree, f"<{name}>", "exec"), namespace)
        modules[name] = namespace
    return modules
