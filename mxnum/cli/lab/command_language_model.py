"""``mxnum lab language-model``."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from mxnum.cli import options


def language_model(
    config: Annotated[
        str,
        typer.Argument(
            metavar="CONFIG",
            help="What to train: a TOML file (docs/lab/run-language-models.md), or "
            "the name of a study of the documentation: logits, recipes, ...",
        ),
    ],
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Folder of runs and tables (default: named as the study).")
    ] = None,
    seeds: Annotated[int | None, typer.Option(min=1, help="How many seeds, instead of those of the file.")] = None,
    processes: options.Processes = None,
    nice: options.Nice = 0,
    scheduler: Annotated[
        str | None, typer.Option(metavar="ADDRESS", help="Run on this dask.distributed cluster.")
    ] = None,
    operands: Annotated[
        bool, typer.Option("--operands", help="Keep what the linear layers multiply at the end of each run.")
    ] = False,
    as_json: options.AsJson = False,
) -> None:
    """Train small language models in every precision of a file on the same seeds, and compare their losses.

    The sources have known entropies, so that the excess is exact; the gradients of the logits are watched and compared
    with what the analysis predicts. Runs that are in the folder are not run again, so that the same command continues,
    and with more seeds adds to them. A folder of something else is refused.
    Exit status 0: all runs are there; 1: some failed; 130: interrupted. Needs the extras `torch` and `experiments`.

    Example: `mxnum lab language-model logits --seeds 1`.
    """
    from mxnum.cli.console import print_json, print_table
    from mxnum.cli.lab.watching import ended_by_signals, watching
    from mxnum.cli.main import DIFFERS, INTERRUPTED
    from mxnum.lab.studies import language as studies
    from mxnum.lab.studies.study_file import places

    study = studies.read(config)
    runs, folder = places(study.name, out)
    try:
        with ended_by_signals(), watching() as watch:
            failed = studies.run_study(
                study, runs, seeds=seeds, processes=processes or os.cpu_count() or 1, niceness=nice,
                scheduler=scheduler, keep_operands=operands, say=watch.say,
                show=lambda state: watch.at("training", state.done, state.total, str(state)),
            )  # fmt: skip
    except KeyboardInterrupt:
        typer.echo("Interrupted; the same command continues.", err=True)
        raise typer.Exit(INTERRUPTED) from None
    for failure in failed:
        typer.echo(f"Failed: {failure}; the same command tries again.", err=True)
    if failed and next(runs.rglob("seed-*.json"), None) is None:
        raise typer.Exit(DIFFERS)
    table = studies.collect(study, runs, seeds)
    studies.store(table, folder)
    if as_json:
        print_json(table)
    else:
        print_table(study.question, studies.HEADINGS, studies.rows(table))
        print(f"Runs and tables: {folder}")
    if failed:
        raise typer.Exit(DIFFERS)
