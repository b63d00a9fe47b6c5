"""``mxnum selftest``."""

from __future__ import annotations

import sys

import typer

from mxnum.cli import options


def selftest(as_json: options.AsJson = False) -> None:
    """Are the bits right on this machine? Try everything once against the exact reference (about a minute).

    It says what is installed, which loops run, and whether a GPU was found and tried. Paste it into an issue.

    Exit status 0: every number is right; 1: some are not.

    Examples: `mxnum selftest`; `mxnum selftest --json`.
    """
    from dataclasses import asdict

    from mxnum.cli.console import print_json, progress
    from mxnum.cli.main import DIFFERS
    from mxnum.selftest import selftest as run

    if not sys.stderr.isatty():
        print("Compiling and comparing: about a minute the first time.", file=sys.stderr)
    with progress("Comparing", None) as advance:
        found = run(lambda what, of: advance(1, total=of))
    if as_json:
        print_json({**asdict(found), "passed": found.passed})
    else:
        print(found)
    if not found.passed:
        raise typer.Exit(DIFFERS)
