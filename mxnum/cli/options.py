"""Options that several commands share."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

import typer

from mxnum import modes


def _one_of(choices: Iterable[str]) -> str:
    """Return the names of modes joined by commas and "or"."""
    *others, last = map(str, choices)
    return f"{', '.join(others)} or {last}"


def names_in(given: list[str] | None) -> list[str]:
    """Return the names that a repeated option lists; each value may list several, with commas."""
    return [name for value in given or () for name in value.split(",")]


Format = Annotated[
    str,
    typer.Option(
        "--format", "-f", help="MX format: see `mxnum formats`, or write your own, such as e3m4:bias=3,block=16."
    ),
]
Rounding = Annotated[str, typer.Option(help=f"{_one_of(modes.Rounding)}.")]
ScaleRule = Annotated[str, typer.Option(help=f"{_one_of(modes.ScaleRule)}.")]
FormatsScaleRule = Annotated[
    str | None,
    typer.Option(
        help=f"E8M0 scales: {_one_of(modes.ScaleRule)} (default: floor). "
        f"Other scales: {_one_of(modes.FloatScaleRule)} (default: nearest)."
    ),
]
Overflow = Annotated[str, typer.Option(help=f"{_one_of(modes.Overflow)}.")]
Nonfinite = Annotated[str, typer.Option(help=f"{_one_of(modes.Nonfinite)}.")]
BlockSize = Annotated[int | None, typer.Option(help="Number of elements in a block (default: set by the format).")]
Seed = Annotated[int | None, typer.Option(help="Seed of stochastic rounding.")]
SrBits = Annotated[int, typer.Option(help="Number of random bits that stochastic rounding uses, 1 to 30.")]
Tensor = Annotated[str | None, typer.Option(help="The tensor to read, if the file has several tensors.")]
AsDtype = Annotated[
    str | None, typer.Option("--as", help="Read 2-byte elements as bfloat16, a type that numpy files cannot name.")
]
Force = Annotated[bool, typer.Option("--force", help="Overwrite a file that exists.")]
Machine = Annotated[
    str,
    typer.Option(
        help="Hardware that trains the runs: cpu; amx or avx512_bf16 (the CPU, with the bfloat16 instructions of this "
        "name; needs the extra `torch`); torch (PyTorch on the CPU); cuda (PyTorch on a GPU)."
    ),
]
Arms = Annotated[str | None, typer.Option(help="Train only these arms, separated by semicolons.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document for scripts.")]
Processes = Annotated[int | None, typer.Option(min=1, help="Number of processes (default: one for each core).")]
Nice = Annotated[int, typer.Option(min=0, max=19, help="Niceness of the processes; 19 is the lowest priority.")]
Scheduler = Annotated[str | None, typer.Option(metavar="ADDRESS", help="Run on this dask.distributed cluster.")]


def arm_names(arms: str | None) -> list[str] | None:
    """Return the names that `--arms` lists, or None if the option was not given."""
    return [name.strip() for name in arms.split(";")] if arms else None
