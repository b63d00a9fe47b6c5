"""The command ``mxnum lab fit``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mxnum.cli import options

if TYPE_CHECKING:
    from mxnum.lab.theory import LawComparison, ScalingFit


def fit(
    source: Annotated[
        Path,
        typer.Argument(
            metavar="LOSSES.csv",
            help="A CSV file with a line of headings and a line for each run (docs/lab/fit-scaling-laws.md).",
        ),
    ],
    parameters: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN", help="The column with the parameters N (default: parameters, params, n_params or N)."
        ),
    ] = None,
    tokens: Annotated[
        str | None,
        typer.Option(metavar="COLUMN", help="The column with the tokens D (default: tokens, n_tokens or D)."),
    ] = None,
    loss: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN", help="The column with the losses (default: loss, val_loss, validation_loss or L)."
        ),
    ] = None,
    where: Annotated[
        list[str] | None,
        typer.Option(metavar="COLUMN=VALUE", help="Use only the lines in which COLUMN has VALUE; repeatable."),
    ] = None,
    against: Annotated[
        list[str] | None,
        typer.Option(
            metavar="COLUMN=VALUE",
            help="Fit a second law to the lines in which COLUMN has VALUE, and compare it with the first; repeatable.",
        ),
    ] = None,
    at: Annotated[
        list[str] | None,
        typer.Option(metavar="N,D", help="Forecast the loss of a model with N parameters and D tokens; repeatable."),
    ] = None,
    delta: Annotated[float, typer.Option(help="Residual of log L above which the Huber loss is linear.")] = 1e-3,
    level: Annotated[float, typer.Option(help="Confidence level of the intervals.")] = 0.9,
    draws: Annotated[int, typer.Option(min=1, help="Number of resampled tables for the bootstrap.")] = 400,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the draws.")] = 0,
    plot: Annotated[
        Path | None, typer.Option(help="Draw the law and its residuals in this file: .png, .svg or .pdf.")
    ] = None,
    force: options.Force = False,
    as_json: options.AsJson = False,
) -> None:
    """Fit the scaling law L = A/N^alpha + B/D^beta + E to a table of losses.

    The fit minimises the mean Huber loss of the residuals of log L, from a grid of starting points.
    The fit ignores lines without a loss, and the output shows how many there are. The output has
    two kinds of confidence intervals. Bootstrap intervals come from fits to resampled runs. Profile
    intervals come from fits in which one parameter is fixed.

    Examples: `mxnum lab fit losses.csv`; `mxnum lab fit losses.csv --loss final --plot law.png`;
    `mxnum lab fit losses.csv --where arm=mxfp8 --against arm=bf16 --at 7e9,2e11 --json`.
    """
    from mxnum import errors
    from mxnum.cli.console import print_json
    from mxnum.cli.figure_files import check_figure, write_figure
    from mxnum.lab import theory

    check_figure(plot, force)
    columns: dict[str, Any] = {"parameters": parameters, "tokens": tokens, "loss": loss}
    models = [_model(text) for text in at or ()]
    found = theory.fit_scaling_law(
        theory.read_losses(source, **columns, where=_conditions("where", where)), delta=delta
    )
    other = None
    if against:
        rows = theory.read_losses(source, **columns, where=_conditions("against", against))
        other = theory.fit_scaling_law(rows, delta=delta)
    errors.require(0 < level < 1, "level", "between 0 and 1", level)
    chance: dict[str, Any] = {"level": level, "draws": draws, "seed": seed}
    facts: dict[str, Any] = {
        "law": {name: getattr(found.law, name) for name in ("A", "B", "E", "alpha", "beta")},
        "compute_exponent": found.law.compute_exponent,
        "falls": found.law.falls,
        "huber_loss": found.loss,
        "median_miss": found.typical_miss,
        "runs": len(found.table),
        "left_out": found.table.left_out,
        "columns": dict(found.table.columns or {}),
        "starts": found.starts,
        "agreeing": found.agreeing,
        "level": level,
        "bootstrap": found.bootstrap(**chance),
        "profile": found.profile(level=level),
        "forecasts": [
            {"parameters": n, "tokens": d, "loss": value, "low": low, "high": high}
            for n, d in models
            for value, low, high in [found.forecast(n, d, **chance)]
        ],
    }
    compared = None if other is None else theory.compare_laws(other, found, **chance)
    if compared is not None:
        facts["against"] = _as_dict(compared)
    if plot is not None:
        write_figure(plot, lambda: _draw(found))
    if as_json:
        print_json(facts)
    else:
        _print(found, facts, compared)


def _conditions(option: str, given: list[str] | None) -> dict[str, str]:
    """Return COLUMN=VALUE texts as a dictionary."""
    conditions: dict[str, str] = {}
    for text in given or ():
        column, sign, value = text.partition("=")
        if not sign:
            raise ValueError(f"Option --{option} must be written COLUMN=VALUE, not {text!r}.")
        column, value = column.strip(), value.strip()
        if conditions.setdefault(column, value) != value:
            raise ValueError(
                f"Option --{option} must give {column!r} only one value, not {conditions[column]!r} and {value!r}."
            )
    return conditions


def _model(text: str) -> tuple[float, float]:
    """Return the two numbers of a text of the form N,D."""
    try:
        n, d = (float(part) for part in text.split(","))
    except ValueError:
        n = d = -1.0
    if not (0 < n < float("inf") and 0 < d < float("inf")):
        raise ValueError(f"Option --at must be written N,D with two positive numbers, not {text!r}.")
    return n, d


def _as_dict(found: LawComparison) -> dict[str, Any]:
    return {
        "distance": found.distance, "p": found.p, "at_most": found.at_most, "told_apart": found.told_apart,
        "shared_cells": found.shared_cells,
        "differences": {
            name: {"difference": value, "low": low, "high": high}
            for name, (value, (low, high)) in found.differences.items()
        },
    }  # fmt: skip


def _draw(found: ScalingFit) -> Any:
    from mxnum import errors
    from mxnum.lab.theory import figures

    pyplot = errors.package("matplotlib.pyplot", "plots")
    figure, (above, below) = pyplot.subplots(2, figsize=(7.2, 6.8), layout="constrained")
    figures.scaling_law(found, ax=above)
    figures.law_residuals(found, ax=below)
    return figure


def _print(found: ScalingFit, facts: dict[str, Any], compared: LawComparison | None) -> None:
    from mxnum.cli.console import print_table

    table, level = found.table, facts["level"]
    columns = ", ".join(f"{what} from {name!r}" for what, name in facts["columns"].items())
    left_out = f" (ignoring {table.left_out} without a loss)" if table.left_out else ""
    title = f"L = A/N^alpha + B/D^beta + E over {len(table)} runs{left_out}; {columns}"
    rows = [
        (name, f"{value:.6g}", _interval(facts["bootstrap"][name]), _interval(facts["profile"][name]))
        for name, value in facts["law"].items()
    ]
    exponent = facts["compute_exponent"]
    rows.append(
        ("exponent of compute in best N", f"{exponent:.4g}", _interval(facts["bootstrap"]["compute_exponent"]), "")
    )
    print_table(title, ("", "value", f"bootstrap, {level:.0%}", f"profile, {level:.0%}"), rows)
    print(
        f"Huber loss {found.loss:.4g}, median |residual| {found.typical_miss:.2%}; {found.agreeing} of {found.starts} "
        "starting points led to this fit."
    )
    if not found.law.falls:
        print("This is not a scaling law: the loss does not fall both with more parameters and with more tokens.")
    for each in facts["forecasts"]:
        print(
            f"N = {each['parameters']:.4g}, D = {each['tokens']:.4g}: loss {each['loss']:.4f} "
            f"({each['low']:.4f} to {each['high']:.4f})"
        )
    if compared is not None:
        _print_comparison(compared)


def _print_comparison(found: LawComparison) -> None:
    from mxnum.cli.console import print_table

    answer = "differ" if found.told_apart else "do not differ significantly in these runs"
    print(
        f"\nThe laws {answer}. At sizes within the ranges of both tables, the median difference of their losses is "
        f"{found.distance:.2%} (p {found.p:.2g}; upper limit {found.at_most:.2%}). {found.shared_cells} sizes are in "
        "both tables."
    )
    rows = [
        (name.replace("_", " "), f"{value:+.4g}", _interval(interval))
        for name, (value, interval) in found.differences.items()
    ]
    print_table("", ("", "difference from the --against law", f"bootstrap, {found.level:.0%}"), rows)


def _interval(ends: tuple[float, float]) -> str:
    return f"{ends[0]:.4g} to {ends[1]:.4g}"
