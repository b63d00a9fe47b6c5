"""``mxnum emit``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from mxnum.cli import options

#: The options that apply only to the model of a format, not to the model of a matrix unit.
_OF_A_FORMAT = ("format", "source", "target", "rounding", "scale_rule", "overflow", "nonfinite", "sr_bits")


def emit(
    context: typer.Context,
    language: Annotated[str, typer.Argument(help="c, systemverilog, javascript or python.")],
    format: options.Format = "mxfp8_e4m3",
    source: Annotated[str, typer.Option(help="The float type of the input: float32, float64, ...")] = "float32",
    target: Annotated[str, typer.Option(help="The float type of the numbers that decoding returns.")] = "float32",
    rounding: options.Rounding = "rne",
    scale_rule: options.FormatsScaleRule = None,
    overflow: options.Overflow = "saturate",
    nonfinite: Annotated[str, typer.Option(help="block or element.")] = "block",
    sr_bits: options.SrBits = 30,
    unit: Annotated[
        str | None, typer.Option(help="Emit the fused sum of this matrix unit instead of a format's functions.")
    ] = None,
    operand: Annotated[
        str | None, typer.Option(help="Operand format of --unit (default: the first format that the unit accepts).")
    ] = None,
    name: Annotated[
        str | None, typer.Option(help="The prefix of all names in C, or the name of the package in SystemVerilog.")
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="The output file, or - for standard output (default).")
    ] = None,
    force: options.Force = False,
) -> None:
    """Write a reference model of a format, or of a matrix unit's fused sum.

    The model is one file in C, SystemVerilog, JavaScript or Python that needs no other file.

    The model of a format computes with integers, and its results equal mxnum's bit for bit. The
    functions of the model encode and decode elements, compute scales, and quantize and dequantize
    blocks.

    Examples: `mxnum emit c -f mxfp4_e2m1 -o mxfp4.h`;
    `mxnum emit systemverilog -f mxfp8_e4m3 --rounding rtz -o mxfp8.sv`;
    `mxnum emit javascript -f nvfp4 > nvfp4.mjs`; `mxnum emit c --unit hopper_fp8 -o hopper.h`.
    """
    from mxnum.cli.naming import given
    from mxnum.cli.outputs import check_output
    from mxnum.emit import matrix_unit_model, reference_model
    from mxnum.output.files import written_whole

    output = None if str(output) == "-" else output
    check_output("Option --output", output, force)
    if operand is not None and unit is None:
        raise ValueError("Option --operand must be left out unless --unit is given.")
    if unit is not None:
        for option in filter(None, (given(context, name) for name in _OF_A_FORMAT)):
            raise ValueError(f"Option {option} must be left out with --unit.")
        text = matrix_unit_model(language, unit, a=operand, name=name)
    else:
        text = reference_model(
            language, format, source=source, target=target, rounding=rounding, scale_rule=scale_rule,
            overflow=overflow, nonfinite=nonfinite, sr_bits=sr_bits, name=name,
        )  # fmt: skip
    if output is None:
        typer.echo(text, nl=False)
        return
    with written_whole(output) as partial:
        partial.write_text(text, encoding="utf-8")
