"""``mxnum vectors``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from mxnum.cli import options

Operation = Annotated[str, typer.Argument(help="encode, decode, quantize, dequantize, scale, dot or mma.")]


def vectors(
    context: typer.Context,
    operation: Operation,
    format: options.Format = "mxfp8_e4m3",
    level: Annotated[
        int,
        typer.Option(
            help="Level 1 has every boundary and special value. Level 2 has random cases: "
            "100,000 for quantize, scale, dot and mma, otherwise 1,000,000."
        ),
    ] = 1,
    count: Annotated[int | None, typer.Option(help="Number of cases at level 2.")] = None,
    seed: Annotated[int, typer.Option(help="Seed of the cases.")] = 0,
    source: Annotated[
        str, typer.Option(help="float32, float64, bfloat16 or float16; for encode, also an element format.")
    ] = "float32",
    rounding: options.Rounding = "rne",
    scale_rule: options.FormatsScaleRule = None,
    overflow: options.Overflow = "saturate",
    nonfinite: Annotated[str, typer.Option(help="block or element.")] = "block",
    sr_bits: options.SrBits = 30,
    accumulate: Annotated[
        str | None,
        typer.Option(
            help="block, exact, sequential, or a matrix unit such as hopper_fp8.  "
            "[default: block, or exact if scales are floats]"
        ),
    ] = None,
    dot_blocks: Annotated[int, typer.Option(help="Number of blocks in each operand of a dot product.")] = 4,
    k: Annotated[
        int | None,
        typer.Option(
            help="Number of products in a case for a matrix unit (default: mma fills one instruction, dot several)."
        ),
    ] = None,
    block_size: options.BlockSize = None,
    inputs_only: Annotated[
        bool, typer.Option("--inputs-only", help="Write only the inputs, without the right answers.")
    ] = False,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="The output file, or - for standard output (default).")
    ] = None,
    force: options.Force = False,
) -> None:
    """Write test vectors: a header, and then one case in each line, in hexadecimal.

    An implementation reads the lines, replaces the answers by its own, and passes the lines to
    `mxnum verify`. For a format with a tensor scale, each line also has the largest magnitude of
    the tensor and the tensor scale. For a matrix unit, each case of `dot` or `mma` also has an
    addend; `mma` is one instruction. `--format` may then name the type of the unit's operands.

    Examples: `mxnum vectors encode -f mxfp8_e4m3 | ./mine | mxnum verify`;
    `mxnum vectors quantize -f mxfp4_e2m1 --level 2 -o cases.txt`;
    `mxnum vectors quantize -f nvfp4`;
    `mxnum vectors mma -f e4m3 --accumulate hopper_fp8`.
    """
    from mxnum.cli.console import progress
    from mxnum.cli.naming import asked
    from mxnum.cli.outputs import check_output
    from mxnum.conformance import make_task, write_vectors
    from mxnum.conformance.cases.batches import number_of_cases
    from mxnum.conformance.operations import DECIDES
    from mxnum.output.files import written_whole

    task = make_task(operation, format, **asked(context, DECIDES))
    output = None if str(output) == "-" else output
    check_output("Option --output", output, force)
    total = number_of_cases(task, level=level, seed=seed, count=count)
    settings = {"level": level, "seed": seed, "count": count, "answers": not inputs_only}
    with progress("Writing", total) as advance:
        if output is None:
            write_vectors(task, sys.stdout.buffer, advance=advance, **settings)  # type: ignore[arg-type]
            sys.stdout.buffer.flush()
            return
        with written_whole(output) as partial, partial.open("wb") as file:
            write_vectors(task, file, advance=advance, **settings)  # type: ignore[arg-type]
