"""The entry point: finds the packages of the extra ``cli`` and turns errors into one sentence and an exit status."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from mxnum import errors

#: Exit statuses: what was asked for holds; it was checked and does not hold; it could not be done.
OK, DIFFERS, FAILED = 0, 1, 2
#: After Ctrl-C, as shells have it; what was done until then is kept or printed.
INTERRUPTED = 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; the exit status."""
    try:
        for package in ("typer", "rich"):
            errors.package(package, "cli")
    except ModuleNotFoundError as problem:
        print(f"Error: {problem}", file=sys.stderr)
        return FAILED
    from mxnum.cli.app import app_of

    given = list(sys.argv[1:] if arguments is None else arguments)
    try:
        app_of(given)(args=given, prog_name="mxnum")
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else OK
    except OSError as problem:
        where = f" {str(problem.filename)!r}" if problem.filename else ""
        print(f"Error: {problem.strerror or problem}{':' if where else ''}{where}.", file=sys.stderr)
        return FAILED
    except (ValueError, TypeError, ModuleNotFoundError, MemoryError) as problem:
        print(f"Error: {problem}", file=sys.stderr)
        return FAILED
    return OK
