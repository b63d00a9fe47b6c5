"""The ledger: what was proved, about which code, by which solver, on what trust.

``ledger.json`` records the last outcome of every theorem beside a hash of its text and of the code it is about;
``LEDGER.md`` is rendered from it. A record whose hashes no longer fit is stale, and a test fails on it.
"""

from __future__ import annotations

import ast
import hashlib
import importlib.metadata
import inspect
import json
import textwrap
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

from proofs.runner import Collection
from proofs.theorem import Outcome, Theorem

RECORD = Path(__file__).with_name("ledger.json")
PAGE = Path(__file__).with_name("LEDGER.md")
#: Packages whose version a verdict depends on.
TOOLS = ("z3-solver", "bitwuzla", "numba", "llvmlite", "python-flint")

TRUSTED = (
    "The literal tables of proofs/tables.py say what OCP MX v1.0, OFP8 v1.0 and IEEE 754 say (a test compares them with "
    "ml_dtypes and with mxnum.formats, which were written independently).",
    "The statements of proofs/spec.py and proofs/theorems mean what their sentences say.",
    "The solvers are right where they say unsatisfiable. Where the solver column names two, both said so; both then "
    "started from the bit-vector question into which z3 turned the floating-point one.",
    "proofs/sym.py gives each dialect operator its meaning on signed words. Under the int-safety theorems that meaning is "
    "the one of Python ints and of wrapping int32 and int64 alike; tests compare the three on random programs.",
    "CPython runs a function object on symbolic words as it runs it on ints: no kernel branches on data (it would raise).",
    "Compiled code, array loops and machine code are not covered by these theorems but by translation validation, sweeps "
    "and tests; where a table below does not say so, they are tested, not proved.",
)


def versions() -> dict[str, str]:
    found = {}
    for tool in TOOLS:
        try:
            found[tool] = importlib.metadata.version(tool)
        except importlib.metadata.PackageNotFoundError:
            found[tool] = "absent"
    return found


def text_hash(theorem: Theorem) -> str:
    """Changes with what the theorem says: sentence, hypotheses, kernels."""
    return _digest([theorem.name, theorem.statement, *map(str, theorem.hypotheses), "|", *map(str, theorem.kernels)])


def code_hash(functions: Iterable[Callable[..., object]]) -> str:
    """Changes with the code of the functions and of all they call or close over, not with comments or docstrings."""
    return _digest([_fingerprint(function) for function in functions])


def _digest(parts: Iterable[str]) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


def _fingerprint(value: Any) -> str:
    value = inspect.unwrap(value) if isinstance(value, FunctionType) else value
    if not isinstance(value, FunctionType):
        return repr(value)
    closure = zip(value.__code__.co_freevars, (cell.cell_contents for cell in value.__closure__ or ()), strict=True)
    used = [(name, value.__globals__[name]) for name in value.__code__.co_names if name in value.__globals__]
    parts = [_source(value.__code__), repr(value.__defaults__)]
    for name, inner in sorted([*closure, *used], key=lambda item: item[0]):
        is_code = isinstance(inner, FunctionType) and inner.__module__.startswith("mxnum")
        if is_code:
            parts.append(f"{name}={_fingerprint_once(inner)}")
        elif isinstance(inner, int | str | float | tuple | bool | None):
            parts.append(f"{name}={inner!r}")
    return _digest(parts)


@cache
def _fingerprint_once(function: Callable[..., object]) -> str:
    return _fingerprint(function)


@cache
def _source(code: CodeType) -> str:
    """The source without comments, docstring and layout."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(code)))
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and ast.get_docstring(node) is not None:
            node.body = node.body[1:] or [ast.Pass()]
    return ast.unparse(tree)


def read() -> dict[str, Any]:
    empty: dict[str, Any] = {"versions": {}, "theorems": {}}
    return json.loads(RECORD.read_text()) if RECORD.exists() else empty


def recorded_seconds() -> dict[str, float]:
    """What each theorem took when it was last recorded."""
    return {name: record["seconds"] for name, record in read()["theorems"].items()}


def fresh(theorem: Theorem, record: dict[str, Any]) -> bool:
    return record["text"] == text_hash(theorem) and record["code"] == code_hash(theorem.functions)


def update(collection: Collection, outcomes: dict[str, Outcome]) -> None:
    """Record these outcomes, drop records that no longer fit their theorem, and rewrite the page."""
    if collection.skipped:
        raise ValueError(f"the ledger needs every theorem, but {', '.join(collection.skipped)} cannot be read here")
    before = read()
    same_tools = before["versions"] == versions()
    records = {}
    for name, theorem in sorted(collection.theorems.items()):
        if name in outcomes:
            outcome = outcomes[name]
            records[name] = {
                "text": text_hash(theorem),
                "code": code_hash(theorem.functions),
                "solver": outcome.solver,
                "seconds": round(outcome.seconds, 2),
                "verdict": outcome.verdict,
                "detail": outcome.detail,
            }
        elif same_tools and name in before["theorems"] and fresh(theorem, before["theorems"][name]):
            records[name] = before["theorems"][name]

    ledger = {"versions": versions(), "theorems": dict(sorted(records.items()))}
    lines = ",\n".join(f"  {json.dumps(name)}: {json.dumps(record)}" for name, record in ledger["theorems"].items())
    RECORD.write_text(f'{{\n "versions": {json.dumps(ledger["versions"])},\n "theorems": {{\n{lines}\n }}\n}}\n')
    PAGE.write_text(render(collection.theorems.values(), ledger))


def families(theorems: Iterable[Theorem]) -> dict[str, list[Theorem]]:
    """Theorems that share a statement, by the part of the name that they share too."""
    by_statement: dict[str, list[Theorem]] = {}
    for theorem in theorems:
        by_statement.setdefault(theorem.statement, []).append(theorem)
    return {_common_name(group): group for group in by_statement.values()}


def _common_name(group: list[Theorem]) -> str:
    split = [theorem.name.split("/") for theorem in group]
    parts = []
    for column in zip(*split, strict=False):
        distinct = list(dict.fromkeys(column))
        parts.append(distinct[0] if len(distinct) == 1 else "{" + ",".join(distinct) + "}")
    return "/".join(parts)


def render(theorems: Iterable[Theorem], ledger: dict[str, Any]) -> str:
    """The page, from the theorems as they are and the records as they were made."""
    records = ledger["theorems"]
    lines = [
        "# Ledger of proofs",
        "",
        "Generated by `python -m proofs --tier full --ledger`; do not edit. One section per theorem family; a family holds "
        "for every combination in its title. Seconds are of the recorded run, per family, on one core.",
        "",
        "Tools: " + ", ".join(f"{tool} {version}" for tool, version in ledger["versions"].items()) + ".",
        "",
        "## What is believed without proof",
        "",
        *(f"- {item}" for item in TRUSTED),
        "",
        "## Theorems",
        "",
    ]
    for title, group in families(theorems).items():
        known = [records[theorem.name] for theorem in group if theorem.name in records]
        verdicts: dict[str, int] = {}
        for theorem in group:
            verdict = records[theorem.name]["verdict"] if theorem.name in records else "not run since the last change"
            verdicts[verdict] = verdicts.get(verdict, 0) + 1
        solvers = sorted({record["solver"] for record in known})
        kernels = dict.fromkeys(str(kernel) for theorem in group for kernel in theorem.kernels)
        tiers = sorted({theorem.tier for theorem in group})
        hypotheses = dict.fromkeys(hypothesis for theorem in group for hypothesis in theorem.hypotheses)
        details = dict.fromkeys(record["detail"] for record in known if record["detail"])
        lines += [
            f"### `{title}`",
            "",
            group[0].statement,
            "",
            f"- For all: {'; '.join(hypotheses) or 'no inputs'}.",
            f"- Kernels ({len(kernels)}): {_shorten(list(kernels))}.",
            f"- Verdict: {', '.join(f'{count} {verdict}' for verdict, count in sorted(verdicts.items()))}"
            f" ({', '.join(solvers) or '-'}; {sum(record['seconds'] for record in known):.0f} s; tier {' and '.join(tiers)}).",
            *(f"- Note: {detail}" for detail in list(details)[:5]),
            f"- Text and code: {_digest([text_hash(theorem) + code_hash(theorem.functions) for theorem in group])}.",
            "",
        ]
    return "\n".join(lines)


def _shorten(names: list[str]) -> str:
    return ", ".join(names) if len(names) <= 4 else f"{names[0]}, {names[1]}, … {names[-1]}"
