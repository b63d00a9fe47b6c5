"""``mxnum selftest``."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from mxnum.cli import options


def selftest(
    everything: Annotated[
        bool,
        typer.Option("--all", help="Check every format, rounding, scale rule, float type and layout, and the GPU."),
    ] = False,
    as_json: options.AsJson = False,
) -> None:
    """Check the bits that this machine computes against the exact reference.

    Without --all, the command checks three common formats.

    The output lists the installed packages and the GPU, and says whether compiled loops compute
    with floats or only with integers. Please paste the output of `mxnum selftest --all` into bug
    reports. The first call compiles code, which takes seconds, or about a minute with --all.

    The exit status is 0 if every result is right, and 1 if some results are wrong.

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

    wait = "about a minute" if everything else "a few seconds"
    print(f"Compiling loops, which takes {wait} the first time.", file=sys.stderr)
    if not as_json:
        print(facts_text(facts()), end="\n\n", flush=True)
    with progress("Comparing", None) as advance:
        found = run(show, everything=everything)
    if as_json:
        print_json({**asdict(found), "passed": found.passed})
    else:
        print(
            f"\n{found.verdict}" + ("" if everything else " With --all, all other formats and modes are checked too.")
        )
    if not found.passed:
        raise typer.Exit(DIFFERS)
