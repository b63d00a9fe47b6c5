"""``mxnum answer``."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import typer

from mxnum.cli import options


def answer(
    cases: Annotated[Path | None, typer.Argument(help="The file of cases, or - for standard input (default).")] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="The output file, or - for standard output (default).")
    ] = None,
    force: options.Force = False,
) -> None:
    """Add the right answers to your own test cases, for example as golden values for a simulation.

    The file of cases has a header, which says what to compute, and a line of inputs for each case.
    `mxnum vectors --inputs-only` writes a file of cases. All codes of a block may be joined into
    one long number, with the first code in the lowest bits. If cases come through a pipe, the
    command answers each case as soon as its line arrives.

    Examples: `mxnum answer cases.txt -o golden.txt`; `./stimuli | mxnum answer`.
    """
    from mxnum.cli.console import progress
    from mxnum.cli.outputs import check_output
    from mxnum.conformance import answer_vectors
    from mxnum.conformance.vectors import Arriving
    from mxnum.output.files import written_whole

    output = None if str(output) == "-" else output
    check_output("Option --output", output, force)
    with ExitStack() as stack:
        is_stream = cases is None or str(cases) == "-"
        stream = Arriving(sys.stdin.buffer) if is_stream else stack.enter_context(cases.open("rb"))  # type: ignore[union-attr]
        advance = stack.enter_context(progress("Answering", None))
        if output is None:
            answer_vectors(stream, sys.stdout.buffer, advance=advance)
            return
        with written_whole(output) as partial, partial.open("wb") as file:
            answer_vectors(stream, file, advance=advance)
