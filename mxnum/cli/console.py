"""Print the output of commands: tables, JSON for scripts, progress on standard error."""

from __future__ import annotations

import json
import shutil
import sys
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

from mxnum.output.text_table import text_table


def print_json(data: Any) -> None:
    """Write one JSON document to standard output.

    NaN and infinities become the strings "nan", "inf" and "-inf".
    """
    print(json.dumps(_plain(data), indent=2))


def _plain(value: Any) -> Any:
    """Return the value in types that JSON has: numbers, strings, lists and dictionaries."""
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if hasattr(value, "tolist"):  # numpy
        return _plain(value.tolist())
    if isinstance(value, float) and value - value != 0:
        return str(value)
    return value


def print_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Write a table with a title above it.

    On a terminal the table is at most as wide as the terminal. In a pipe, the width of the table is
    not limited.
    """
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    if title:
        print(textwrap.fill(title, width) if width else title, end="\n\n")
    print(text_table(columns, rows, width), end="\n\n")


def bar(share: float, width: int = 40) -> str:
    """Return a horizontal bar for a share from 0 to 1. Every positive share gets a visible bar."""
    eighths: int = max(round(share * width * 8), 1 if share > 0 else 0)
    return "█" * (eighths // 8) + " ▏▎▍▌▋▊▉"[eighths % 8].strip()


class Advance(Protocol):
    """A function that advances a progress bar by `done` units, and sets its total if given."""

    def __call__(self, done: int, *, total: int | None = None) -> object: ...


@contextmanager
def progress(description: str, total: int | None) -> Iterator[Advance]:
    """Show a progress bar on standard error, if standard error is a terminal."""
    if not sys.stderr.isatty():
        yield lambda done, *, total=None: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    with Progress(*columns, console=Console(stderr=True), transient=True) as shown:
        task = shown.add_task(description, total=total)

        def advance(done: int, *, total: int | None = None) -> None:
            shown.update(task, advance=done, **({} if total is None else {"total": total}))

        yield advance
