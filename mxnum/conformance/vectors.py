"""Write test vectors as plain text, answer them, and judge answers from a stream."""

from __future__ import annotations

import os
import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import BinaryIO

import numpy as np

import mxnum
from mxnum.conformance.bits import fitted
from mxnum.conformance.cases.batches import cases, number_of_cases
from mxnum.conformance.judging.collector import Collector
from mxnum.conformance.judging.report import Profile, Report
from mxnum.conformance.judging.right import expected, tensor_scales
from mxnum.conformance.operations import DECIDES, HEADER, task_of
from mxnum.conformance.task import Columns, Field, Task, number_of, select
from mxnum.memory.dtypes import Array, code_dtype

VERSION = "1"
_NAME = "mxnum-vectors"
_DIGITS = np.frombuffer(b"0123456789ABCDEF", np.uint8)
#: A number with digits x or z, which logic simulators print for unknown bits.
_UNKNOWN = re.compile(rb"(0[xX])?[0-9a-fA-F]*[xXzZ][0-9a-fA-FxXzZ]*")
_VALUES = np.full(256, 255, np.uint8)
_VALUES[list(b"0123456789")] = range(10)
_VALUES[list(b"ABCDEF")] = range(10, 16)
_VALUES[list(b"abcdef")] = range(10, 16)
#: Number of lines parsed at a time.
CHUNK = 8192
#: The value of ``# cases:`` in a header if the last line of the file states the number of cases.
#: Programs write this value if they do not know the number of cases in advance.
BELOW = "stated below"


def header_lines(task: Task, **more: object) -> bytes:
    """Return a file's header, which states the task and how the cases were made."""
    facts = {**task.header(), **{key: str(value) for key, value in more.items()}}
    lines = [f"# {_NAME} {VERSION}", *(f"# {key}: {value}" for key, value in facts.items())]
    return ("\n".join(lines) + "\n").encode()


def format_lines(fields: Sequence[Field], columns: Columns) -> bytes:
    """Return the cases as text."""
    count = len(columns[fields[0].name])
    width = sum(field.count * (field.digits + 1) for field in fields)
    text = np.full((count, width), ord(" "), np.uint8)
    at = 0
    for field in fields:
        values = columns[field.name].astype(np.uint64)
        view = text[:, at : at + field.count * (field.digits + 1)].reshape(count, field.count, field.digits + 1)
        for digit in range(field.digits):
            shift = np.uint64(4 * (field.digits - 1 - digit))
            view[:, :, digit] = _DIGITS[((values >> shift) & np.uint64(15)).astype(np.uint8)]
        at += field.count * (field.digits + 1)
    text[:, -1] = ord("\n")
    return text.tobytes()


def parse_lines(
    fields: Sequence[Field], lines: Sequence[bytes], names: Sequence[str], answers: Sequence[Field] = ()
) -> Columns:
    """Return the numbers in the lines as columns, one column for each field.

    `names` has the name of each line for error messages, such as "Line 7 of cases.txt". The codes
    of a field in `answers` may have too many bits for the field; its column is then int64.
    """
    width = sum(field.count * (field.digits + 1) for field in fields)
    if all(len(line) == width for line in lines):
        text = np.frombuffer(b"".join(lines), np.uint8).reshape(len(lines), width)
        columns = _parse_fixed(fields, text)
        if columns is not None:
            return columns
    total = sum(field.count for field in fields)
    loose = {field.name for field in answers if field.kind in ("element", "scale")}
    result = {
        f.name: np.zeros((len(lines), f.count), np.int64 if f.name in loose else code_dtype(f.bits)) for f in fields
    }
    buses = [field for field in fields if field.kind in ("element", "operand") and field.count > 1]
    for row, line in enumerate(lines):
        tokens = line.split()
        if buses and len(tokens) == total - sum(field.count - 1 for field in buses):
            tokens = _one_by_one(tokens, fields, buses, names[row])
        if len(tokens) != total:
            wanted = ", ".join(f"{field.name}[{field.count}]" for field in fields)
            raise ValueError(f"{names[row]} must hold {total} numbers ({wanted}), not {len(tokens)}.")
        at = 0
        for field in fields:
            for i in range(field.count):
                bits = 63 if field.name in loose else field.bits
                result[field.name][row, i] = _number(tokens[at + i], field, bits, names[row])
            at += field.count
    return {f.name: fitted(result[f.name], f.bits) if f.name in loose else result[f.name] for f in fields}


def without_unknown(
    fields: Sequence[Field], lines: Sequence[bytes], answers: Sequence[Field]
) -> tuple[list[bytes], dict[int, str]]:
    """Replace each answer that has unknown digits by 0, because such an answer cannot be parsed.

    Return the new lines, and a dictionary from the row of each changed line to the original text of
    its answers. The digits x and z represent unknown bits. Only the answers, at the end of a line,
    may have unknown digits.
    """
    cleaned, unknown = list(lines), dict[int, str]()
    if not any(digit in line for line in lines for digit in b"xXzZ"):
        return cleaned, unknown
    total, one_by_one = (sum(field.count for field in some) for some in (fields, answers))
    as_buses = sum(1 if field.kind == "element" else field.count for field in answers)
    for row, line in enumerate(lines):
        tokens = line.split()
        at = len(tokens) - (one_by_one if len(tokens) == total else as_buses)
        bad = [i for i, token in enumerate(tokens) if i >= at and _UNKNOWN.fullmatch(token) and not _is_number(token)]
        if bad:
            unknown[row] = b" ".join(tokens[at:]).decode()
            for i in bad:
                tokens[i] = b"0"
            cleaned[row] = b" ".join(tokens) + b"\n"
    return cleaned, unknown


def _is_number(token: bytes) -> bool:
    return re.fullmatch(rb"(0[xX])?[0-9a-fA-F]+", token) is not None


def _one_by_one(tokens: list[bytes], fields: Sequence[Field], buses: Sequence[Field], line: str) -> list[bytes]:
    """Return the tokens of a line with each field of `buses` split into codes.

    A bus is one number that contains all codes of a field, with the first code in the lowest bits.
    """
    found: list[bytes] = []
    for field in fields:
        if field in buses:
            bits = field.count * field.bits
            number = _number(tokens.pop(0), field, bits, line, bits)
            mask = (1 << field.bits) - 1
            found += [b"%X" % (number >> i * field.bits & mask) for i in range(field.count)]
        else:
            found += tokens[: field.count]
            del tokens[: field.count]
    return found


def _parse_fixed(fields: Sequence[Field], text: Array) -> Columns | None:
    """Return the columns of lines in the layout of `format_lines`, or None for other layouts."""
    result = {}
    at = 0
    for field in fields:
        span = field.digits + 1
        digits = text[:, at : at + field.count * span].reshape(len(text), field.count, span)
        nibbles = _VALUES[digits[:, :, :-1]]
        if (nibbles == 255).any():
            return None
        values = np.zeros(nibbles.shape[:2], np.uint64)
        for digit in range(field.digits):
            values = (values << np.uint64(4)) | nibbles[:, :, digit]
        if (values >> np.uint64(field.bits) if field.bits < 64 else np.zeros(1)).any():
            return None
        result[field.name] = values.astype(code_dtype(field.bits))
        at += field.count * span
    return result


def _number(token: bytes, field: Field, bits: int, line: str, said: int | None = None) -> int:
    try:
        value = int(token, 16) if _is_number(token) else -1
    except ValueError:
        value = -1
    if not 0 <= value < 1 << bits:
        wanted, shown = said or f"at most {field.bits}", token.decode(errors="replace")
        raise ValueError(f"{line} must give {field.name!r} as hexadecimal digits of {wanted} bits, not {shown!r}.")
    return value


class Incomplete(ValueError):
    """Raised if the answers, or the cases, end too early."""


class Arriving:
    """The lines of a pipe; `is_waiting` tells whether the next line has not arrived yet."""

    def __init__(self, stream: BinaryIO) -> None:
        self._file = stream.fileno()
        self._lines: deque[bytes] = deque()

    @property
    def is_waiting(self) -> bool:
        """True if the next line has not arrived yet, so that reading it may take a long time."""
        return not self._lines

    def __iter__(self) -> Iterator[bytes]:
        rest = b""
        while read := os.read(self._file, 1 << 16):
            *whole, rest = (rest + read).split(b"\n")
            self._lines.extend(line + b"\n" for line in whole)
            while self._lines:
                yield self._lines.popleft()
        if rest:
            yield rest


class Reader:
    """Reads the header and the cases of a stream, and ignores comments (other ``#`` lines).

    Error messages name the file of the stream, if it has one.
    """

    def __init__(self, stream: BinaryIO | Arriving) -> None:
        name = getattr(stream, "name", "")  # the name of a pipe is a number; standard input has the name "<stdin>"
        self._stream = iter(stream)
        self._name = "" if isinstance(name, int) or str(name).startswith("<") else str(name)
        self._pipe = stream if isinstance(stream, Arriving) else None
        self.header: dict[str, str] = {}
        self.line = 0
        self._next: bytes | None = None
        for line in self._stream:
            self.line += 1
            if not line.startswith(b"#"):
                if line.strip():
                    self._next = line
                    break
                continue
            key, value = _stated(line)
            if key == _NAME and value != VERSION:
                raise ValueError(f"The vectors must have the format version {VERSION}, not {value!r}.")
            if key == "cases" and not (value.isdecimal() or value == BELOW):
                raise ValueError(f"The header of the vectors must have a number in its line '# cases:', not {value!r}.")
            if key == "cases" and self.header.get(key) == BELOW:
                self.header[key] = value
            if key in HEADER and self.header.get(key, value) != value:
                both = f"not {self.header[key]!r} and {value!r}"
                raise ValueError(f"The header of the vectors must have one line '# {key}: ...', {both}.")
            if key not in ("", _NAME):
                self.header[key] = value

    @property
    def cases(self) -> int | None:
        """The number of cases from the header or the last line, or None if no line states it."""
        stated = self.header.get("cases")
        if stated == BELOW:
            raise Incomplete(
                "The last line must be '# cases: ...', because the header says 'stated below'; this line is missing."
            )
        return None if stated is None else int(stated)

    def named(self, line: int) -> str:
        """Return the name of a line for error messages."""
        return f"Line {line} of {self._name}" if self._name else f"Line {line}"

    def names(self, first: int, count: int) -> list[str]:
        """Return the names of `count` consecutive lines, for error messages."""
        return [self.named(first + row) for row in range(count)]

    def holds_answers(self, task: Task) -> bool:
        """Return True if the lines hold answers.

        If the header does not say so, the number of values in the first case decides.
        """
        if "answers" in self.header or self._next is None:
            return self.header.get("answers", "yes") == "yes"
        inputs = task.inputs
        as_buses = sum(1 if field.kind == "element" else field.count for field in inputs)
        return len(self._next.split()) not in (sum(field.count for field in inputs), as_buses)

    def chunks(self, size: int = CHUNK) -> Iterator[tuple[int, list[bytes]]]:
        """Yield batches of lines, each with the number of its first line.

        The batches do not contain comments and empty lines. A batch from a pipe ends early if the
        next line has not arrived yet.
        """
        pending: list[bytes] = []
        first, counted = self.line, False
        if self._next is not None:
            pending.append(self._next)
            if self._pipe and self._pipe.is_waiting:
                yield first, pending
                pending = []
        for line in self._stream:
            self.line += 1
            if line.startswith(b"#") or not line.strip():
                key, value = _stated(line)
                if key == "cases" and value.isdecimal() and self.header.get(key) == BELOW:
                    self.header[key], counted = value, True
                elif key in (_NAME, *HEADER):
                    shown = line.decode(errors="replace").strip()
                    raise ValueError(
                        f"{self.named(self.line)} must be a case or a comment, not the header line {shown!r}; the "
                        "header must precede all cases."
                    )
                if pending:  # start a new batch, since a batch must have consecutive line numbers
                    yield first, pending
                    pending = []
                continue
            if counted:
                raise ValueError(
                    f"{self.named(self.line)} must be a comment, since it follows the line '# cases: ...'."
                )
            if not pending:
                first = self.line
            pending.append(line)
            if len(pending) == size or (self._pipe and self._pipe.is_waiting):
                yield first, pending
                pending = []
        if pending:
            yield first, pending


def _stated(line: bytes) -> tuple[str, str]:
    """Return the key and the value of a header line, or two empty strings for a comment."""
    text = line[1:].decode(errors="replace").strip()
    if text.startswith(_NAME):
        return _NAME, text.removeprefix(_NAME).strip()
    key, equals, value = text.partition("=")
    if equals and key.strip() in HEADER:
        key, value = key.strip(), value.strip()
        raise ValueError(f"The header of the vectors must have a line '# {key}: {value}', not '# {text}'.")
    key, colon, value = text.partition(":")
    return (key.strip(), value.strip()) if colon else ("", "")


#: The header keys that state the task and its cases. For these keys, the header of the answers must
#: not contradict the header of the vectors.
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
    """Write the header and the cases, and return the number of cases.

    With `answers`, each line ends with the right answer.
    """
    total = number_of_cases(task, level=level, seed=seed, count=count)
    out.write(header_lines(task, level=level, seed=seed, cases=total, answers="yes" if answers else "no"))
    for inputs in cases(task, level=level, seed=seed, count=count):
        columns = {**inputs, **(expected(task, inputs) if answers else {})}
        fields = (*task.inputs, *(task.outputs if answers else ()))
        out.write(format_lines(fields, columns))
        advance(number_of(inputs))
    return total


def answer_vectors(cases: BinaryIO | Arriving, out: BinaryIO, *, advance: Advance = lambda done: None) -> int:
    """Write the cases of a stream with their right answers, and return the number of cases.

    The stream holds a header and the inputs of each case, in the format of test vectors. If its
    header states the number of cases, the header of the output states the same number. Otherwise
    the last line of the output states the number of cases. The function flushes each batch of
    answers, because a simulation may be waiting for these answers.
    """
    reader = Reader(cases)
    task, total = task_of(reader.header), 0
    stated = reader.header.get("cases", BELOW)
    out.write(header_lines(task, cases=stated, answers="yes"))
    out.flush()
    for first, lines in reader.chunks():
        names = reader.names(first, len(lines))
        inputs = _checked(parse_lines(task.inputs, lines, names), names)
        out.write(format_lines((*task.inputs, *task.outputs), {**inputs, **expected(task, inputs)}))
        out.flush()
        advance(len(lines))
        total += len(lines)
    if total == 0:
        raise Incomplete("There must be at least one case below the header; there is none.")
    count = reader.cases
    if count not in (None, total):
        raise Incomplete(f"There must be {count} cases, as the line '# cases: {count}' says, not {total}.")
    if stated == BELOW:
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

    Without `vectors`, the stream must begin with the header of the vectors, and each further line
    holds the fields of a case and its answer. With `vectors`, each line of the stream holds only an
    answer. The function always computes the right answers from the inputs, and ignores answers in
    the vectors. `accept` has the same meaning as in `check`.
    """
    reader = Reader(answers)
    given = None if vectors is None else Reader(vectors)
    header = (given or reader).header
    for key in header.keys() & reader.header.keys() & set(ASKED):
        if header[key] != reader.header[key]:
            raise ValueError(
                f"The header of the answers must state the same task as the vectors: {key} {header[key]}, not "
                f"{reader.header[key]}."
            )
    if reader.line == 0:
        raise Incomplete("There must be at least one answer; the stream of answers is empty.")
    if given is None and task is None and not header:
        raise ValueError(
            "The answers must repeat the header of the vectors and every case. If each line holds only an answer, "
            "give the vectors as well (--vectors)."
        )
    task = task or task_of(header)
    collector = Collector(task, Profile.of(accept), keep)
    stated = _stated_cases(task, header) if given is None else None
    pairs = _alone(task, reader, given) if given else _together(task, reader)
    for first, inputs, answered, unknown in pairs:
        _judge_known(collector, first, inputs, answered, unknown)
        advance(number_of(inputs))
        if stated:
            stated.compare(inputs, first)
    counts = [one.cases for one in (given, reader) if one]
    for count in counts:
        if count not in (None, collector.cases):
            raise Incomplete(
                f"There must be answers for {count} cases, as the line '# cases: {count}' says, not for "
                f"{collector.cases}."
            )
    if collector.cases == 0:
        raise Incomplete("There must be at least one answer; there is none.")
    if stated:
        stated.require_all()
    report = collector.report()
    if given is None:
        report.unchecked = _unchecked(header, counts[0], stated)
    return report


def _unchecked(header: Mapping[str, str], count: int | None, stated: _Stated | None) -> str:
    """Return a warning if missing or changed cases would go unnoticed, else an empty string."""
    if count is None:
        return "No line '# cases: ...' states the number of cases, so missing answers would go unnoticed."
    if stated is None and "level" in header:
        made = header.get("mxnum", "(unknown)")
        return (
            f"The cases that mxnum {made} wrote cannot be generated again, "
            "so missing or changed cases go unnoticed (see --vectors)."
        )
    return ""


def _judge_known(collector: Collector, first: int, inputs: Columns, answered: Columns, unknown: dict[int, str]) -> None:
    """Judge a batch whose first case is on line `first`; answers with digits x or z are wrong."""
    count = number_of(inputs)
    known = np.array([row for row in range(count) if row not in unknown], np.int64)
    if known.size:
        some, theirs = (select(columns, known) for columns in (inputs, answered))
        collector.add(some, theirs, first, lambda number: f"line {first + known[number - first]}")
    if unknown:
        collector.add_unknown(inputs, unknown, first)


class _Stated:
    """Checks that the answers contain all cases that a header describes, in any order."""

    def __init__(self, batches: Iterator[Columns]) -> None:
        self._batches = (_hashes(batch) for batch in batches)
        self._ahead = np.empty(0, np.uint64)
        #: The sum of the hashes of the lines read, minus the sum of the hashes of the cases that
        #: the header describes.
        self._excess = 0
        #: The number of the first line that does not hold the case at its position in the header's
        #: list of cases.
        self._line: int | None = None

    def compare(self, inputs: Columns, first: int) -> None:
        """Compare a batch of lines with the next cases that the header describes.

        `first` is the line number of the first line of the batch.
        """
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
        """Raise ValueError if the compared lines are not the cases that the header describes."""
        rest = sum(sum(batch.tolist()) for batch in (self._ahead, *self._batches))
        if self._excess != rest:
            raise ValueError(
                f"The answers must repeat the cases that the header describes, but line {self._line} holds another "
                "case. With --vectors, each line may hold only the answer."
            )


def _hashes(columns: Columns) -> Array:
    """Return a hash of each row."""
    result = np.zeros(number_of(columns), np.uint64)
    for column in columns.values():
        for numbers in column.T.astype(np.uint64):
            result = (result ^ numbers) * np.uint64(0x9E3779B97F4A7C15)
            result ^= result >> np.uint64(29)
    return result


def _stated_cases(task: Task, header: Mapping[str, str]) -> _Stated | None:
    """Return the cases that a header describes, or None if the cases cannot be generated again.

    Generating the cases needs the level, the seed and the number of cases in the header, and the
    version of mxnum that wrote the header.
    """
    numbers = [header.get(key, "") for key in ("level", "seed", "cases")]
    if header.get("mxnum") != mxnum.__version__ or not all(number.isdecimal() for number in numbers):
        return None
    level, seed, count = (int(number) for number in numbers)
    return _Stated(cases(task, level=level, seed=seed, count=count if level == 2 else None))


#: A batch of cases: the number of its first line, the inputs, the answers, and a dictionary. The
#: dictionary maps a row whose answers have unknown bits (the digits x or z) to the text of these
#: answers.
Batch = tuple[int, Columns, Columns, dict[int, str]]


def _together(task: Task, reader: Reader) -> Iterator[Batch]:
    fields = (*task.inputs, *task.outputs)
    for first, written in reader.chunks():
        lines, unknown = without_unknown(fields, written, task.outputs)
        names = reader.names(first, len(lines))
        columns = parse_lines(fields, lines, names, task.outputs)
        yield first, _checked(_named(columns, task.inputs), names), _named(columns, task.outputs), unknown


def _alone(task: Task, reader: Reader, given: Reader) -> Iterator[Batch]:
    fields = (*task.inputs, *(task.outputs if given.holds_answers(task) else ()))
    cases_in = ((line, first + row) for first, lines in given.chunks() for row, line in enumerate(lines))
    answered = 0
    for first, lines in reader.chunks():
        matching = list(islice(cases_in, len(lines)))
        if len(matching) < len(lines):
            raise ValueError(
                f"There must be one answer for each case; answers from line {first + len(matching)} on have no case."
            )
        if len(lines[0].split()) == sum(field.count for field in (*task.inputs, *task.outputs)):
            raise ValueError("With --vectors, each line of the answers must hold the answer alone, without the case.")
        of_cases = [given.named(line) for _, line in matching]
        inputs = _checked(parse_lines(fields, [line for line, _ in matching], of_cases), of_cases)
        lines, unknown = without_unknown(task.outputs, lines, task.outputs)
        names = reader.names(first, len(lines))
        yield first, inputs, parse_lines(task.outputs, lines, names, task.outputs), unknown
        answered += len(lines)
    if left := sum(1 for _ in cases_in):
        raise Incomplete(f"There must be answers for the {answered + left} cases of the vectors, not for {answered}.")


def _checked(inputs: Columns, names: Sequence[str]) -> Columns:
    """Return the inputs; raise ValueError if a tensor scale is unusable.

    If the inputs are numbers, tensor scales must be positive and finite. If the inputs are codes,
    tensor scales must not have a minus sign. `names` has the names of the lines for error messages.
    """
    tensor = tensor_scales(inputs)
    if tensor is not None:
        good = (tensor > 0) & np.isfinite(tensor) if "x" in inputs else ~np.signbit(tensor)
        wanted = "positive and finite" if "x" in inputs else "without a sign"
        for row in np.flatnonzero(~good).tolist():
            raise ValueError(f"{names[row]} must have a tensor scale that is {wanted}, not {tensor[row, 0]}.")
    return inputs


def _named(columns: Columns, fields: tuple[Field, ...]) -> Columns:
    return {field.name: columns[field.name] for field in fields}
