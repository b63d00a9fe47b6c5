"""The commands ``mxnum unit probe`` and ``mxnum unit identify``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from mxnum import errors
from mxnum.cli import options

Output = Annotated[
    Path | None, typer.Option("--output", "-o", help="The output file, or - for standard output (default).")
]


def probe(
    operands: Annotated[
        str, typer.Option(help="The format of the operands, or two formats such as e4m3,e5m2.")
    ] = "float16",
    k: Annotated[int, typer.Option("-k", "--products", help="The number of products that an instruction sums.")] = 16,
    accumulator: Annotated[str, typer.Option(help="float32, float16 or bfloat16: the type of c and d.")] = "float32",
    scales: Annotated[
        str | None, typer.Option(help="The format of block scales and the block length, such as e8m0,32.")
    ] = None,
    count: Annotated[int, typer.Option(help="The number of cases.", min=20)] = 300,
    seed: Annotated[int, typer.Option(help="Seed of the cases.")] = 0,
    output: Output = None,
    force: options.Force = False,
    device: Annotated[
        str | None,
        typer.Option(
            help="Run the cases on a GPU: cuda, or the path of a compiled probe.cu. --output then names a folder."
        ),
    ] = None,
) -> None:
    """Write cases that show how a matrix unit computes d = a*b + c.

    Run the cases on the unit, append the bits of d to each line, and pass the lines to
    `mxnum unit identify`.

    Example: `mxnum unit probe --operands e4m3 -k 32 -o cases.txt`.

    `mxnum unit probe --device cuda -o answers` runs all matrix instructions of this machine's GPU,
    for all types of operands. The command computes only answers that the folder `answers` lacks.
    """
    if device is not None:
        from mxnum.units.identify.device import probe_gpu

        for line in probe_gpu(output or Path("answers"), device, count, seed):
            print(line, flush=True)
        return
    from mxnum.units.identify.cases import first_cases
    from mxnum.units.identify.identification import problem_of
    from mxnum.units.identify.text import write_cases

    problem = problem_of(tuple(operands.split(",")) if "," in operands else operands, k, accumulator, _scales(scales))
    _write(write_cases(problem, first_cases(problem, count, seed)), output, force)


def identify(
    answers: Annotated[Path, typer.Argument(help="The file of cases with answers, or - for standard input.")],
    as_json: options.AsJson = False,
    further: Annotated[
        Path | None, typer.Option(help="Write further cases, which distinguish the remaining rules, to this file.")
    ] = None,
    force: options.Force = False,
) -> None:
    """Show which rules of addition reproduce the answers of a matrix unit.

    The exit status is 1 if no rule reproduces every answer.

    Example: `mxnum unit identify answers.txt --further more.txt`.
    """
    import sys

    from mxnum.cli.main import DIFFERS
    from mxnum.units.identify.identification import judge
    from mxnum.units.identify.text import read_answers, write_cases

    lines = sys.stdin.read() if str(answers) == "-" else answers.read_text()
    found = judge(*read_answers(lines.splitlines()))
    print(found.to_json() if as_json else found)
    more = found.further_cases() if further is not None else None
    if more is not None:
        _write(write_cases(found.problem, more), further, force)
    if not found.rules:
        raise typer.Exit(DIFFERS)


def _scales(text: str | None) -> tuple[str, int] | None:
    """Return the scale format and the block length that ``--scales`` gives, or None."""
    if text is None:
        return None
    name, _, block = text.partition(",")
    errors.require(block.isdecimal(), "scales", "a format and a block length: e8m0,32", text)
    return name, int(block)


def _write(text: str, output: Path | None, force: bool) -> None:
    """Write text to a file or to standard output."""
    from mxnum.cli.outputs import check_output
    from mxnum.output.files import written_whole

    if output is None or str(output) == "-":
        print(text, end="")
        return
    check_output("Option --output", output, force)
    with written_whole(output) as partial:
        partial.write_text(text)
