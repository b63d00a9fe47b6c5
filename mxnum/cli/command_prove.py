"""``mxnum prove``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from mxnum.cli import options


def prove(
    context: typer.Context,
    operation: Annotated[str, typer.Argument(help="encode, decode, scale, quantize or dot.")],
    files: Annotated[
        list[Path],
        typer.Argument(help="Verilog, SystemVerilog, C, C++, LLVM IR, PTX or Python.", metavar="FILES"),
    ],
    format: options.Format = "mxfp8_e4m3",
    function: Annotated[str | None, typer.Option(help="The module or function to prove, if FILES has several.")] = None,
    port: Annotated[
        list[str] | None,
        typer.Option(help="Bind a port or parameter to an input, output or constant: in_data=x, enable=1; repeatable."),
    ] = None,
    parameter: Annotated[
        list[str] | None,
        typer.Option(help="The value of a module's parameter or a C macro: WIDTH=8; repeatable."),
    ] = None,
    include: Annotated[
        list[Path] | None,
        typer.Option("--include", "-I", help="A folder to search for included files; repeatable."),
    ] = None,
    latency: Annotated[int, typer.Option(min=0, help="Clock cycles from inputs to outputs, for a pipeline.")] = 0,
    source: Annotated[
        str, typer.Option(help="Type of the input of encode, or of the output of decode: float32, e5m2, ...")
    ] = "float32",
    rounding: options.Rounding = "rne",
    overflow: options.Overflow = "saturate",
    scale_rule: options.ScaleRule = "floor",
    sr_bits: options.SrBits = 30,
    terms: Annotated[int, typer.Option(min=1, max=4, help="Products of a dot product.")] = 4,
    nonfinite: Annotated[str, typer.Option(help="block or element.")] = "block",
    block_size: options.BlockSize = None,
    assume: Annotated[
        list[str] | None,
        typer.Option(
            help="Assumptions about inputs, separated by commas: finite, not_nan, scale_number and nonnegative."
        ),
    ] = None,
    accept: Annotated[
        list[str] | None,
        typer.Option(help="Accepted differences from the definition, separated by commas: nan_code and minus_zero."),
    ] = None,
    seconds: Annotated[float, typer.Option(help="Time limit of the solver, in seconds.")] = 300,
    as_json: options.AsJson = False,
) -> None:
    """Prove that code is right for all inputs, or show an input with a wrong result.

    The exit status is 0 if the code is proved right, 2 if the code cannot be read, and 1 otherwise.

    Examples: `mxnum prove encode convert.sv -f mxfp8_e4m3 --function convert`;
    `mxnum prove decode fp8.c --function e5m2_to_float --format mxfp8_e5m2`;
    `mxnum prove encode pipeline.sv --latency 3 --port data=x --port enable=1`.
    """
    from mxnum.cli.console import print_json
    from mxnum.cli.naming import asked
    from mxnum.conformance import prove as prove_it
    from mxnum.prove.claims import DECIDES

    outcome = prove_it(
        files, operation, format, function=function, ports=_pairs("--port", port), latency=latency,
        include=include or (),
        parameters={name: int(value) for name, value in _pairs("--parameter", parameter).items()},
        assume=options.names_in(assume), accept=options.names_in(accept), seconds=seconds, **asked(context, DECIDES),
    )  # fmt: skip
    if as_json:
        print_json(outcome.as_dict())
    else:
        typer.echo(outcome)
    raise typer.Exit(0 if outcome else 1)


def _pairs(option: str, given: list[str] | None) -> dict[str, str | int]:
    """Return NAME=VALUE texts as a dictionary, with integers converted to int."""
    found: dict[str, str | int] = {}
    for text in given or ():
        name, separator, value = text.partition("=")
        if not (name and separator and value) or (option == "--parameter" and not _is_number(value)):
            raise ValueError(
                f"Option {option} must be like {'WIDTH=8' if option == '--parameter' else 'in=x'}, not {text!r}."
            )
        found[name] = int(value, 0) if _is_number(value) else value
    return found


def _is_number(text: str) -> bool:
    try:
        int(text, 0)
    except ValueError:
        return False
    return True
