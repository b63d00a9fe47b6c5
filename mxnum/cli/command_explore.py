"""``mxnum explore``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mxnum.cli import options
from mxnum.cli.main import INTERRUPTED

if TYPE_CHECKING:
    from mxnum.analysis import Candidate, Exploration

#: The type of an option that users may repeat to select several choices.
Several = list[str] | None


def explore(
    source: Annotated[Path, typer.Argument(metavar="FILE", help="A .npy, .npz or .safetensors file of floats.")],
    formats: Annotated[Several, typer.Option("--format", "-f", help="Only this MX format; repeatable.")] = None,
    scale_rules: Annotated[
        Several,
        typer.Option("--scale-rule", help="Scale rule to try; repeatable. Each format must support one of the rules."),
    ] = None,
    roundings: Annotated[Several, typer.Option("--rounding", help="Only this rounding; repeatable.")] = None,
    block_sizes: Annotated[
        list[int] | None,
        typer.Option("--block-size", help="Length of a block; repeatable (default: 16, 32, and the format's length)."),
    ] = None,
    organisations: Annotated[
        Several, typer.Option("--organisation", help="Only this kind of block: row, column or tile; repeatable.")
    ] = None,
    offset: Annotated[
        bool | None, typer.Option("--offset/--no-offset", help="Only candidates with (or without) a float16 offset.")
    ] = None,
    sample: Annotated[int, typer.Option(help="Measure at most about this many elements; 0 means all.")] = 1 << 18,
    seed: Annotated[int, typer.Option(help="Seed of stochastic rounding.")] = 0,
    top: Annotated[int, typer.Option(help="Number of candidates to print; 0 means all.")] = 20,
    frontier: Annotated[
        bool,
        typer.Option(
            "--frontier",
            help="Print only candidates with less error than all others of the same or fewer bits, sorted by bits.",
        ),
    ] = False,
    csv: Annotated[Path | None, typer.Option(help="Write all candidates to this file, as CSV.")] = None,
    plot: Annotated[Path | None, typer.Option(help="Draw all candidates in this file: .png, .svg or .pdf.")] = None,
    force: options.Force = False,
    tensor: options.Tensor = None,
    as_dtype: options.AsDtype = None,
    as_json: options.AsJson = False,
) -> None:
    """Quantize a tensor with every candidate, and rank the candidates by error.

    A candidate is a combination of format and settings. The error is the root mean square of the
    quantization errors, divided by the root mean square of the tensor. After Ctrl-C the command
    prints the results so far.

    Examples: `mxnum explore weights.npy`;
    `mxnum explore model.safetensors --tensor lm_head.weight --rounding rne --frontier`;
    `mxnum explore x.npy -f mxfp4_e2m1 -f nvfp4 --csv all.csv --plot all.png`.
    """
    from mxnum import analysis, errors
    from mxnum.cli.console import print_json, progress
    from mxnum.cli.figure_files import check_figure, write_figure
    from mxnum.cli.inputs import read_array
    from mxnum.cli.outputs import check_output

    errors.require(top >= 0, "top", "at least 0", top)
    errors.require(sample >= 0, "sample", "at least 0", sample)
    check_output("Option --csv", csv, force)
    check_figure(plot, force)
    x = read_array(source, tensor, as_dtype)
    choices: dict[str, Any] = {
        "formats": formats, "scale_rules": scale_rules, "roundings": roundings, "block_sizes": block_sizes,
        "organisations": organisations, "asymmetric": None if offset is None else [offset],
    }  # fmt: skip
    chosen = {name: value for name, value in choices.items() if value}
    with progress("Trying", None) as advance:
        found = analysis.explore(
            x, **chosen, sample=sample or None, seed=seed, progress=lambda done, total, last: advance(1, total=total)
        )
    if csv is not None:
        found.to_csv(csv)
    if plot is not None and found.candidates:
        write_figure(plot, lambda: _draw(found))
    if as_json:
        print_json({**found.as_dict(), **({"frontier": _rows(found.frontier())} if frontier else {})})
    else:
        shown = found.frontier() if frontier else found.ranked()
        _print(found, shown[:top] if top else shown)
    if not found.complete:
        raise typer.Exit(INTERRUPTED)


def _rows(candidates: list[Candidate]) -> list[dict[str, Any]]:
    from dataclasses import asdict

    return [asdict(c) for c in candidates]


def _print(found: Exploration, shown: list[Candidate]) -> None:
    from mxnum.analysis.design_space import TITLES, cells_of
    from mxnum.cli.console import print_table

    state = "" if found.complete else f" of {found.total}, interrupted"
    total = 1
    for length in found.shape:
        total *= length
    extent = "all elements" if found.measured == total else f"{found.measured} of {total} elements (in bands of rows)"
    print_table(f"{len(found.candidates)} candidates{state}; {extent}", TITLES, map(cells_of, shown))


def _draw(found: Exploration) -> Any:
    from mxnum import plots

    return plots.design_space(found).figure
