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
    from mxnum.selftest import Check, facts, told
    from mxnum.selftest import selftest as run

    def show(check: Check, of: int) -> None:
        advance(1, total=of)
        if not as_json:
            print(check, flush=True)

    print("Compiling what is not compiled yet: about a minute, the first time.", file=sys.stderr)
    if not as_json:
        print(told(facts()), end="\n\n", flush=True)
    with progress("Comparing", None) as advance:
        found = run(show)
    if as_json:
        print_json({**asdict(found), "passed": found.passed})
    else:
        print(f"\n{found.verdict}")
    if not found.passed:
        raise typer.Exit(DIFFERS)
