"""``mxnum language-model``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from mxnum.cli import options


def language_model(
    config: Annotated[
        Path, typer.Argument(metavar="CONFIG.toml", help="What to train: docs/howto/run-language-models.md.")
    ],
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Folder of runs and tables (default: named as the study).")
    ] = None,
    seeds: Annotated[int | None, typer.Option(min=1, help="How many seeds, instead of those of the file.")] = None,
    as_json: options.AsJson = False,
) -> None:
    """Train small language models in every precision of a file on the same seeds, and compare their losses.

    The sources have known entropies, so that the excess is exact; the gradients of the logits are watched and compared
    with what the analysis predicts. Runs that are in the folder are not run again, so that the same command continues.
    Needs the extras `torch` and `experiments`.

    Example: `mxnum language-model docs/results/logits/logits.toml --seeds 1`.
    """
    from mxnum.cli.console import print_json, print_table
    from mxnum.cli.main import INTERRUPTED
    from mxnum.language_model import study as studies

    study = studies.read(config)
    folder = Path(study.name) if out is None else out
    try:
        studies.run_study(study, folder / "runs", seeds=seeds, say=lambda text: typer.echo(text, err=True))
    except KeyboardInterrupt:
        typer.echo("Interrupted; the same command continues.", err=True)
        raise typer.Exit(INTERRUPTED) from None
    table = studies.collect(study, folder / "runs")
    studies.store(table, folder)
    if as_json:
        print_json(table)
    else:
        print_table(study.question, studies.HEADINGS, studies.rows(table))
        print(f"Runs and tables: {folder}")
