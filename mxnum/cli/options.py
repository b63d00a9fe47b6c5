"""Options that several commands share."""

from __future__ import annotations

from typing import Annotated

import typer

Format = Annotated[
    str,
    typer.Option(
        "--format", "-f", help="MX format: `mxnum formats` lists them; your own is written e3m4:bias=3,block=16."
    ),
]
Rounding = Annotated[str, typer.Option(help="rne, rna, rtz, rtp, rtn, rto or sr.")]
ScaleRule = Annotated[str, typer.Option(help="floor, ceil, even or rceil.")]
FormatsScaleRule = Annotated[
    str | None,
    typer.Option(help="floor, ceil, even or rceil with E8M0 scales (default: floor); nearest, rceil, ... with others."),
]
Overflow = Annotated[str, typer.Option(help="saturate or ieee.")]
Nonfinite = Annotated[str, typer.Option(help="block, element or raise.")]
BlockSize = Annotated[int | None, typer.Option(help="Elements that share a scale (default: the format's).")]
Seed = Annotated[int | None, typer.Option(help="Seed of stochastic rounding.")]
SrBits = Annotated[int, typer.Option(help="Random bits used by stochastic rounding, 1 to 30.")]
Tensor = Annotated[str | None, typer.Option(help="Which tensor, where the file holds several.")]
AsDtype = Annotated[
    str | None, typer.Option("--as", help="Read 2-byte elements as bfloat16 (numpy files cannot say that).")
]
Force = Annotated[bool, typer.Option("--force", help="Overwrite a file that exists.")]
AsJson = Annotated[bool, typer.Option("--json", help="One JSON document for scripts.")]
