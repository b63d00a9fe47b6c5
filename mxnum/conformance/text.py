"""Vectors as plain text: a header of ``# key: value`` lines, then one case a line, its fields in hexadecimal.

Every field has a fixed number of digits, so all lines of one task have the same length. This makes
millions of lines fast to parse. The reader also accepts lower case, ``0x``, several spaces and
CRLF.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import BinaryIO

import numpy as np

from mxnum.conformance.answers import fitted
from mxnum.conformance.task import HEADER, Columns, Field, Task
from mxnum.memory.dtypes import Array, code_dtype

VERSION = "1"
_NAME = "mxnum-vectors"
_DIGITS = np.frombuffer(b"0123456789ABCDEF", np.uint8)
#: A number with unknown bits, as logic simulators print it.
_UNKNOWN = re.compile(rb"(0[xX])?[0-9a-fA-F]*[xXzZ][0-9a-fA-FxXzZ]*")
_VALUES = np.full(256, 255, np.uint8)
_VALUES[list(b"0123456789")] = range(10)
_VALUES[list(b"ABCDEF")] = range(10, 16)
_VALUES[list(b"abcdef")] = range(10, 16)
#: Number of lines parsed at a time.
CHUNK = 8192
#: The value of ``# cases:`` in a header if the number of cases follows in the file's last line, for
#: writers that do not know the number in advance.
BELOW = "stated below"


def header_lines(task: Task, **more: object) -> bytes:
    """Return the header of a file, which states the task and how the cases were made."""
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
    fields: Sequence[Field], lines: Sequence[bytes], first_line: int, answers: Sequence[Field] = ()
) -> Columns:
    """Return the columns that the lines hold. `first_line` is the number of the first, for error messages.

    Codes in the fields `answers` may be too large: their columns are then int64.
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
    buses = [field for field in fields if field.kind == "element" and field.count > 1]
    for row, line in enumerate(lines):
        words = line.split()
        if buses and len(words) == total - sum(field.count - 1 for field in buses):
            words = _one_by_one(words, fields, buses, first_line + row)
        if len(words) != total:
            wanted = ", ".join(f"{field.name}[{field.count}]" for field in fields)
            raise ValueError(f"Line {first_line + row} must hold {total} numbers ({wanted}), not {len(words)}.")
        at = 0
        for field in fields:
            for i in range(field.count):
                bits = 63 if field.name in loose else field.bits
                result[field.name][row, i] = _number(words[at + i], field, bits, first_line + row)
            at += field.count
    return {f.name: fitted(result[f.name], f.bits) if f.name in loose else result[f.name] for f in fields}


def without_unknown(
    fields: Sequence[Field], lines: Sequence[bytes], answers: Sequence[Field]
) -> tuple[list[bytes], dict[int, str]]:
    """Return the lines with zeros for unknown digits (x or z) of answers, and by row the answers with such digits.

    The answers come last among the fields of a line.
    """
    cleaned, unknown = list(lines), dict[int, str]()
    if not any(digit in line for line in lines for digit in b"xXzZ"):
        return cleaned, unknown
    total, one_by_one = (sum(field.count for field in some) for some in (fields, answers))
    as_buses = sum(1 if field.kind == "element" else field.count for field in answers)
    for row, line in enumerate(lines):
        words = line.split()
        at = len(words) - (one_by_one if len(words) == total else as_buses)
        bad = [i for i, word in enumerate(words) if i >= at and _UNKNOWN.fullmatch(word) and not _is_number(word)]
        if bad:
            unknown[row] = b" ".join(words[at:]).decode()
            for i in bad:
                words[i] = b"0"
            cleaned[row] = b" ".join(words) + b"\n"
    return cleaned, unknown


def _is_number(word: bytes) -> bool:
    return re.fullmatch(rb"(0[xX])?[0-9a-fA-F]+", word) is not None


def _one_by_one(words: list[bytes], fields: Sequence[Field], buses: Sequence[Field], line: int) -> list[bytes]:
    """Return the words of a line with each field of `buses`, written as one number, split into its codes.

    The codes are split from the lowest bit on.
    """
    found: list[bytes] = []
    for field in fields:
        if field in buses:
            bits = field.count * field.bits
            number = _number(words.pop(0), field, bits, line, bits)
            mask = (1 << field.bits) - 1
            found += [b"%X" % (number >> i * field.bits & mask) for i in range(field.count)]
        else:
            found += words[: field.count]
            del words[: field.count]
    return found


def _parse_fixed(fields: Sequence[Field], text: Array) -> Columns | None:
    """Return the columns of lines written exactly as `format_lines` writes them; None if they are not."""
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


def _number(word: bytes, field: Field, bits: int, line: int, said: int | None = None) -> int:
    try:
        value = int(word, 16) if _is_number(word) else -1
    except ValueError:
        value = -1
    if not 0 <= value < 1 << bits:
        wanted, shown = said or f"at most {field.bits}", word.decode(errors="replace")
        raise ValueError(f"Line {line} must give {field.name!r} as hexadecimal digits of {wanted} bits, not {shown!r}.")
    return value


class Incomplete(ValueError):
    """The answers, or the cases, end too early."""


class Reader:
    """Reads the header and the cases of a stream. Other lines that begin with ``#`` are comments."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self.header: dict[str, str] = {}
        self.line = 0
        self._next: bytes | None = None
        for line in stream:
            self.line += 1
            if not line.startswith(b"#"):
                if line.strip():
                    self._next = line
                    break
                continue
            key, value = _stated(line)
            if key == _NAME and value != VERSION:
                raise ValueError(f"The vectors must be of version {VERSION}, not {value!r}.")
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
        """The number of cases that the stream states, known once it is read; None if it states none."""
        stated = self.header.get("cases")
        if stated == BELOW:
            raise Incomplete("The last line must be '# cases: ...', as the header says; there is none.")
        return None if stated is None else int(stated)

    def chunks(self, size: int = CHUNK) -> Iterator[tuple[int, list[bytes]]]:
        """Yield batches of lines, each with the number of its first line. Comments and empty lines are left out."""
        pending: list[bytes] = []
        first, counted = self.line, False
        if self._next is not None:
            pending.append(self._next)
        for line in self._stream:
            self.line += 1
            if line.startswith(b"#") or not line.strip():
                key, value = _stated(line)
                if key == "cases" and value.isdecimal() and self.header.get(key) == BELOW:
                    self.header[key], counted = value, True
                elif key in (_NAME, *HEADER):
                    shown = line.decode(errors="replace").strip()
                    raise ValueError(
                        f"Line {self.line} must be a case or a comment, not {shown!r}: one header comes first."
                    )
                if pending:  # a new batch, so that the lines of each batch have consecutive numbers
                    yield first, pending
                    pending = []
                continue
            if counted:
                raise ValueError(f"Line {self.line} must be a comment, since it follows the line '# cases: ...'.")
            if not pending:
                first = self.line
            pending.append(line)
            if len(pending) == size:
                yield first, pending
                pending = []
        if pending:
            yield first, pending


def _stated(line: bytes) -> tuple[str, str]:
    """Return the key and the value that a header line states; two empty strings for a comment."""
    text = line[1:].decode(errors="replace").strip()
    if text.startswith(_NAME):
        return _NAME, text.removeprefix(_NAME).strip()
    key, equals, value = text.partition("=")
    if equals and key.strip() in HEADER:
        key, value = key.strip(), value.strip()
        raise ValueError(f"The header of the vectors must have a line '# {key}: {value}', not '# {text}'.")
    key, colon, value = text.partition(":")
    return (key.strip(), value.strip()) if colon else ("", "")
