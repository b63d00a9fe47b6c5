"""Matrix units: a `MatrixUnit` says how a GPU adds the products of a matrix multiplication.

    import mxnum as mx
    mx.matmul(a, b, accumulate="hopper_fp8")
    print(mx.units.describe())

`unit` defines `MatrixUnit`. `nvidia` has the units of NVIDIA's GPUs, with the evidence for each
clause of their descriptions.
"""

from __future__ import annotations

import json
from dataclasses import fields
from functools import cache
from typing import Any

from mxnum import errors, formats
from mxnum.output.text_table import text_table
from mxnum.units import nvidia
from mxnum.units.unit import Evidence, EvidenceWarning, MatrixUnit

__all__ = ["Evidence", "EvidenceWarning", "MatrixUnit", "describe", "get", "names", "register"]


@cache
def _units() -> dict[str, MatrixUnit]:
    """Return the registered units by name.

    The first call, not the import, creates the units: creating them takes longer than importing
    this package.
    """
    return {unit.name: unit for unit in nvidia.rows()}


def names() -> tuple[str, ...]:
    """Return the names of all registered units."""
    return tuple(_units())


def get(unit: str | MatrixUnit) -> MatrixUnit:
    """Return the unit with a given name, in any spelling; return a given `MatrixUnit` unchanged.

    >>> from mxnum import units
    >>> units.get("Hopper FP8").fraction_bits
    13
    """
    return unit if isinstance(unit, MatrixUnit) else _units()[formats.meant("unit", unit, names())]


def find(name: Any) -> MatrixUnit | None:
    """Return the unit with this name, or None; return a given `MatrixUnit` unchanged."""
    if isinstance(name, MatrixUnit):
        return name
    known = formats.find("accumulate", name, names()) if isinstance(name, str) else None
    return None if known is None else _units()[known]


def register(unit: MatrixUnit) -> MatrixUnit:
    """Register a unit of your own under its name, and return it.

    Raise ValueError if another unit already has this name.
    """
    errors.require_type(isinstance(unit, MatrixUnit), "unit", "a MatrixUnit", unit)
    taken = _units().get(unit.name)
    errors.require(taken in (None, unit), "unit", "a unit with a name that is not yet registered", unit.name)
    _units()[unit.name] = unit
    return unit


def notation(unit: MatrixUnit) -> str:
    """Return the name of a registered unit; for any other unit, return JSON that `read` accepts."""
    if _units().get(unit.name) == unit:
        return unit.name
    blank = MatrixUnit(unit.name, unit.operands, unit.k, unit.terms, unit.fraction_bits)
    kept = [f.name for f in fields(unit) if f.name != "evidence"]
    required = ("name", "operands", "k", "terms", "fraction_bits")
    changed = [name for name in kept if name in required or getattr(unit, name) != getattr(blank, name)]
    return json.dumps({name: getattr(unit, name) for name in changed})


def read(text: str) -> MatrixUnit:
    """Return the unit that a JSON object describes.

    >>> from mxnum import units
    >>> text = '{"name": "mine", "operands": ["e4m3"], "k": [32], "terms": 16, "fraction_bits": 20}'
    >>> units.notation(units.read(text)) == text
    True
    """
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    errors.require(isinstance(found, dict), "unit", "a JSON object of a unit's fields", text)
    errors.known_fields(found, MatrixUnit, "a unit")
    try:
        return MatrixUnit(**{name: _tuples(value) for name, value in found.items()})
    except TypeError:
        required = "name, operands, k, terms and fraction_bits"
        raise ValueError(f"Argument 'unit' must have the fields {required}, not {text!r}.") from None


def _tuples(value: Any) -> Any:
    return tuple(_tuples(one) for one in value) if isinstance(value, list) else value


def describe(unit: str | MatrixUnit | None = None) -> str:
    """Return a description of a unit with the evidence for each clause, or a table of all units.

    >>> from mxnum import units
    >>> print(units.describe("hopper_fp8").splitlines()[-2])
    evidence: chains replayed (H100)
    """
    if unit is not None:
        return get(unit).describe()
    titles = "unit", "operands", "K", "products in a sum", "F", "addend", "result", "evidence"
    return text_table(titles, [_row(one) for one in _units().values()], width=100)


def _row(unit: MatrixUnit) -> tuple[object, ...]:
    rounding = {"rtz": "toward zero", "rne": "to nearest"}[unit.rounding]
    products = f"{unit.terms // unit.group} x {unit.group}" if unit.group > 1 else str(unit.terms)
    by_status: dict[str, list[str]] = {}
    for clause in unit.clauses:
        by_status.setdefault(unit.status(clause).status, []).append(clause)
    most = max(by_status.values(), key=len)
    told = [
        f"{status}" if clauses is most else f"{', '.join(clauses)} {status}" for status, clauses in by_status.items()
    ]
    return (
        unit.name, ", ".join(unit.operands), ", ".join(map(str, unit.k)), products, unit.fraction_bits,
        unit.addend, f"{unit.accumulator}, {unit.result_bits} bits, {rounding}", "; ".join(told),
    )  # fmt: skip
