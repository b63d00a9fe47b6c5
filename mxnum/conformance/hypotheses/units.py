"""Plausible mistakes in kernels that compute the products of a matrix unit."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import fields
from functools import partial
from typing import Any

import numpy as np

from mxnum import units
from mxnum.conformance.bits import as_floats, magnitude_bits, sign_bits, with_one_nan
from mxnum.conformance.task import Answer, ArrayFormat, Columns, Task
from mxnum.definition import fused_by_numpy
from mxnum.memory.dtypes import Array, numpy_dtype
from mxnum.units import MatrixUnit

#: The fields of `MatrixUnit` that say how the unit adds.
_RULE = tuple(f.name for f in fields(MatrixUnit) if f.name not in ("name", "operands", "k", "scales", "evidence"))

#: Wrong ways to promote: to multiply a partial sum s by the scales x and y, and add it to the
#: total t.
_PROMOTIONS: dict[str, Callable[..., Array]] = {
    "x y s + t without FMA": lambda x, y, s, t: x * y * s + t,
    "s x y + t without FMA": lambda x, y, s, t: s * x * y + t,
    "fma(s x, y, t)": lambda x, y, s, t: fused_by_numpy.fma(s * x, y, t),
}


def right_bits(task: Task, inputs: Columns, unit: MatrixUnit | None = None, **rules: Any) -> Array:
    """Return the result bits of every case, computed by a unit (default: the task's unit).

    `rules` are keyword arguments of `fused_by_numpy.dots` that replace rules of the unit.
    """
    assert task.unit is not None
    unit = unit or task.unit
    # A case of `mma` is one instruction of `task.k` products, if the unit has this instruction.
    # Other cases are split into instructions of `unit.k[-1]` products. Zeros pad the last
    # instruction.
    k = task.k if task.operation.name == "mma" and (task.k in unit.k or unit is task.unit) else unit.k[-1]
    a, b = (_vectors(task, inputs, side) for side in ("a", "b"))
    with np.errstate(all="ignore"):
        bits = fused_by_numpy.dots(a, b, inputs["c"][:, 0], unit, k, **rules)
    return bits.reshape(-1, 1)


def _vectors(task: Task, inputs: Columns, side: str) -> fused_by_numpy.Vectors:
    codes = inputs[side] >> inputs[side].dtype.type(task.element.bits - task.operand.bits)
    if isinstance(task.format, ArrayFormat):
        return fused_by_numpy.Vectors(codes, task.operand)
    return fused_by_numpy.Vectors(codes, task.operand, inputs[f"{side}_scale"], task.format.scale, task.block)


def unit_mistakes(task: Task) -> Iterator[tuple[str, Answer]]:
    """Yield the name of each mistake, and a function that computes the answers with this mistake.

    Other registered units come first, then units with wrong fields, then other mistakes.
    """
    assert task.unit is not None
    for name, unit in _others(task):
        yield name, partial(right_bits, unit=unit)
    yield "a unit that ignores the addend", _changed(c=lambda c: c * 0)
    for name, align in (
        ("a unit that truncates aligned terms to the next lower number (two's complement)", _floor),
        ("a unit that rounds aligned terms to nearest", _nearest),
    ):
        yield name, partial(right_bits, align=align)
    for exponent in (-126, -133):
        said = f"a unit whose zero operands have the exponent {exponent}"
        yield said, partial(right_bits, zero_exponent=exponent)
    yield "saturating results to the largest number", _saturated
    yield "flushing subnormal results to zero", _flushed
    subnormal = _changed(a=partial(_without_subnormals, task), b=partial(_without_subnormals, task))
    yield "reading subnormal operands as zero", subnormal
    yield "the sum in float64, rounded once", partial(_in_type, np.float64)
    yield "sums in float32 of rounded products, in order", partial(_in_type, np.float32)
    if not isinstance(task.format, ArrayFormat):
        yield "the scales of the first block for all blocks", _changed(a_scale=_first, b_scale=_first)
        yield "the scales of operand a for both operands", lambda t, i: right_bits(t, {**i, "b_scale": i["a_scale"]})
        for name, promote in _PROMOTIONS.items() if task.unit.promotion else ():
            said = f"a promotion that computes {name} (s: partial sum, x and y: scales)"
            yield said, partial(right_bits, promote=promote)


def _others(task: Task) -> Iterator[tuple[str, MatrixUnit]]:
    """Yield wrong units: registered units for the same operands, and variants of the task's unit.

    Most variants differ from the task's unit in one field. The other variants differ in two fields.
    """
    unit = task.unit
    assert unit is not None
    seen = {_rule(unit)}

    def new(name: str, make: Callable[[], MatrixUnit]) -> Iterator[tuple[str, MatrixUnit]]:
        try:
            other = make()
        except ValueError:  # the unit rejects this combination of fields
            return
        if _rule(other) not in seen and _uses_scales(other, task):
            seen.add(_rule(other))
            yield name, other

    for each in map(units.get, units.names()):
        other = each.but(promotion=0) if task.operation.name == "mma" else each
        takes = task.operand in other.formats.values() and set(other.scales) == set(unit.scales)
        if (
            takes
            and _uses_scales(other, task)
            and other.accumulator == unit.accumulator
            and _rule(other) != _rule(unit)
        ):
            seen.add(_rule(other))
            yield f"the unit {each.name!r}", other
    for name, changes in _fields_off(unit, task.k):
        yield from new(f"a unit that {name}", partial(unit.but, **changes))


def _uses_scales(unit: MatrixUnit, task: Task) -> bool:
    """Return True if the task has no scales, or if the unit or its promotion applies the scales."""
    return isinstance(task.format, ArrayFormat) or bool(unit.scales) or unit.promotion == task.block


def _rule(unit: MatrixUnit) -> tuple[Any, ...]:
    return tuple(getattr(unit, name) for name in _RULE)


def _fields_off(unit: MatrixUnit, k: int) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield, for each change of a unit, a phrase that describes it, and the changed fields."""
    usual = unit.fraction_bits
    near = sorted((bits for bits in range(1, 48) if bits != usual), key=lambda bits: abs(bits - usual))
    for bits in near:
        yield f"keeps {bits} fraction bits where {unit.name!r} keeps {usual}", {"fraction_bits": bits}
    does = "rounds to nearest" if unit.rounding == "rne" else f"truncates to {unit.result_bits}"
    to_nearest: dict[str, object] = {"rounding": "rne", "result_bits": 23 if unit.accumulator == "float32" else 10}
    roundings = [
        (f"truncates results to {n} fraction bits", {"rounding": "rtz", "result_bits": n}) for n in range(23, 4, -1)
    ]
    roundings.insert(0 if unit.rounding == "rne" else len(roundings), ("rounds results to nearest", to_nearest))
    for said, changes in roundings:
        yield f"{said} where {unit.name!r} {does}", changes
    if unit.addend == "term":
        yield f"adds the addend after the sum where {unit.name!r} adds it as a term of the sum", {"addend": "after"}
    else:
        yield f"adds the addend as a term of the sum where {unit.name!r} adds it after the sum", {"addend": "term"}
    lengths = [n for n in (1, 2, 4, 8, 16, 32, 64, 128) if n != unit.terms and n <= unit.k[-1]]
    for terms in lengths:
        yield f"adds {terms} products at once where {unit.name!r} adds {unit.terms}", {"terms": terms}
    if len(unit.k) == 1:
        n = unit.k[0]
        pairs = [index for index in range(n) if index % 4 < 2]
        orders = {"in index order": (), "in reverse order": tuple(range(n))[::-1],
                  "0 and 1 (mod 4) first": (*pairs, *(index for index in range(n) if index % 4 >= 2))}  # fmt: skip
        for said, order in orders.items():
            yield f"takes products {said}", {"order": order}
    for promotion in (0, *(unit.k[-1] * n for n in (1, 2, 4, 8, 16) if unit.k[-1] * n < k)):
        does = f"does every {unit.promotion}" if unit.promotion else "never does"
        said = f"promotes its sum every {promotion} products" if promotion else "never promotes its sum"
        yield f"{said} where {unit.name!r} {does}", {"promotion": promotion}
    for bits in near[:12]:
        said, changes = f"keeps {bits} fraction bits and", {"fraction_bits": bits}
        yield f"{said} truncates results to {bits} fraction bits", {**changes, "result_bits": bits}
        for terms in lengths:
            yield f"{said} adds {terms} products at once", {**changes, "terms": terms}


def _changed(**changes: Callable[[Array], Array]) -> Answer:
    """Return a function that applies `changes` to the inputs, and then computes the answers."""
    return lambda task, inputs: right_bits(task, {**inputs, **{name: f(inputs[name]) for name, f in changes.items()}})


def _first(scales: Array) -> Array:
    return np.repeat(scales[:, :1], scales.shape[1], axis=1)


def _floor(sign: Array, exponent: Array, significand: Array, largest: Array, left: int, right: int) -> Array:
    distance = np.minimum(largest - exponent + right, 62)
    return np.asarray(np.where(sign == 0, significand, -significand) << left >> distance)


def _nearest(sign: Array, exponent: Array, significand: Array, largest: Array, left: int, right: int) -> Array:
    distance = np.minimum(largest - exponent + right, 62)
    scaled = significand << left
    low = scaled >> distance
    rest = (scaled - (low << distance)) * 2 - (np.int64(1) << distance)
    magnitude = low + ((rest > 0) | ((rest == 0) & (low & 1 == 1)))
    return np.asarray(np.where(sign == 0, magnitude, -magnitude))


def _saturated(task: Task, inputs: Columns) -> Array:
    bits = right_bits(task, inputs)
    return np.where(magnitude_bits(bits, task.source) == task.source.max_code + 1, bits - bits.dtype.type(1), bits)


def _flushed(task: Task, inputs: Columns) -> Array:
    bits = right_bits(task, inputs)
    small = magnitude_bits(bits, task.source) < (1 << task.source.mantissa_bits)
    return np.where(small, sign_bits(bits, task.source), bits)


def _without_subnormals(task: Task, codes: Array) -> Array:
    e = task.operand
    field = (codes >> (task.element.bits - e.bits + e.mantissa_bits)) & ((1 << e.exponent_bits) - 1)
    return np.where(field == 0, codes.dtype.type(0), codes)


def _in_type(dtype: Any, task: Task, inputs: Columns) -> Array:
    """Return the addend plus the products, added in index order; each result is of type `dtype`."""
    total = as_floats(inputs["c"], task.source).astype(dtype)
    with np.errstate(all="ignore"):
        a, b = (values(task, inputs, side) for side in ("a", "b"))
        total = np.cumsum(np.concatenate([total, (a * b).astype(dtype)], axis=1), axis=1)[:, -1:] + dtype(0)
        return with_one_nan(total.astype(numpy_dtype(task.source)), task.source)


def values(task: Task, inputs: Columns, side: str) -> Array:
    """Return the values of an operand in float64, multiplied by its scales."""
    e = task.operand
    codes = inputs[side] >> inputs[side].dtype.type(task.element.bits - e.bits)
    if e.bits <= 8:
        elements = np.array(e.values())[codes]
    else:
        elements = (codes << codes.dtype.type(task.element.bits - e.bits)).view(numpy_dtype(task.element))
    if f"{side}_scale" not in inputs:
        return np.asarray(elements.astype(np.float64))
    from mxnum.conformance.judging.right import scale_numbers

    return np.asarray(elements * np.repeat(scale_numbers(task, inputs[f"{side}_scale"]), task.block, axis=1))
