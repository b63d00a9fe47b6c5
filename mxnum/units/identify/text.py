"""Write cases as text, and read cases with their answers from text.

The text begins with a header of ``# key: value`` lines. Each further line is one case, written as
hexadecimal words: the K codes of a, the K codes of b, and the bits of the addend c. If operands
have scales, the codes of an operand's scales follow the codes of its elements. If the text has
answers, each line ends with the bits of the answer d.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from mxnum import errors
from mxnum.units.identify.family import Array, Cases, Problem

HEAD = "# mxnum-unit 1"


def write_cases(problem: Problem, cases: Cases, answers: Array | None = None) -> str:
    """Return the text of cases, and of their answers if `answers` is given."""
    k, blocks, d = problem.k, problem.blocks, " d" if answers is not None else ""
    scales = [f"# scale: {problem.scale}", f"# block: {problem.block}"] if blocks else []
    operands = (f"{name}[{k}]" + (f" scales_{name}[{blocks}]" if blocks else "") for name in "ab")
    lines = [
        HEAD, f"# a: {problem.a}", f"# b: {problem.b}", f"# k: {k}", f"# accumulator: {problem.accumulator}", *scales,
        f"# fields: {' '.join(operands)} c{d}", f"# cases: {len(cases.c)}",
    ]  # fmt: skip
    columns = [cases.a, cases.b, cases.c[:, None], *([] if answers is None else [answers[:, None]])]
    digits = [-(-bits // 4) for bits in widths(problem)]
    for row in np.concatenate(columns, axis=1).tolist():
        lines.append(" ".join(f"{code:0{n}X}" for n, code in zip(digits, row, strict=False)))
    return "\n".join(lines) + "\n"


def widths(problem: Problem) -> list[int]:
    """Return the width in bits of each word of a line, including the answer."""
    a, b = ([fmt.bits] * problem.k + [8] * problem.blocks for fmt in problem.formats)
    return [*a, *b, problem.result.bits, problem.result.bits]


def read_answers(lines: Iterable[str]) -> tuple[Problem, Cases, Array]:
    """Read lines of text; return the `Problem` in the header, the cases and their answers.

    The function ignores empty lines. If a line is neither part of the header nor a case with its
    answer, or if there are fewer cases than the header says, the function raises ValueError.
    """
    header: dict[str, str] = {}
    promised = 0
    rows: list[list[int]] = []
    problem: Problem | None = None
    for number, line in enumerate(lines, 1):
        text = line.strip()
        if text.startswith("#"):
            key, _, value = text[1:].partition(":")
            header[key.strip()] = value.strip()
            promised += int(value) if key.strip() == "cases" and value.strip().isdecimal() else 0
        elif text:
            problem = problem or _problem(header)
            rows.append(_row(text, number, problem))
    if problem is None:
        raise ValueError("The text must hold at least one case with its answer.")
    if len(rows) < promised:
        raise ValueError(f"The text must hold the {promised} cases that '# cases:' announces, not {len(rows)}.")
    table, n = np.array(rows, np.int64), problem.k + problem.blocks
    return problem, Cases(table[:, :n], table[:, n : 2 * n], table[:, 2 * n]), table[:, 2 * n + 1]


def _problem(header: dict[str, str]) -> Problem:
    missing = [key for key in (HEAD[2:], "a", "b", "k", "accumulator") if key not in header]
    if missing:
        raise ValueError(f"The header must have a line '# {missing[0]}', as 'mxnum unit probe' writes it.")
    block = header.get("block", "0")
    for name, value in (("k", header["k"]), ("block", block)):
        errors.require(value.isdecimal(), name, "a positive integer", value)
    scale = header.get("scale", "")
    return Problem(header["a"], header["b"], int(header["k"]), header["accumulator"], scale, int(block))


def _row(text: str, number: int, problem: Problem) -> list[int]:
    """Return the numbers of a line; raise ValueError if a word is not a code of the right size."""
    words, bits = text.split(), widths(problem)
    if len(words) != len(bits):
        raise ValueError(f"Line {number} must have {len(bits)} words (a, b, c and the answer d), not {len(words)}.")
    try:
        row = [int(word, 16) for word in words]
    except ValueError:
        raise ValueError(f"Line {number} must have only hexadecimal words.") from None
    for value, width in zip(row, bits, strict=True):
        if not 0 <= value < 1 << width:
            raise ValueError(f"Line {number} must have a code of at most {width} bits, not {value:#x}.")
    return row
