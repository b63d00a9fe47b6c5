"""``mxnum emit``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from mxnum.cli import options


def emit(
    language: Annotated[str, typer.Argument(help="c, systemverilog, javascript or python.")],
    format: options.Format = "mxfp8_e4m3",
    source: Annotated[str, typer.Option(help="The float type that is quantized: float32, float64, ...")] = "float32",
    target: Annotated[str, typer.Option(help="The float type that decoding gives.")] = "float32",
    rounding: options.Rounding = "rne",
    scale_rule: options.FormatsScaleRule = None,
    overflow: options.Overflow = "saturate",
    nonfinite: Annotated[str, typer.Option(help="block or element.")] = "block",
    sr_bits: options.SrBits = 30,
    name: Annotated[str | None, typer.Option(help="What names begin with in C; the package in SystemVerilog.")] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="A file (default, and -: standard output).")
    ] = None,
    force: options.Force = False,
) -> None:
    """Write a reference model of a format: one file in another language that needs nothing else.

    It encodes and decodes elements, finds scales, and quantizes and dequantizes blocks, right to
    the bit, in integers: the functions of mxnum's definition.

    Examples: `mxnum emit c -f mxfp4_e2m1 -o mxfp4.h`;
    `mxnum emit systemverilog -f mxfp8_e4m3 --rounding rtz -o mxfp8.sv`;
    `mxnum emit javascript -f nvfp4 > nvfp4.mjs`.
    """
    from mxnum.cli.outputs import check_output
    from mxnum.emit import reference_model
    from mxnum.output.files import written_whole

    output = None if str(output) == "-" else output
    check_output("Option --output", output, force)
    text = reference_model(
        language, format, source=source, target=target, rounding=rounding, scale_rule=scale_rule, overflow=overflow,
        nonfinite=nonfinite, sr_bits=sr_bits, name=name,
    )  # fmt: skip
    if output is None:
        typer.echo(text, nl=False)
        return
    with written_whole(output) as partial:
        partial.write_text(text, encoding="utf-8")
