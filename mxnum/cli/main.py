"""The entry point: finds the packages of the extra ``cli`` and turns errors into one sentence and an exit status."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TextIO

from mxnum import errors

#: Exit statuses: what was asked for holds; it was checked and does not hold; it could not be done.
OK, DIFFERS, FAILED = 0, 1, 2
#: After Ctrl-C, as shells have it; what was done until then is kept or printed.
INTERRUPTED = 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; the exit status."""
    for name in ("stdin", "stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by whoever called
            setattr(sys, name, open(os.devnull, "r" if name == "stdin" else "w"))  # noqa: SIM115
    status = _status(arguments)
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except BrokenPipeError:
            _discard(stream)
    return status


def _status(arguments: Sequence[str] | None) -> int:
    try:
        for package in ("typer", "rich"):
            errors.package(package, "cli")
    except ModuleNotFoundError as problem:
        return _failed(problem)
    from mxnum.cli.app import app_of

    given = list(sys.argv[1:] if arguments is None else arguments)
    try:
        with _telling_once():
            app_of(given)(args=given, prog_name="mxnum")
    except SystemExit as stop:
        if isinstance(stop.__context__, BrokenPipeError):  # typer and rich both answer it with status 1
            return _unread(stop.__context__)
        return stop.code if isinstance(stop.code, int) else OK
    except OSError as problem:
        where = f" {str(problem.filename)!r}" if problem.filename else ""
        return _failed(f"{problem.strerror or problem}{':' if where else ''}{where}.")
    except (ValueError, TypeError, ModuleNotFoundError, MemoryError, RuntimeError) as problem:
        return _failed(problem)
    return OK


class _Told(logging.Handler):
    """Tells the first of what the package has to say, that something is compiled, and no more."""

    def emit(self, record: logging.LogRecord) -> None:
        print(record.getMessage(), file=sys.stderr, flush=True)
        self.setLevel(logging.CRITICAL)


@contextmanager
def _telling_once() -> Iterator[None]:
    """On a terminal, where somebody waits."""
    logger, told = logging.getLogger("mxnum"), _Told()
    before = logger.level
    if sys.stderr.isatty():
        logger.addHandler(told)
        logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        logger.removeHandler(told)
        logger.setLevel(before)


def _unread(problem: BrokenPipeError) -> int:
    """The status where the reader has seen enough (``| head``)."""
    _discard(sys.stdout)
    return getattr(problem.__context__, "exit_code", OK)  # what was being told may have been a mistake


def _failed(told: object) -> int:
    """Say what was wrong; the status is the same where nobody reads it."""
    try:
        print(f"Error: {told}", file=sys.stderr, flush=True)
    except BrokenPipeError:
        _discard(sys.stderr)
    return FAILED


def _discard(stream: TextIO) -> None:
    """What is left in the buffer has nowhere to go."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
