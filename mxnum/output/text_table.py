"""Format tables as plain text, which fits the width of a terminal, or as Markdown."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence
from typing import Any

Cells = list[list[str]]


def text_table(names: Sequence[str], rows: Iterable[Sequence[Any]], width: int | None = None, keep: int = 1) -> str:
    """Return a table as text, with column names above the rows and numbers aligned to the right.

    If the table is wider than `width`, column names are broken into several lines. If the table is
    still too wide, the space between columns shrinks. Columns that still do not fit follow in a
    second table, which repeats the first `keep` columns.

    >>> print(text_table(["format", "bits per element"], [("mxfp4_e2m1", 4.25), ("nvfp4", 4.5)], width=24))
                   bits
                    per
    format      element
    ----------  -------
    mxfp4_e2m1     4.25
    nvfp4           4.5
    """
    columns = [[str(cell) for cell in column] for column in zip(*rows, strict=True)] or [[] for _ in names]
    for is_broken, gap in ((False, 2), (True, 2), (True, 1)):
        lines = _lines(names, columns, is_broken, gap)
        if width is None or _width(lines) <= width:
            return "\n".join(lines)
    assert width is not None
    shown = len(names) - 1
    while shown > keep + 1 and _width(_lines(names[:shown], columns[:shown], True, 1)) > width:
        shown -= 1
    if shown <= keep:  # a second table would be just as wide
        return "\n".join(lines)
    second = [*range(keep), *range(shown, len(names))]
    return "\n\n".join(
        text_table([names[i] for i in part], zip(*(columns[i] for i in part), strict=True), width, keep)
        for part in (range(shown), second)
    )


def markdown_table(names: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table with column names above the rows.

    >>> print(markdown_table(["format", "bits"], [("mxfp4_e2m1", "4.25")]))
    | format | bits |
    |---|---|
    | mxfp4_e2m1 | 4.25 |
    """
    names_first, *lines = (f"| {' | '.join(cells)} |" for cells in (names, *rows))
    return "\n".join([names_first, "|" + "---|" * len(names), *lines])


def _lines(names: Sequence[str], columns: Cells, is_broken: bool, gap: int) -> list[str]:
    headings = []
    for name, column in zip(names, columns, strict=True):
        narrowest = max(1, *map(len, [*name.split(), *column]))
        headings.append(textwrap.wrap(name, narrowest) if is_broken else [name])
    height = max(map(len, headings), default=0)
    laid_out = []
    for heading, column in zip(headings, columns, strict=True):
        width = max(map(len, [*heading, *column]), default=0)
        is_numeric = any(column) and all(cell[:1] in "+-0123456789." for cell in column)
        set_aside = str.rjust if is_numeric else str.ljust
        lines = [*[""] * (height - len(heading)), *heading, "-" * width, *column]
        laid_out.append([set_aside(line, width) for line in lines])
    return [(" " * gap).join(line).rstrip() for line in zip(*laid_out, strict=True)]


def _width(lines: list[str]) -> int:
    return max(map(len, lines), default=0)
