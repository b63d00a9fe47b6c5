"""Matrix units: how GPUs add the products of a GEMM, one row of data for each unit.

    import mxnum as mx
    mx.matmul(a, b, accumulate="hopper_fp8")
    print(mx.units.describe())

`unit` has the row, `nvidia` the units of NVIDIA's GPUs with the evidence for each clause.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from mxnum import errors, formats
from mxnum.output.text_table import text_table
from mxnum.units import nvidia
from mxnum.units.unit import Evidence, EvidenceWarning, MatrixUnit

__all__ = ["Evidence", "EvidenceWarning", "MatrixUnit", "describe", "get", "names", "register"]


@cache
def _units() -> dict[str, MatrixUnit]:
    """Return the registered units by name; making them takes longer than importing this package."""
    return {unit.name: unit for unit in nvidia.rows()}


def names() -> tuple[str, ...]:
    """Return the names of all registered units."""
    return tuple(_units())


def get(unit: str | MatrixUnit) -> MatrixUnit:
    """Return the unit of that name, in any spelling; a `MatrixUnit` is returned as it is.

    >>> from mxnum import units
    >>> units.get("Hopper FP8").fraction_bits
    13
    """
    return unit if isinstance(unit, MatrixUnit) else _units()[formats.meant("unit", unit, names())]


def find(name: Any) -> MatrixUnit | None:
    """Return the unit that `name` is or names, or None."""
    if isinstance(name, MatrixUnit):
        return name
    known = formats.find("accumulate", name, names()) if isinstance(name, str) else None
    return None if known is None else _units()[known]


def register(unit: MatrixUnit) -> MatrixUnit:
    """Make a unit of your own known by its name, and return it. A taken name raises ValueError."""
    errors.require_type(isinstance(unit, MatrixUnit), "unit", "a MatrixUnit", unit)
    taken = _units().get(unit.name)
    errors.require(taken in (None, unit), "unit", "named otherwise than a unit that is registered", unit.name)
    _units()[unit.name] = unit
    return unit


def describe(unit: str | MatrixUnit | None = None) -> str:
    """Return what a unit does with the evidence for each clause, or a table of all units.

    >>> from mxnum import units
    >>> print(units.describe("hopper_fp8").splitlines()[-2])
    evidence: chains published (MMA-Sim)
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
