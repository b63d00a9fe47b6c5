"""Cases of a unit as text: a header of ``# key: value`` lines, then one case a line in hexadecimal.

A line holds the K codes of a, the K codes of b, and the bits of c; a line with an answer ends with
the bits of d.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from mxnum import errors
from mxnum.units.identify.family import Array, Cases, Problem

HEAD = "# mxnum-unit 1"


def write_cases(problem: Problem, cases: Cases, answers: Array | None = None) -> str:
    """Return cases, with their answers if given, as text."""
    lines = [
        HEAD, f"# a: {problem.a}", f"# b: {problem.b}", f"# k: {problem.k}", f"# accumulator: {problem.accumulator}",
        f"# fields: a[{problem.k}] b[{problem.k}] c{' d' if answers is not None else ''}",
        f"# cases: {len(cases.c)}",
    ]  # fmt: skip
    digits = [-(-fmt.bits // 4) for fmt in (*problem.formats, problem.result)]
    for i in range(len(cases.c)):
        words = [f"{int(code):0{n}X}" for n, codes in zip(digits, cases[:2], strict=False) for code in codes[i]]
        words.append(f"{int(cases.c[i]):0{digits[2]}X}")
        if answers is not None:
            words.append(f"{int(answers[i]):0{digits[2]}X}")
        lines.append(" ".join(words))
    return "\n".join(lines) + "\n"


def read_answers(lines: Iterable[str]) -> tuple[Problem, Cases, Array]:
    """Return what text holds; raise ValueError for lines that are not cases with answers."""
    header: dict[str, str] = {}
    rows: list[list[int]] = []
    problem: Problem | None = None
    for number, line in enumerate(lines, 1):
        text = line.strip()
        if text.startswith("#"):
            key, _, value = text[1:].partition(":")
            header[key.strip()] = value.strip()
        elif text:
            problem = problem or _problem(header)
            rows.append(_row(text, number, problem))
    if problem is None:
        raise ValueError("The text must hold at least one case with its answer.")
    table, k = np.array(rows, np.int64), problem.k
    return problem, Cases(table[:, :k], table[:, k : 2 * k], table[:, 2 * k]), table[:, 2 * k + 1]


def _problem(header: dict[str, str]) -> Problem:
    missing = [key for key in (HEAD[2:], "a", "b", "k", "accumulator") if key not in header]
    if missing:
        raise ValueError(f"The header must have a line '# {missing[0]}', as 'mxnum unit probe' writes it.")
    errors.require(header["k"].isdecimal(), "k", "a positive integer", header["k"])
    return Problem(header["a"], header["b"], int(header["k"]), header["accumulator"])


def _row(text: str, number: int, problem: Problem) -> list[int]:
    """Return the numbers of a line; raise ValueError if it has other words or too large codes."""
    words, k = text.split(), problem.k
    if len(words) != 2 * k + 2:
        raise ValueError(f"Line {number} must have {2 * k + 2} words, a, b, c and the answer d, not {len(words)}.")
    try:
        row = [int(word, 16) for word in words]
    except ValueError:
        raise ValueError(f"Line {number} must have hexadecimal words alone.") from None
    x, y = problem.formats
    widths = [x.bits] * k + [y.bits] * k + [problem.result.bits] * 2
    for value, bits in zip(row, widths, strict=True):
        if not 0 <= value < 1 << bits:
            raise ValueError(f"Line {number} must have codes of {bits} bits there, not {value:#x}.")
    return row
