"""``mxnum selftest``."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from mxnum.cli import options


def selftest(
    everything: Annotated[
        bool, typer.Option("--all", help="Every format, rounding, scale rule, float type and layout, and the GPU.")
    ] = False,
    as_json: options.AsJson = False,
) -> None:
    """Check the bits that this machine computes against the exact reference.

    Without --all it checks three common formats.

    The output says what is installed, which loops run, and whether a GPU was found. Paste it into
    an issue, preferably with --all. The first call compiles for seconds, and with --all for about a
    minute.

    Exit status 0: every number is right; 1: some are not.

    Examples: `mxnum selftest`; `mxnum selftest --all`; `mxnum selftest --all --json`.
    """
    from dataclasses import asdict

    from mxnum.cli.console import print_json, progress
    from mxnum.cli.main import DIFFERS
    from mxnum.selftest import Check, facts, facts_text
    from mxnum.selftest import selftest as run

    def show(check: Check, of: int) -> None:
        advance(1, total=of)
        if not as_json:
            print(check, flush=True)

    wait = "about a minute" if everything else "some seconds"
    print(f"Compiling what is not compiled yet: {wait}, the first time.", file=sys.stderr)
    if not as_json:
        print(facts_text(facts()), end="\n\n", flush=True)
    with progress("Comparing", None) as advance:
        found = run(show, everything=everything)
    if as_json:
        print_json({**asdict(found), "passed": found.passed})
    else:
        print(f"\n{found.verdict}" + ("" if everything else " --all tries everything else, too."))
    if not found.passed:
        raise typer.Exit(DIFFERS)
