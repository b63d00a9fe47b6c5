"""``mxnum verify``."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import typer

from mxnum.cli import options


def verify(
    answers: Annotated[
        Path | None, typer.Argument(help="The file of answers, or - for standard input (default).")
    ] = None,
    vectors: Annotated[
        Path | None,
        typer.Option("--vectors", help="The file of cases, needed if the file of answers has no cases."),
    ] = None,
    accept: Annotated[list[str] | None, typer.Option(help="Choices to accept, separated by commas, or all.")] = None,
    strict: Annotated[
        bool, typer.Option("--strict", help="Exit with status 1 also if answers follow choices that --accept omits.")
    ] = False,
    first: Annotated[int, typer.Option(min=0, help="How many failures to show.")] = 5,
    as_json: options.AsJson = False,
) -> None:
    """Compare an implementation's answers with the right answers, and describe the differences.

    The standard leaves some choices to implementations: overflow, infinity, minus_zero, nan_code,
    nonfinite, nan_block_codes, zero_scale, sr_bits, sr_fraction, most_negative and nan_element.

    The exit status is 0 if choices that the standard leaves open explain all differences, and 1
    otherwise. The exit status is 2 if the answers cannot be read or their number is wrong. With
    --strict, the status is also 1 if answers follow choices that --accept omits. With --strict, the
    status is also 2 if the command cannot tell whether cases are missing or changed. The digits x
    (unknown) and z (high impedance) of simulators count as wrong answers.

    Examples: `mxnum vectors encode | ./mine | mxnum verify`;
    `mxnum verify answers.txt --accept minus_zero,overflow`.
    """
    from mxnum.cli.console import print_json, progress
    from mxnum.cli.main import DIFFERS
    from mxnum.conformance import verify as judged

    accepted = "all" if accept == ["all"] else options.names_in(accept) or None
    with ExitStack() as stack:
        stream = sys.stdin.buffer if answers is None or str(answers) == "-" else stack.enter_context(answers.open("rb"))
        cases = None if vectors is None else stack.enter_context(vectors.open("rb"))
        advance = stack.enter_context(progress("Checking", None))
        report = judged(stream, cases, accept=accepted, keep=first, advance=advance)
    if as_json:
        print_json(report.as_dict())
    else:
        print(report.text())
    if not report.conforms or (strict and not report.is_equal):
        raise typer.Exit(DIFFERS)
    if strict and report.unchecked:
        raise ValueError(f"Option --strict needs the file of cases (--vectors). {report.unchecked}")
