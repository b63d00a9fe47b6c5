"""Show the progress of training and checks, and end long commands on signals."""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from mxnum.cli.main import INTERRUPTED

#: The seconds between two lines of progress if standard error is not a terminal.
EVERY = 15.0
#: The share of the work after which the remaining time is shown. Before that, the time spent on
#: compilation would distort the estimate.
TELLING = 0.05


class Lines:
    """Writes a line of progress at most once in `EVERY` seconds, for logs."""

    def __init__(self) -> None:
        self._begun: dict[str, float] = {}
        self._shown: dict[str, float] = {}

    def say(self, text: str) -> None:
        """Write a message."""
        print(text, file=sys.stderr, flush=True)

    def at(self, part: str, done: float, total: float, what: str) -> None:
        """Show the progress of one part of the work, at most once in `EVERY` seconds."""
        from mxnum.lab.studies.sweep import duration

        now = time.monotonic()
        begun = self._begun.setdefault(part, now)
        if now - self._shown.get(part, begun) < EVERY:
            return
        self._shown[part] = now
        is_known = total * TELLING <= done and 0 < done < total
        left = f", about {duration((now - begun) * (total - done) / done)} left" if is_known else ""
        share = f" {done / total:.0%}{left}:" if total else ""
        self.say(f"{part}{share} {what}")


class Bars:
    """Shows, on a terminal, a progress bar for each part of the work."""

    def __init__(self, shown: Any) -> None:
        self._shown, self._bars = shown, {}  # type: ignore[var-annotated]

    def say(self, text: str) -> None:
        """Write a message above the progress bars."""
        self._shown.console.print(text, markup=False, highlight=False)

    def at(self, part: str, done: float, total: float, what: str) -> None:
        """Show the progress of one part of the work."""
        if part not in self._bars:
            self._bars[part] = self._shown.add_task(part, total=None, what="")
        self._shown.update(self._bars[part], completed=done, total=total or None, what=what[:60])


@contextmanager
def watching() -> Iterator[Lines | Bars]:
    """Show progress on standard error: bars on a terminal, otherwise lines."""
    if not sys.stderr.isatty():
        yield Lines()
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        Progress,
        TaskProgressColumn,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = (
        TextColumn("{task.description}"), BarColumn(bar_width=24), TaskProgressColumn(), TimeElapsedColumn(),
        TextColumn("left:"), TimeRemainingColumn(), TextColumn("{task.fields[what]}"),
    )  # fmt: skip
    with Progress(*columns, console=Console(stderr=True), transient=True) as shown:
        yield Bars(shown)


@contextmanager
def ended_by_signals() -> Iterator[None]:
    """Make SIGTERM act like Ctrl-C, which ends worker processes and keeps finished results."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(number: int, frame: Any) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def continuable(again: str = "the same command") -> Iterator[None]:
    """Stop the command with exit status 130 at Ctrl-C or SIGTERM, and print how to continue."""
    import typer

    try:
        with ended_by_signals():
            yield
    except KeyboardInterrupt:
        typer.echo(f"Interrupted; {again} continues.", err=True)
        raise typer.Exit(INTERRUPTED) from None
