"""Run the command line.

`main` checks that the packages of the extra ``cli`` are installed. `main` prints an error as one
sentence and returns an exit status.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from typing import Any, TextIO

from mxnum import errors

#: Exit statuses. OK: the command succeeded. DIFFERS: a check found differences. FAILED: an error
#: stopped the command.
OK, DIFFERS, FAILED = 0, 1, 2
#: The exit status after Ctrl-C, the same as in shells.
INTERRUPTED = 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command, and return the exit status."""
    for name in ("stdin", "stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by the caller
            setattr(sys, name, open(os.devnull, "r" if name == "stdin" else "w"))  # noqa: SIM115
    out, err = _Text(sys.stdout), _Text(sys.stderr)
    with redirect_stdout(out), redirect_stderr(err):
        status = _status(arguments)
        for stream in (out, err):
            stream.flush()
    return status


class _Text:
    """A stream that drops text if the reading process has ended (``| head``).

    So a command whose output nobody reads still runs to its end and returns its own exit status.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        """Write text, or drop it if the reading process has ended."""
        try:
            return self._stream.write(text)
        except BrokenPipeError:
            self._discard()
            return len(text)

    def flush(self) -> None:
        """Write buffered text, or drop it if the reading process has ended."""
        try:
            self._stream.flush()
        except BrokenPipeError:
            self._discard()

    def _discard(self) -> None:
        os.dup2(os.open(os.devnull, os.O_WRONLY), self._stream.fileno())


def _status(arguments: Sequence[str] | None) -> int:
    try:
        for package in ("typer", "rich"):
            errors.package(package, "cli")
    except ModuleNotFoundError as problem:
        return _failed(problem)
    from mxnum.cli.app import app_of

    given = list(sys.argv[1:] if arguments is None else arguments)
    try:
        with _first_message_shown():
            app_of(given)(args=given, prog_name="mxnum")
    except SystemExit as stop:
        # If the process that reads the output has ended, typer exits with status 1. mxnum does not
        # treat a closed output as a failure.
        if isinstance(stop.__context__, BrokenPipeError):
            return OK
        return stop.code if isinstance(stop.code, int) else OK
    except OSError as problem:
        where = f" {str(problem.filename)!r}" if problem.filename else ""
        return _failed(f"{problem.strerror or problem}{':' if where else ''}{where}.")
    except (ValueError, TypeError, ModuleNotFoundError, MemoryError, RuntimeError) as problem:
        return _failed(problem)
    return OK


class _FirstMessage(logging.Handler):
    """A handler that shows only the first log message of mxnum, which announces compilation."""

    def emit(self, record: logging.LogRecord) -> None:
        print(record.getMessage(), file=sys.stderr, flush=True)
        self.setLevel(logging.CRITICAL)


@contextmanager
def _first_message_shown() -> Iterator[None]:
    """Show the first log message of mxnum if standard error is a terminal."""
    logger, handler = logging.getLogger("mxnum"), _FirstMessage()
    before = logger.level
    if sys.stderr.isatty():
        logger.addHandler(handler)
        logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(before)


def _failed(problem: object) -> int:
    """Write an error message to standard error, and return the status FAILED."""
    print(f"Error: {problem}", file=sys.stderr, flush=True)
    return FAILED
