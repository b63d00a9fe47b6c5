"""``mxnum lab sweep``."""

from __future__ import annotations

from math import inf
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mxnum.cli import options

if TYPE_CHECKING:
    from mxnum.lab.studies.run_study import Outcome


def sweep(
    config: Annotated[Path, typer.Argument(metavar="CONFIG.toml", help="What to train: docs/lab/run-experiments.md.")],
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Folder of runs and tables (default: named as the study).")
    ] = None,
    seeds: Annotated[int | None, typer.Option(min=1, help="How many seeds, instead of those of the file.")] = None,
    processes: options.Processes = None,
    stack: Annotated[
        int | None, typer.Option(min=1, help="Seeds that one process trains together (default: 3).")
    ] = None,
    nice: options.Nice = 0,
    scheduler: Annotated[
        str | None, typer.Option(metavar="ADDRESS", help="Run on this dask.distributed cluster.")
    ] = None,
    machine: options.Machine = "cpu",
    as_json: options.AsJson = False,
) -> None:
    """Train every setting of a file on the same seeds, and compare what their losses do.

    Runs that are in the folder are not run again, so that the same command continues after Ctrl-C, with more seeds, or
    after a failure; its tables are written anew. A folder of something else is refused. A run that fails does not stop
    the others. Exit status 0: all runs are there; 1: some failed; 130: interrupted.

    Examples: `mxnum lab sweep mine.toml`;
    `mxnum lab sweep mine.toml --seeds 12 --scheduler tcp://10.0.0.1:8786 --json`.
    """
    from mxnum.cli.console import print_json
    from mxnum.cli.lab.watching import ended_by_signals, watching
    from mxnum.cli.main import DIFFERS, INTERRUPTED
    from mxnum.lab.studies import report, study_file
    from mxnum.lab.studies.run_study import run_study

    study = study_file.read(config)
    runs, folder = study_file.places(study.name, out)
    try:
        with ended_by_signals(), watching() as watch:
            outcome = run_study(
                study, runs, seeds=seeds, processes=processes, stack=stack or study_file.STACK, niceness=nice,
                scheduler=scheduler, machine=machine, say=watch.say,
                show=lambda state: watch.at("training", state.done, state.total, str(state)),
            )  # fmt: skip
    except KeyboardInterrupt:
        typer.echo("Interrupted; the same command continues.", err=True)
        raise typer.Exit(INTERRUPTED) from None
    if outcome.table["arms"]:
        report.store(outcome.table, folder, say=lambda text: None)
    if as_json:
        print_json(_as_dict(outcome, folder))
    else:
        _print(outcome, folder)
    if outcome.failed:
        raise typer.Exit(DIFFERS)


def _print(outcome: Outcome, folder: Path) -> None:
    from mxnum.cli.console import print_table
    from mxnum.lab.studies import report

    if outcome.table["arms"]:
        print_table("", report.HEADINGS, report.rows(outcome.table))
        for line in outcome.verdict:
            print(line)
        losses = {arm: [run["last_loss"] for run in found["runs"]] for arm, found in outcome.table["arms"].items()}
        ends = (f"{arm} {median(inf if x is None else x for x in of):.4g}" for arm, of in losses.items())
        print(f"Loss at the end, median of the seeds: {'; '.join(ends)}.")
        print(f"Seeds: {report.seeds_told(outcome.table)}. Runs and tables: {folder}")
    for failure in outcome.failed:
        print(f"Failed: {failure}")
    if outcome.failed:
        print(f"{len(outcome.failed)} failed; the same command tries them again.")


def _as_dict(outcome: Outcome, folder: Path) -> dict[str, Any]:
    from mxnum.lab.studies import report

    table = outcome.table
    rows = [dict(zip(report.HEADINGS, row, strict=True)) for row in report.rows(table)] if table["arms"] else []
    runs = {
        name: [
            {key: run[key] for key in ("seed", "steps", "excursions", "least_loss", "last_loss")}
            | {"outcome": str(course.outcome)}
            for run, course in zip(arm["runs"], report.courses(table, name), strict=True)
        ]
        for name, arm in table["arms"].items()
    }
    failures = [{"arm": f.arm, "seed": f.seed, "reason": f.reason, "log": str(f.log)} for f in outcome.failed]
    return {
        "study": table["study"], "folder": str(folder), "seconds": round(outcome.seconds, 1), "table": rows,
        "runs": runs, "conclusions": outcome.verdict, "failures": failures,
    }  # fmt: skip
