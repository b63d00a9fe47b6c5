"""Products of matrix units: one instruction (mma), or a chain of instructions (dot)."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

import numpy as np

from mxnum.conformance.bits import Generator
from mxnum.conformance.cases.units import boundary_products
from mxnum.conformance.cases.units import unit_products as random_products
from mxnum.conformance.hypotheses.units import right_bits, unit_mistakes, values
from mxnum.conformance.judging import describe
from mxnum.conformance.judging.distances import in_last_places, signed
from mxnum.conformance.operations.rounding import of_field
from mxnum.conformance.operations.values import ValueOperation
from mxnum.conformance.task import Answer, ArrayFormat, Columns, Field, Task

#: The largest number of products that the description of a case lists.
SHOWN = 6


class UnitProducts(ValueOperation):
    """The operation a·b + c of a matrix unit, for pairs of vectors a and b and an addend c."""

    settings, level_2 = ("accumulate", "k", "block"), 100_000

    def __init__(self, name: str, has_scales: bool) -> None:
        self.name = name
        self.takes = ("a", "a_scale", "b", "b_scale", "c") if has_scales else ("a", "b", "c")

    def inputs(self, task: Task) -> list[Field]:
        fields = []
        for side in ("a", "b"):
            if not isinstance(task.format, ArrayFormat):
                fields.append(Field(f"{side}_scale", task.scale_bits, task.k // task.block, "scale"))
            fields.append(Field(side, task.element.bits, task.k, "operand"))
        return [*fields, Field("c", task.source.bits, 1, "addend")]

    def boundaries(self, task: Task, rng: Generator) -> Columns:
        return boundary_products(task, rng)

    def samples(self, task: Task, rng: Generator, size: int, start: int) -> Columns:
        return random_products(task, rng, size)

    def possible(self, task: Task) -> tuple[str, int | None]:
        return f"pairs of vectors of {task.k} numbers, with an addend", None

    def expected(self, task: Task, inputs: Columns) -> Columns:
        return {"value": right_bits(task, inputs)}

    def result_bits(self, task: Task) -> int | None:
        assert task.unit is not None
        is_rounded = task.unit.addend == "term" and not task.unit.promotion
        return task.unit.result_bits if is_rounded else task.source.mantissa_bits

    def hypotheses(self, task: Task) -> Iterator[tuple[str, str, Answer]]:
        return of_field("value", unit_mistakes(task))

    def title(self, task: Task) -> str:
        assert task.unit is not None
        return f"{self.name}, {task.format.name}, unit {task.unit.name!r}, K = {task.k}"

    def notes(self, task: Task) -> list[str]:
        assert task.unit is not None
        told = [one for clause in task.unit.clauses if (one := task.unit.status(clause)).status != "replayed"]
        if not told:
            return []
        clauses = "; ".join(f"{one.clause} {one.status}{f' ({one.source})' * bool(one.source)}" for one in told)
        return [f"No outputs of a GPU confirm these clauses of unit {task.unit.name!r}: {clauses}."]

    def given(self, task: Task, inputs: Columns) -> str:
        a, b = (values(task, inputs, side)[0] for side in ("a", "b"))
        with np.errstate(invalid="ignore"):
            size = np.where(np.isfinite(a * b), abs(a * b), np.inf)
        there = np.flatnonzero(size > 0)
        shown = np.sort(there[np.argsort(-size[there], kind="stable")][:SHOWN])
        texts = [f"{describe.plain(float(a[at]))} * {describe.plain(float(b[at]))} at {at}" for at in shown]
        more = [f"{len(there) - len(shown)} smaller ones"] if len(there) > len(shown) else []
        products = ", ".join([*texts, *more]) or "all zero"
        return f"products {products}; c = {describe.float_text(task.source, inputs['c'])}"

    def describe(self, task: Task, inputs: Columns, got: Columns, want: Columns) -> str:
        distance = in_last_places(task, got["value"], want["value"])[0]
        texts = [describe.float_text(task.source, columns["value"]) for columns in (got, want)]
        text = f"{self.given(task, inputs)}: got {texts[0]}, want {texts[1]}"
        return f"{text}, {signed(distance)} units in the last place" if np.isfinite(distance) and distance else text


@cache
def unit_products(name: str, has_scales: bool) -> UnitProducts:
    """Return the operation `name` (mma or dot) for units with or without scales."""
    return UnitProducts(name, has_scales)
