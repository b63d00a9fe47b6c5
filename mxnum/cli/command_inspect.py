"""``mxnum inspect``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from mxnum.cli import options


def inspect(
    context: typer.Context,
    source: Annotated[
        Path,
        typer.Argument(metavar="FILE", help="A .npy, .npz, .safetensors or .gguf file, or the folder of a checkpoint."),
    ],
    format: Annotated[
        str | None, typer.Option("--format", "-f", help="For an array of floats, show the errors of this MX format.")
    ] = None,
    axis: Annotated[int, typer.Option(help="The axis along which elements share a scale.")] = -1,
    block_size: options.BlockSize = None,
    scale_rule: options.FormatsScaleRule = None,
    tensor: options.Tensor = None,
    as_dtype: options.AsDtype = None,
    as_json: options.AsJson = False,
) -> None:
    """Summarize an array: ranges, special values, scales, overflow, and a histogram of exponents.

    For a checkpoint without `--tensor`, the command lists the weights and their layouts.

    Examples: `mxnum inspect weights.npy -f mxfp8_e4m3 --scale-rule rceil`;
    `mxnum inspect weights.npz --json`; `mxnum inspect model.safetensors`.
    """
    from mxnum import formats
    from mxnum.analysis.statistics import found_tensor_scale
    from mxnum.array import MXArray
    from mxnum.cli.console import bar, print_json, print_table, progress
    from mxnum.cli.inputs import as_floats, layouts, read
    from mxnum.cli.naming import given
    from mxnum.cli.summary import FloatSummary, MXSummary, pieces

    weights = layouts(source) if tensor is None and format is None else {}
    if len(weights) > 1:
        if as_json:
            print_json({"file": str(source), "weights": weights})
        else:
            print_table(f"Weights of {source}", ["name for --tensor", "layout"], list(weights.items()))
        return
    found: Any = read(source, tensor)
    summary: FloatSummary | MXSummary
    idle, why = ["axis", "block_size", "scale_rule"], "this option needs --format"
    if isinstance(found, MXArray):
        idle, why = ["format", *idle, "as_dtype"], f"{str(source)!r} is quantized already"
    elif format is not None:
        idle = []
    for option in filter(None, (given(context, name) for name in idle)):
        raise ValueError(f"Option {option} must be left out: {why}.")
    if isinstance(found, MXArray):
        summary, of_what = MXSummary(found), "blocks"
    else:
        found = as_floats(found, str(source), as_dtype)
        fmt = None if format is None else formats.get(format)
        settings: dict[str, Any] = {"axis": axis, "block_size": block_size, "scale_rule": scale_rule}
        if fmt is not None and fmt.tensor_scale and found.size:
            settings["tensor_scale"] = found_tensor_scale(found, fmt)
        summary = FloatSummary(fmt, **settings)
        of_what = "elements"
        along_first = found.ndim > 0 and axis % found.ndim == 0
    whole = not isinstance(found, MXArray) and format is not None and along_first
    with progress("Reading", found.size) as advance:
        for piece in [found] if whole else pieces(found):
            summary.add(piece)
            advance(piece.size)
    facts = {
        "file": str(source),
        **({} if isinstance(found, MXArray) else {"shape": found.shape, "dtype": found.dtype.name}),
    }
    facts |= summary.facts()
    histogram = sorted(summary.exponents.items())
    if as_json:
        print_json({**facts, "exponents": {str(e): n for e, n in histogram}})
        return
    for name, value in facts.items():
        print(f"{name:<34} {_shown(value, name, facts)}")
    if histogram:
        most = max(n for _, n in histogram)
        print()
        print_table(f"Exponents of {of_what}", ["2^", of_what, ""], [(e, n, bar(n / most)) for e, n in histogram])


def _shown(value: Any, name: str, facts: dict[str, Any]) -> str:
    """Return a value as text; for a count of blocks or elements, add the share of the total."""
    if isinstance(value, float):
        return f"{value:.9g}"
    for prefix, whole in (
        ("blocks ", facts.get("number of blocks", facts.get("blocks"))),
        ("elements ", facts["elements"]),
    ):
        if name.startswith(prefix) and isinstance(value, int) and whole:
            return f"{value} ({100 * value / whole:.4g} %)"
    return str(value)
