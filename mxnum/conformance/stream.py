"""Write vectors to a stream, and judge answers from a stream."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import BinaryIO

import numpy as np

import mxnum
from mxnum.conformance import text
from mxnum.conformance.cases import cases, number_of_cases
from mxnum.conformance.expected import expected, tensor_scales
from mxnum.conformance.report import Profile, Report
from mxnum.conformance.task import DECIDES, Columns, Field, Task
from mxnum.conformance.text import Incomplete
from mxnum.conformance.verdict import Judge
from mxnum.memory.dtypes import Array

#: Header lines that state the task and its cases. Answers must repeat those of the vectors.
ASKED = ("operation", "format", "block", "source", "result", *DECIDES, "level", "seed")
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
    """Write the header and the cases, with the right answers if `answers`. Return the number of cases."""
    total = number_of_cases(task, level=level, seed=seed, count=count)
    out.write(text.header_lines(task, level=level, seed=seed, cases=total, answers="yes" if answers else "no"))
    for inputs in cases(task, level=level, seed=seed, count=count):
        columns = {**inputs, **(expected(task, inputs) if answers else {})}
        fields = (*task.inputs, *(task.outputs if answers else ()))
        out.write(text.format_lines(fields, columns))
        advance(len(next(iter(inputs.values()))))
    return total


def answer_vectors(cases: BinaryIO, out: BinaryIO, *, advance: Advance = lambda done: None) -> int:
    """Write the cases of a stream with their right answers. Return the number of cases.

    The stream holds a header and inputs, as `verify` reads them. The output states the number of
    cases in its header if the input does; otherwise in its last line.
    """
    reader = text.Reader(cases)
    task, total = Task.from_header(reader.header), 0
    stated = reader.header.get("cases", text.BELOW)
    out.write(text.header_lines(task, cases=stated, answers="yes"))
    for first, lines in reader.chunks():
        inputs = _checked(text.parse_lines(task.inputs, lines, first), first)
        out.write(text.format_lines((*task.inputs, *task.outputs), {**inputs, **expected(task, inputs)}))
        advance(len(lines))
        total += len(lines)
    if total == 0:
        raise Incomplete("There must be at least one case below the header; there is none.")
    count = reader.cases
    if count not in (None, total):
        raise Incomplete(f"There must be {count} cases, as the line '# cases: {count}' says, not {total}.")
    if stated == text.BELOW:
        out.write(b"# cases: %d\n" % total)
    return total


def verify(
    answers: BinaryIO,
    vectors: BinaryIO | None = None,
    *,
    accept: str | Iterable[str] | None = None,
    task: Task | None = None,
    keep: int = 5,
    advance: Advance = lambda done: None,
) -> Report:
    """Judge a stream of answers and return the report.

    Without `vectors`, the answers repeat the header of the vectors, and each line holds the fields
    of a case and its answer. With `vectors`, each line holds the answer alone. The right answers
    are computed anew from the inputs. `accept` is as for `check`.
    """
    reader = text.Reader(answers)
    given = None if vectors is None else text.Reader(vectors)
    header = (given or reader).header
    for key in header.keys() & reader.header.keys() & set(ASKED):
        if header[key] != reader.header[key]:
            raise ValueError(
                f"The header of the answers must state the task of the vectors: {key} {header[key]}, not "
                f"{reader.header[key]}."
            )
    if reader.line == 0:
        raise Incomplete("The answers must be of at least one case, not empty.")
    if given is None and task is None and not header:
        raise ValueError(
            "The answers must repeat the header of the vectors and each case; if they stand alone on their lines, "
            "give the vectors as well (--vectors)."
        )
    task = task or Task.from_header(header)
    judge = Judge(task, Profile.of(accept), keep)
    stated = _stated_cases(task, header) if given is None else None
    pairs = _alone(task, reader, given) if given else _together(task, reader)
    for first, inputs, answered, unknown in pairs:
        _judge_known(judge, first, inputs, answered, unknown)
        advance(len(next(iter(inputs.values()))))
        if stated:
            stated.compare(inputs, first)
    counts = [one.cases for one in (given, reader) if one]
    for count in counts:
        if count not in (None, judge.cases):
            raise Incomplete(
                f"There must be answers for {count} cases, as the line '# cases: {count}' says, not for {judge.cases}."
            )
    if judge.cases == 0:
        raise Incomplete("There must be at least one answer; there is none.")
    if stated:
        stated.require_all()
    report = judge.report()
    if given is None:
        report.unchecked = _unchecked(header, counts[0], stated)
    return report


def _unchecked(header: Mapping[str, str], count: int | None, stated: _Stated | None) -> str:
    """Return a sentence that says what cannot be checked if answers come without the vectors."""
    if count is None:
        return "No line '# cases: ...' says how many answers there must be: missing ones would go unnoticed."
    if stated is None and "level" in header:
        made = header.get("mxnum", "(unknown)")
        return f"mxnum {made} made these cases: that the answers are to all of them is checked with --vectors alone."
    return ""


def _judge_known(judge: Judge, first: int, inputs: Columns, answered: Columns, unknown: dict[int, str]) -> None:
    """Judge a batch whose first case is on line `first`. Answers with unknown bits are wrong."""
    count = len(next(iter(inputs.values())))
    known = np.array([row for row in range(count) if row not in unknown], np.int64)
    if known.size:
        some, theirs = ({name: column[known] for name, column in columns.items()} for columns in (inputs, answered))
        judge.add(some, theirs, first, lambda number: f"line {first + known[number - first]}")
    if unknown:
        judge.add_unknown(inputs, unknown, first)


class _Stated:
    """Compares the cases that a header describes with those that come back, which may be in any order."""

    def __init__(self, batches: Iterator[Columns]) -> None:
        self._batches = (_hashes(batch) for batch in batches)
        self._ahead = np.empty(0, np.uint64)
        #: The sum of the hashes of the lines, minus the sum of the hashes of the cases that were
        #: given.
        self._excess = 0
        #: The first line that differs from the case given at its position.
        self._line: int | None = None

    def compare(self, inputs: Columns, first: int) -> None:
        """Compare a batch of lines with the cases given. `first` is the number of its first line."""
        found = _hashes(inputs)
        while len(self._ahead) < len(found) and (batch := next(self._batches, None)) is not None:
            self._ahead = np.concatenate([self._ahead, batch])
        given, self._ahead = self._ahead[: len(found)], self._ahead[len(found) :]
        common = min(len(found), len(given))
        other = np.flatnonzero(found[:common] != given[:common])
        if self._line is None and (other.size or common < len(found)):
            self._line = first + int(other[0] if other.size else common)
        self._excess += sum(found.tolist()) - sum(given.tolist())

    def require_all(self) -> None:
        """Raise ValueError unless all cases came back."""
        rest = sum(sum(batch.tolist()) for batch in (self._ahead, *self._batches))
        if self._excess != rest:
            raise ValueError(
                f"The answers must repeat the cases that were given, but line {self._line} does not; "
                "a program can also print its answers alone (--vectors)."
            )


def _hashes(columns: Columns) -> Array:
    """Return a hash of each row."""
    result = np.zeros(len(next(iter(columns.values()))), np.uint64)
    for column in columns.values():
        for numbers in column.T.astype(np.uint64):
            result = (result ^ numbers) * np.uint64(0x9E3779B97F4A7C15)
            result ^= result >> np.uint64(29)
    return result


def _stated_cases(task: Task, header: Mapping[str, str]) -> _Stated | None:
    """Return the cases that the header describes, made anew.

    Return None if the header does not describe them, or if another version of mxnum made them.
    """
    numbers = [header.get(key, "") for key in ("level", "seed", "cases")]
    if header.get("mxnum") != mxnum.__version__ or not all(number.isdecimal() for number in numbers):
        return None
    level, seed, count = (int(number) for number in numbers)
    return _Stated(cases(task, level=level, seed=seed, count=count if level == 2 else None))


#: A batch: the number of its first line, its inputs and answers, and the answers with unknown bits
#: by row.
Batch = tuple[int, Columns, Columns, dict[int, str]]


def _together(task: Task, reader: text.Reader) -> Iterator[Batch]:
    fields = (*task.inputs, *task.outputs)
    for first, written in reader.chunks():
        lines, unknown = text.without_unknown(fields, written, task.outputs)
        columns = text.parse_lines(fields, lines, first, task.outputs)
        yield first, _checked(_named(columns, task.inputs), first), _named(columns, task.outputs), unknown


def _alone(task: Task, reader: text.Reader, given: text.Reader) -> Iterator[Batch]:
    with_answers = given.header.get("answers", "yes") == "yes"
    fields = (*task.inputs, *(task.outputs if with_answers else ()))
    cases_in = (line for _, lines in given.chunks() for line in lines)
    answered = 0
    for first, lines in reader.chunks():
        matching = list(islice(cases_in, len(lines)))
        if len(matching) < len(lines):
            raise ValueError(
                f"There must be one answer for each case; from line {first + len(matching)} on there are more."
            )
        if len(lines[0].split()) == sum(field.count for field in (*task.inputs, *task.outputs)):
            raise ValueError("The answers must stand alone on their lines where the vectors are given (--vectors).")
        inputs = _checked(text.parse_lines(fields, matching, first), first)
        lines, unknown = text.without_unknown(task.outputs, lines, task.outputs)
        yield first, inputs, text.parse_lines(task.outputs, lines, first, task.outputs), unknown
        answered += len(lines)
    if left := sum(1 for _ in cases_in):
        raise Incomplete(f"There must be answers for the {answered + left} cases of the vectors, not for {answered}.")


def _checked(inputs: Columns, first: int) -> Columns:
    """Return the inputs. Raise ValueError if a tensor scale cannot be divided or multiplied by."""
    tensor = tensor_scales(inputs)
    if tensor is not None:
        good = (tensor > 0) & np.isfinite(tensor) if "x" in inputs else ~np.signbit(tensor)
        wanted = "positive and finite" if "x" in inputs else "without a sign"
        for row in np.flatnonzero(~good):
            raise ValueError(f"Line {first + row} must have a tensor scale that is {wanted}, not {tensor[row, 0]}.")
    return inputs


def _named(columns: Columns, fields: tuple[Field, ...]) -> Columns:
    return {field.name: columns[field.name] for field in fields}
