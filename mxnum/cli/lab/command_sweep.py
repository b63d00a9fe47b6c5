"""The commands ``mxnum lab sweep`` and ``mxnum lab language-model``, which run a study."""

from __future__ import annotations

from math import inf
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mxnum.cli import options

if TYPE_CHECKING:
    from mxnum.lab.studies.run_study import Outcome
    from mxnum.lab.studies.study import Study

Config = Annotated[
    str,
    typer.Argument(
        metavar="CONFIG",
        help="A TOML file (docs/lab/run-experiments.md, docs/lab/run-language-models.md), or the name of a built-in "
        "study (see `list`).",
    ),
]  # fmt: skip
Out = Annotated[
    Path | None, typer.Option("--out", "-o", help="Folder for the runs and tables (default: the name of the study).")
]
Seeds = Annotated[int | None, typer.Option(min=1, help="Number of seeds; overrides the number in the file.")]


def sweep(
    config: Config,
    out: Out = None,
    seeds: Seeds = None,
    arms: options.Arms = None,
    processes: options.Processes = None,
    stack: Annotated[int, typer.Option(min=1, help="Number of seeds that one process trains together.")] = 3,
    nice: options.Nice = 0,
    scheduler: options.Scheduler = None,
    machine: options.Machine = "cpu",
    as_json: options.AsJson = False,
) -> None:
    """Train every arm of a study on the same seeds, and compare the losses.

    Stored runs are not repeated, so the same command continues after Ctrl-C or a failure. With a
    larger --seeds, the command adds runs. Each call rewrites the tables. The output folder must be
    empty, or made by this command. A run that fails does not stop other runs. The exit status is 0
    if all runs are complete, 1 if some runs failed, and 130 after an interruption.

    Examples: `mxnum lab sweep mine.toml`; `mxnum lab sweep parts --out parts`; `mxnum lab sweep
    mine.toml --seeds 12 --scheduler tcp://10.0.0.1:8786 --json`.
    """
    from mxnum.cli.console import print_json
    from mxnum.lab.studies import studies

    study = studies.read(config)
    how = {"processes": processes, "stack": stack, "niceness": nice, "scheduler": scheduler, "machine": machine}
    outcome, folder = _run(study, out, arms=arms, seeds=seeds, **how)
    if as_json:
        print_json(_as_dict(outcome, folder))
    else:
        _print(outcome, folder)
    _end(outcome)


def language_model(
    config: Config,
    out: Out = None,
    seeds: Seeds = None,
    arms: options.Arms = None,
    processes: options.Processes = None,
    nice: options.Nice = 0,
    scheduler: options.Scheduler = None,
    machine: Annotated[str, typer.Option(help="cpu, or cuda to train on a GPU.")] = "cpu",
    operands: Annotated[
        bool, typer.Option("--operands", help="Store the operands of all linear layers at the end of each run.")
    ] = False,
    as_json: options.AsJson = False,
) -> None:
    """Train a small language model in each arm of a study, and compare the losses.

    The entropy of synthetic training data is known, so the excess of the loss over the entropy is
    exact. The command also measures the gradients of the logits and compares them with theory.
    Stored runs are not repeated, so the same command continues after Ctrl-C or a failure. With a
    larger --seeds, the command adds runs. The output folder must be empty, or made by this command.
    The exit status is 0 if all runs are complete, 1 if some runs failed, and 130 after an
    interruption. The command needs the extras `torch` and `experiments`.

    Example: `mxnum lab language-model logits --seeds 1`.
    """
    from mxnum.cli.console import print_json, print_table
    from mxnum.lab.studies import studies

    study = studies.read(config, "language_model")
    how = {"processes": processes, "niceness": nice, "scheduler": scheduler, "machine": machine}
    how["keep_operands"] = operands
    outcome, folder = _run(study, out, arms=arms, seeds=seeds, **how)
    for failure in outcome.failed:
        typer.echo(f"Failed: {failure}; run the same command to try again.", err=True)
    if outcome.table["arms"] and as_json:
        print_json(outcome.table)
    elif outcome.table["arms"]:
        from mxnum.lab.studies.language_model import HEADINGS, rows

        print_table(study.question, HEADINGS, rows(outcome.table))
        print(f"Runs and tables: {folder}")
    _end(outcome)


def _run(study: Study, out: Path | None, *, arms: str | None, **how: Any) -> tuple[Outcome, Path]:
    """Run a study, write its tables, and return the outcome and the folder of the tables."""
    from mxnum.cli.lab.watching import continuable, watching
    from mxnum.lab.studies import report, study_file
    from mxnum.lab.studies.run_study import run_study

    runs, folder = study_file.folders_of(study.name, out)
    with continuable(), watching() as watch:
        outcome = run_study(
            study, runs, say=watch.say, arms=options.arm_names(arms), **how,
            show=lambda state: watch.at("training", state.done, state.total, str(state)),
        )  # fmt: skip
    if outcome.table["arms"]:
        report.store(study, outcome.table, folder)
    return outcome, folder


def _end(outcome: Outcome) -> None:
    from mxnum.cli.main import DIFFERS

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
        print(f"Final loss, median over seeds: {'; '.join(ends)}.")
        print(f"Seeds: {report.seeds_text(outcome.table)}. Runs and tables: {folder}")
    for failure in outcome.failed:
        print(f"Failed: {failure}")
    if outcome.failed:
        print(f"{len(outcome.failed)} runs failed; run the same command to try again.")


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
