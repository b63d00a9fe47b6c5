"""Keep the ledger of proofs: each theorem, the code it is about, the solver, the assumptions.

``ledger.json`` records the last outcome of every theorem, with hashes of the theorem's text and of
the code that the theorem is about. ``LEDGER.md`` is rendered from ``ledger.json``. A record whose
hashes no longer match is stale, and a stale record makes a test fail.
"""

from __future__ import annotations

import ast
import hashlib
import importlib.metadata
import inspect
import json
import textwrap
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

import numpy as np

from mxnum.formats import ElementFormat, ScaleFormat
from proofs.runner import Collection
from proofs.theorem import Outcome, Theorem

RECORD = Path(__file__).with_name("ledger.json")
KILLS = Path(__file__).with_name("kills.json")
PAGE = Path(__file__).with_name("LEDGER.md")
#: Packages whose versions a verdict depends on.
TOOLS = ("z3-solver", "bitwuzla", "numba", "llvmlite", "numba-cuda")

TRUSTED = (
    "The literal tables in proofs/specs/tables.py agree with OCP MX v1.0, OFP8 v1.0 and IEEE 754. A test compares the "
    "tables with ml_dtypes and with mxnum.formats, which were written independently.",
    "The formulas in proofs/specs/conversions.py and proofs/theorems mean what the sentences of the theorems say. The "
    "formulas in proofs/specs/stack_statements.py are those of the software stacks' source code.",
    "If a solver answers that a question is unsatisfiable, the question is unsatisfiable. If the solver column says "
    "z3+bitwuzla, both solvers gave this answer. Both answered the same question about bit-vectors, into which z3 had "
    "translated the floating-point operations.",
    "mxnum/prove/sym.py gives each operator of the dialect its meaning on signed words; tests compare it with Python "
    "ints, int32 and int64 on random programs. The theorems safety/… prove that no intermediate result overflows, so "
    "this meaning is the same for Python ints, int32 and int64. The theorems factors/… and float-definition/… prove "
    "this for scales that are floats, with one exception. If zero is divided, or a number is divided by zero, the "
    "quotient can have more digits than 64 bits hold; the result does not depend on the lost digits.",
    "The theorems factors/… trust three facts about hardware that follows IEEE 754. A float64 product is exact if the "
    "exact product is a float64 number. A float64 quotient is the float64 number nearest to the exact quotient; so if "
    "the exact quotient is at least (or at most) some float64 number, the rounded one is too. Widening is exact. "
    "proofs/machines/ratios.py runs the functions of these theorems on all ratios of two numbers at once. It accepts "
    "only comparisons that concern the ratio or the size of the divisor; any other comparison raises an exception.",
    "CPython runs a function object on symbolic words exactly as on ints. No kernel branches on data, because a branch "
    "on a symbolic word would raise an exception.",
    "Five lemmas of arithmetic are used but not proved here. First, if a sum is rounded to odd with two more bits than "
    "the next type has, rounding it to this type gives the same result as rounding the exact sum once (Boldo and "
    "Melquiond 2008; offset/…). Second, repeated steps to the next float reach every larger float "
    "(structure/monotone). Third, numbers with the same leading digits are all rounded alike if each of them has "
    "nonzero digits after these (float-definition/…). Fourth, a block's largest quantized value is one of the two "
    "values to which its largest magnitude can be rounded (idempotent/…). Fifth, single rounding errors add up to the "
    "bounds that factors/choice/added and factors/choice/lost compare with limits.",
    "The records still hold for the current code of proofs/, which no hash covers. A record becomes stale if the text "
    "of the theorem changes, if a listed function of mxnum or anything that it uses changes, or if the version of a "
    "tool changes. It does not become stale if code in proofs/ changes. Each run of the tests proves a sample of the "
    "fast tier again with the current code of proofs/; every other proof is as old as its record.",
)

NOT_PROVED = (
    "Array loops, packing, dispatch, the choice of blocks, and machine code. Tests cover them, exhaustively where a "
    "sweep below says so. The theorems llvm/… and ptx/… prove that the LLVM IR and the PTX of a function, compiled by "
    "itself, equal the function object. They do not cover the copies that loops and GPU kernels inline, or the "
    "translation of IR and PTX to machine code.",
    "That a software stack computes on a given machine what its source code says. Tests compare mxnum.stacks with the "
    "packages that can be installed without a GPU, and with the reference code of other stacks.",
    "Philox (mxnum.definition.random). It needs multiplication, which other dialect functions may not use. Tests "
    "compare it with published test vectors.",
    "That the definition follows the specification, for elements other than the eight that mxnum names. Their "
    "functions come from the same factories, but no theorem compares them with the specification. For every element of "
    "at most 8 bits, theorems prove that fast formulations equal the definition, in words of 32 and 64 bits (any/…). "
    "That the definition does not overflow these words is proved for the eight elements (safety/…). For other elements "
    "it is proved only for float32 numbers (any/safety/…).",
    "The fast loops over arrays, for every number. The sweeps run the loops of the definition, which redo the blocks "
    "that fast loops skip. The LLVM IR of fast formulations (magic/…, narrowing/…, beyond/…, factors/…, stacks/…) is "
    "not proved either: these theorems are about function objects. The theorems llvm/… cover the functions of the "
    "definition, and ptx/… these functions and those of scaled/….",
)


def versions() -> dict[str, str]:
    """Return the installed version of each tool."""
    found = {}
    for tool in TOOLS:
        try:
            found[tool] = importlib.metadata.version(tool)
        except importlib.metadata.PackageNotFoundError:
            found[tool] = "absent"
    return found


def same_tools(recorded: dict[str, str]) -> bool:
    """Return True if the recorded versions of tools are the installed ones.

    Tools that are not installed are ignored: numba-cuda, which only theorems about PTX need, may be
    absent.
    """
    return all(recorded.get(tool) == version for tool, version in versions().items() if version != "absent")


#: The prefix of the names of constants that depend on the processor. These constants are not
#: hashed, because a record must hold on every processor.
_OF_HOST = "HOST_"


def text_hash(theorem: Theorem) -> str:
    """Return a hash of the theorem's text: its name, statement, hypotheses and kernels."""
    return _digest([theorem.name, theorem.statement, *map(str, theorem.hypotheses), "|", *map(str, theorem.kernels)])


def code_hash(functions: Iterable[Callable[..., object]]) -> str:
    """Return a hash of the code of functions, and of all functions and constants that they use.

    Comments and docstrings do not change the hash.
    """
    return _digest([_fingerprint(function) for function in functions])


def _digest(parts: Iterable[str]) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


def _fingerprint(value: Any) -> str:
    value = _plain(value)
    if not isinstance(value, FunctionType):
        return repr(value)
    closure = zip(value.__code__.co_freevars, (cell.cell_contents for cell in value.__closure__ or ()), strict=True)
    names = list(dict.fromkeys(_names(value.__code__)))
    used = [(name, value.__globals__[name]) for name in names if name in value.__globals__]
    modules = [inner for _, inner in used if isinstance(inner, ModuleType) and inner.__name__.startswith("mxnum")]
    used += [(name, vars(module)[name]) for module in modules for name in names if name in vars(module)]
    parts = [_source(value.__code__), repr(value.__defaults__)]
    for name, inner in sorted([*closure, *used], key=lambda item: item[0]):
        inner = _plain(inner)
        is_code = isinstance(inner, FunctionType) and inner.__module__.startswith("mxnum")
        if is_code and inner is value:  # a recursive function: its hash is being computed already
            continue
        if is_code:
            parts.append(f"{name}={_fingerprint_once(inner)}")
        elif not name.startswith(_OF_HOST) and _is_constant(inner):
            parts.append(f"{name}={_text(inner)}")
    return _digest(parts)


def _plain(value: Any) -> Any:
    """Return the function inside the wrappers that cache, register or compile it."""
    return inspect.unwrap(value) if callable(value) and not isinstance(value, type) else value


def _names(code: CodeType) -> Iterator[str]:
    """Yield the names of globals and attributes that code uses, nested functions included."""
    yield from code.co_names
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield from _names(inner)


def _is_constant(value: Any) -> bool:
    """Return True if `repr` describes a value fully: a number, string, tuple, format or table."""
    if isinstance(value, dict):
        return bool(value) and all(map(_is_constant, value.values()))
    return isinstance(value, int | str | float | tuple | bool | np.generic | ElementFormat | ScaleFormat | None)


def _text(value: Any) -> str:
    """Return the `repr` of a constant; for a tuple that contains functions, return a hash.

    The `repr` of a function would contain the function's address in memory.
    """
    if isinstance(value, tuple) and any(isinstance(each, FunctionType) for each in value):
        return _digest([_fingerprint(each) for each in value])
    return repr(value)


@cache
def _fingerprint_once(function: Callable[..., object]) -> str:
    return _fingerprint(function)


@cache
def _source(code: CodeType) -> str:
    """Return the source of a code object, without comments, docstrings and layout."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(code)))
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and ast.get_docstring(node) is not None:
            node.body = node.body[1:] or [ast.Pass()]
    return ast.unparse(tree)


def read() -> dict[str, Any]:
    """Return the recorded ledger, or an empty ledger."""
    empty: dict[str, Any] = {"versions": {}, "theorems": {}}
    return json.loads(RECORD.read_text()) if RECORD.exists() else empty


def recorded_seconds() -> dict[str, float]:
    """Return the seconds that the last recorded check of each theorem took."""
    return {name: record["seconds"] for name, record in read()["theorems"].items()}


def record_of(theorem: Theorem, outcome: Outcome) -> dict[str, Any]:
    """Return the ledger's record of a theorem and its outcome."""
    return {
        "text": text_hash(theorem),
        "code": code_hash(theorem.functions),
        "solver": outcome.solver,
        "seconds": round(outcome.seconds, 2),
        "verdict": outcome.verdict,
        "detail": outcome.detail,
    }


def fresh(theorem: Theorem, record: dict[str, Any]) -> bool:
    """Return True if a record is about the current text and code of a theorem."""
    return bool(record["text"] == text_hash(theorem) and record["code"] == code_hash(theorem.functions))


def stale(theorems: Iterable[Theorem]) -> list[Theorem]:
    """Return the theorems whose current text and code have no recorded proof.

    A recorded proof counts only if the installed tools have the recorded versions.
    """
    ledger = read()
    records = ledger["theorems"] if same_tools(ledger["versions"]) else {}

    def is_proved(theorem: Theorem) -> bool:
        record = records.get(theorem.name)
        return record is not None and record["verdict"] == "proved" and fresh(theorem, record)

    return [theorem for theorem in theorems if not is_proved(theorem)]


def update(collection: Collection, outcomes: dict[str, Outcome]) -> None:
    """Record outcomes, drop stale records, and write ``LEDGER.md`` again."""
    if collection.skipped:
        raise ValueError(f"the ledger needs every theorem, but cannot import {', '.join(collection.skipped)}")
    before = read()
    is_same = same_tools(before["versions"])
    records = {}
    for name, theorem in sorted(collection.theorems.items()):
        if name in outcomes:
            records[name] = record_of(theorem, outcomes[name])
        elif is_same and name in before["theorems"] and fresh(theorem, before["theorems"][name]):
            records[name] = before["theorems"][name]

    ledger: dict[str, Any] = {"versions": versions(), "theorems": dict(sorted(records.items()))}
    lines = ",\n".join(f"  {json.dumps(name)}: {json.dumps(record)}" for name, record in ledger["theorems"].items())
    RECORD.write_text(f'{{\n "versions": {json.dumps(ledger["versions"])},\n "theorems": {{\n{lines}\n }}\n}}\n')
    PAGE.write_text(render(collection.theorems.values(), ledger))


def families(theorems: Iterable[Theorem]) -> dict[str, list[Theorem]]:
    """Return theorems grouped by statement; the key of a group is the common part of its names."""
    by_statement: dict[str, list[Theorem]] = {}
    for theorem in theorems:
        by_statement.setdefault(theorem.statement, []).append(theorem)
    return {_common_name(group): group for group in by_statement.values()}


def _common_name(group: list[Theorem]) -> str:
    split = [theorem.name.split("/") for theorem in group]
    depth = min(map(len, split))
    parts = []
    for column in range(depth):
        distinct = list(dict.fromkeys(name[column] for name in split))
        long = len(distinct) > 10 or (column == depth - 1 and any(len(name) > depth for name in split))
        parts.append(distinct[0] if len(distinct) == 1 else "*" if long else "{" + ",".join(distinct) + "}")
    return "/".join(parts)


def mutants_noticed() -> dict[str, list[str]]:
    """Return, for each family of theorems, the mutants that the family notices."""
    return json.loads(KILLS.read_text()) if KILLS.exists() else {}


def render(theorems: Iterable[Theorem], ledger: dict[str, Any]) -> str:
    """Return the text of ``LEDGER.md``, made from current theorems and recorded outcomes."""
    lines = [
        "# Ledger of proofs",
        "",
        "Generated by `python -m proofs --ledger`; do not edit. One section describes each family of theorems. In the",
        "table of families, *seconds* is the recorded time of all proofs of a family, on one core. Each run of the",
        "tests proves a sample of the fast tier again; theorems that take longer are in the full tier.",
        "",
        "Tools: " + ", ".join(f"{tool} {version}" for tool, version in ledger["versions"].items()) + ".",
        "",
        "## What is believed without proof",
        "",
        *(f"- {item}" for item in TRUSTED),
        "",
        "## What is not proved",
        "",
        *(f"- {item}" for item in NOT_PROVED),
        "",
    ]
    table = ["## Families", "", "| theorems | count | verdict | solvers | seconds |", "|---|---|---|---|---|"]
    sections = ["", "## Statements", ""]
    for title, group in families(theorems).items():
        known = [ledger["theorems"][theorem.name] for theorem in group if theorem.name in ledger["theorems"]]
        verdict = _verdicts(group, ledger["theorems"])
        solvers = ", ".join(sorted({record["solver"] for record in known})) or "-"
        seconds = f"{sum(record['seconds'] for record in known):.0f}"
        table.append(f"| `{title}` | {len(group)} | {verdict} | {solvers} | {seconds} |")
        sections += _section(title, group, known, verdict)
    return "\n".join([*lines, *table, *sections])


def _verdicts(group: list[Theorem], records: dict[str, Any]) -> str:
    counts: dict[str, int] = {}
    for theorem in group:
        if theorem.name in records:
            verdict = records[theorem.name]["verdict"]
        else:
            verdict = f"not run since the last change ({theorem.tier} tier)"
        counts[verdict] = counts.get(verdict, 0) + 1
    return "; ".join(f"{count} {verdict}" for verdict, count in sorted(counts.items()))


def _conditions(group: list[Theorem]) -> Iterator[str]:
    """Yield a line with the hypotheses that all theorems of a group share, then one with the rest.

    Semicolons separate the hypotheses of one theorem. Vertical bars separate theorems.
    """
    common = [each for each in group[0].hypotheses if all(each in theorem.hypotheses for theorem in group)]
    rest = dict.fromkeys("; ".join(x for x in theorem.hypotheses if x not in common) for theorem in group)
    different = [each or "nothing more" for each in rest]
    if common or len(different) == 1:
        yield f"- For: {'; '.join(common) or 'no inputs'}."
    if len(different) > 1:
        listed = different if len(different) <= 6 else [*different[:3], "…", different[-1]]
        yield f"- Depending on the theorem, {'also ' if common else ''}for: {' | '.join(listed)}."


def _section(title: str, group: list[Theorem], known: list[dict[str, Any]], verdict: str) -> list[str]:
    kernels = list(dict.fromkeys(str(kernel) for theorem in group for kernel in theorem.kernels))
    listed = kernels if len(kernels) <= 4 else [kernels[0], kernels[1], "…", kernels[-1]]
    details = list(dict.fromkeys(record["detail"] for record in known if record["detail"]))
    family = group[0].name.split("/")[0]
    noticed = mutants_noticed().get(family)
    lines = [
        f"### `{title}`",
        "",
        group[0].statement,
        "",
        *_conditions(group),
        f"- Kernels ({len(kernels)}): {', '.join(listed)}.",
        f"- Verdict: {verdict}.",
    ]
    if details:
        lines.append(f"- For example: {details[0]}.")
    if noticed is not None:
        worth = f"at least {len(noticed)} planted mistakes" if noticed else "none of the planted mistakes"
        lines.append(f"- Theorems named {family}/… notice {worth} (proofs/kills.json).")
    fingerprint = _digest([text_hash(theorem) + code_hash(theorem.functions) for theorem in group])
    return [*lines, f"- Text and code: {fingerprint}.", ""]
