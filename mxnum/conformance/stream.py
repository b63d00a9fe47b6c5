"""Vectors out to a stream, answers in from one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import BinaryIO

from mxnum.conformance import text
from mxnum.conformance.cases import cases, number_of_cases
from mxnum.conformance.expected import expected
from mxnum.conformance.task import Columns, Field, Task
from mxnum.conformance.verdict import Judge, Profile, Report

Advance = Callable[[int], object]


def write_vectors(
    task: Task,
    out: BinaryIO,
    *,
    level: int = 1,
    seed: int = 0,
    count: int | None = None,
    answers: bool = True,
    advance: Advance = lambda done: None,
) -> int:
    """Write header and cases, with the right answers unless told otherwise; how many cases there were."""
    total = number_of_cases(task, level=level, seed=seed, count=count)
    out.write(text.header_lines(task, level=level, seed=seed, cases=total, answers="yes" if answers else "no"))
    for inputs in cases(task, level=level, seed=seed, count=count):
        columns = {**inputs, **(expected(task, inputs) if answers else {})}
        fields = (*task.inputs, *(task.outputs if answers else ()))
        out.write(text.format_lines(fields, columns))
        advance(len(next(iter(inputs.values()))))
    return total


class Incomplete(ValueError):
    """The answers stop before the cases do."""


def verify(
    answers: BinaryIO,
    vectors: BinaryIO | None = None,
    *,
    profile: Profile | None = None,
    task: Task | None = None,
    keep: int = 5,
    advance: Advance = lambda done: None,
) -> Report:
    """Judge a stream of answers.

    Each line holds the fields of a case and the answer, below the header of the vectors; or, if the `vectors` are given
    as well, the answer alone. The right answers are computed anew from the inputs.
    """
    reader = text.Reader(answers)
    given = None if vectors is None else text.Reader(vectors)
    header = (given or reader).header
    task = task or Task.from_header(header)
    judge = Judge(task, profile, keep)
    pairs = _alone(task, reader, given) if given else _together(task, reader)
    for first, inputs, answered in pairs:
        judge.add(inputs, answered, first)
        advance(len(next(iter(inputs.values()))))
    stated = header.get("cases", "")
    if stated.isdecimal() and judge.cases != int(stated):
        raise Incomplete(f"The answers must be of {stated} cases, as the header says, not {judge.cases}.")
    if judge.cases == 0:
        raise Incomplete("The answers must be of at least one case, not empty.")
    return judge.report()


def _together(task: Task, reader: text.Reader) -> Iterator[tuple[int, Columns, Columns]]:
    for first, lines in reader.chunks():
        columns = text.parse_lines((*task.inputs, *task.outputs), lines, first)
        yield first, _named(columns, task.inputs), _named(columns, task.outputs)


def _alone(task: Task, reader: text.Reader, given: text.Reader) -> Iterator[tuple[int, Columns, Columns]]:
    with_answers = given.header.get("answers", "yes") == "yes"
    fields = (*task.inputs, *(task.outputs if with_answers else ()))
    cases_in = (line for _, lines in given.chunks() for line in lines)
    for first, lines in reader.chunks():
        matching = [line for line, _ in zip(cases_in, lines, strict=False)]
        if len(matching) < len(lines):
            raise ValueError(f"The answers must be as many as the cases, not more (from line {first + len(matching)}).")
        yield first, text.parse_lines(fields, matching, first), text.parse_lines(task.outputs, lines, first)


def _named(columns: Columns, fields: tuple[Field, ...]) -> Columns:
    return {field.name: columns[field.name] for field in fields}
